// Checks a second and latency, of one caller and of many: as calls, and coalesced.
import { Client, type ClientOptions } from "weir-client";
import { startWeir } from "./test/support/weir.js";

const SECONDS = 5;
const POLICY = 'schema: { user: { children: { "*": { limits: [{ gcra: { burst: 1000000000, count: 1000000, period: 1s } }] } } } }';
const MODES: [string, ClientOptions][] = [
  ["unary", {}],
  ["unary, no retries", { retries: 0 }],
  ["coalesced", { coalesce: true }],
  ["coalesced, no retries", { coalesce: true, retries: 0 }],
];

const cleanups: (() => unknown)[] = [];
const { address } = await startWeir({ after: (cleanup) => void cleanups.push(() => (cleanup as () => unknown)()) }, {}, POLICY);
console.log("mode                   callers  checks/s   p50 us   p99 us");
for (const callers of [1, 64]) {
  for (const [mode, options] of MODES) {
    const weir = new Client(address, { deadlineMs: 5_000, ...options });
    await weir.ready();
    await run(weir, callers, 1);
    const latenciesUs = (await run(weir, callers, SECONDS)).sort((a, b) => a - b);
    const rate = latenciesUs.length / SECONDS;
    const figures = [callers, rate, quantile(latenciesUs, 0.5), quantile(latenciesUs, 0.99)].map((figure) => figure.toFixed(0).padStart(8));
    console.log(`${mode.padEnd(22)}${figures.join(" ")}`);
    weir.close();
  }
}
for (const cleanup of cleanups.reverse()) await cleanup();

/** Latencies in microseconds of callers that check one after the other. */
async function run(weir: Client, callers: number, seconds: number): Promise<number[]> {
  const latenciesUs: number[] = [];
  const endMs = performance.now() + seconds * 1_000;
  const caller = async (_: unknown, index: number): Promise<void> => {
    for (let beginMs = performance.now(); beginMs < endMs; ) {
      await weir.check(["user", `${index}`]);
      const nowMs = performance.now();
      latenciesUs.push((nowMs - beginMs) * 1_000);
      beginMs = nowMs;
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return latenciesUs;
}

function quantile(sorted: readonly number[], part: number): number {
  return sorted[Math.floor(sorted.length * part)] ?? NaN;
}
