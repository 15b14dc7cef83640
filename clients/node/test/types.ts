// Compiled, never run: the types must reject these, and an outcome has a value only if the work ran.
import { Client, type Limit } from "weir-client";

export const limits: Limit[] = [
  { name: "minute", depth: 1, gcra: { burst: 1, count: 1, periodMs: 60_000 } },
  // @ts-expect-error two algorithms
  { gcra: { count: 1 }, decay: { max: 1 } },
  // @ts-expect-error none
  { name: "none" },
  // @ts-expect-error an unknown field
  { gcra: { brst: 1 } },
  // @ts-expect-error a duration without its unit
  { gcra: { period: 1 } },
  // @ts-expect-error an unknown name
  { fixedWindow: { count: 1, calendar: "hour" } },
];

export async function work(weir: Client): Promise<number> {
  const outcome = await weir.withSlot(["a"], {}, async () => 1);
  // @ts-expect-error refused, perhaps
  outcome.value;
  return outcome.allowed ? outcome.value : 0;
}
