// A cost that is known afterwards: an estimate for a call of a language model, settled by the units used.
import { Client } from "weir-client";

/** Stands for the model: its answer, and the tokens that it took. */
async function complete(prompt: string): Promise<{ answer: string; used: number }> {
  return { answer: prompt.toUpperCase(), used: 4 };
}

const weir = new Client(process.env.WEIR_ADDR ?? "127.0.0.1:8081", { deadlineMs: 5_000 });
await weir.ready();
// Longer than any call takes. A reservation that is not settled by then counts as spent. If the call fails, it is cancelled.
const outcome = await weir.withReservation(["user", "alex"], { cost: 10, ttlMs: 120_000 }, async (reservation) => {
  const { answer, used } = await complete("hello");
  return { answer, ...(await reservation.commit(used)) };
});
if (!outcome.allowed) throw new Error("refused");
const { charged, refunded, overage } = outcome.value;
console.log(`used ${charged} of 10 reserved, ${refunded} given back, ${overage} over`);
weir.close();
