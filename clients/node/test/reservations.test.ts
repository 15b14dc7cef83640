import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { connect, startWeir } from "./support/weir.js";

const USER = ["user", "alex"];
const SLOTS = ["slots", "alex"];

/** Resolves once a slot is lost. */
async function lost(slot: { lost: AbortSignal }): Promise<void> {
  if (!slot.lost.aborted) await once(slot.lost, "abort");
}

test("a reservation is settled by what it cost", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const left = async () => (await weir.check(USER, { cost: 0 })).remaining;

  const less = await weir.reserve(USER, { cost: 10, ttlMs: 60_000 });
  assert.equal(less.allowed, true);
  assert.ok(less.heldMs > 50_000 && less.heldMs <= 60_000);
  assert.equal(await left(), 90);
  assert.ok((await less.extend(120_000)) > 110_000);
  const settlement = { charged: 4, refunded: 6, overage: 0, degraded: false };
  assert.deepEqual(await less.commit(4), settlement);
  assert.deepEqual(await less.commit(9), settlement, "the first settlement counts");
  assert.equal(await left(), 96);

  const more = await weir.reserve(USER, { cost: 1, ttlMs: 60_000 });
  assert.deepEqual(await more.commit(3), { charged: 3, refunded: 0, overage: 2, degraded: false });
  const none = await weir.reserve(USER, { cost: 10, ttlMs: 60_000, onExpiry: "release" });
  assert.deepEqual(await none.cancel(), { charged: 0, refunded: 10, overage: 0, degraded: false });
  assert.equal(await left(), 93);

  const refused = await weir.reserve(USER, { cost: 94, ttlMs: 60_000 });
  assert.equal(refused.allowed, false);
  assert.deepEqual(await refused.commit(), { charged: 0, refunded: 0, overage: 0, degraded: true });
  assert.equal(await left(), 93);
  await assert.rejects(weir.reserve(USER), { code: "INVALID_ARGUMENT", field: "ttl" });
});

test("the end of a block settles in full, and an error cancels", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const left = async () => (await weir.check(USER, { cost: 0 })).remaining;
  const options = { cost: 10, ttlMs: 60_000 };
  {
    await using reservation = await weir.reserve(USER, options);
    assert.equal(reservation.isSettled, false);
  }
  assert.equal(await left(), 90);

  const outcome = await weir.withReservation(USER, options, async () => "done");
  assert.ok(outcome.allowed);
  assert.equal(outcome.value, "done");
  assert.equal(await left(), 80);
  await weir.withReservation(USER, options, (reservation) => reservation.commit(1));
  assert.equal(await left(), 79);
  await assert.rejects(weir.withReservation(USER, options, () => Promise.reject(new Error("of the work"))), /of the work/);
  assert.equal(await left(), 79);
  const refused = await weir.withReservation(USER, { ...options, cost: 80 }, () => assert.fail("it ran"));
  assert.equal(refused.allowed, false);
});

test("without a decision a reservation holds nothing, and onFailure decides", async (t) => {
  const { address, server } = await startWeir(t);
  const weir = await connect(t, address, { onFailure: "allow", deadlineMs: 50 });
  await server.stop();
  const reservation = await weir.reserve(USER, { cost: 10, ttlMs: 60_000 });
  assert.deepEqual([reservation.allowed, reservation.decision.source, reservation.heldMs], [true, "fallback", 0]);
  assert.equal((await reservation.commit(4)).degraded, true);
  const outcome = await weir.withSlot(SLOTS, {}, async ({ lost }) => lost.aborted);
  assert.deepEqual(outcome.allowed && outcome.value, false);
});

test("a settlement that fails at the end of a block is logged, and fails no work", async (t) => {
  const { address, server } = await startWeir(t);
  const warnings: string[] = [];
  const logger = { warn: (line: string) => void warnings.push(line), error: assert.fail };
  const weir = await connect(t, address, { retries: 0, logger, breaker: false });
  const fails = /^a reservation is not settled, and ends with its ttl: UNAVAILABLE/;
  let done = 0;
  const ending = async () => {
    await server.stop("SIGKILL");
    done += 1;
  };
  const first = await weir.slot(SLOTS);
  const reservations = [await weir.reserve(USER, { ttlMs: 60_000 }), await weir.reserve(USER, { ttlMs: 60_000 })];
  {
    await using _ = first;
    await ending();
  }
  for (const reservation of reservations) {
    await using _ = reservation;
    await ending();
  }
  assert.equal(done, 3);
  assert.equal(warnings.length, 3);
  for (const warning of warnings) assert.match(warning, fails);
});

test("a settlement at the end of a block says if there was nothing left to settle", async (t) => {
  const service = await startWeir(t);
  const warnings: string[] = [];
  const logger = { warn: (line: string) => void warnings.push(line), error: assert.fail };
  const weir = await connect(t, service.address, { logger });
  {
    await using slot = await weir.slot(SLOTS);
    await using reservation = await weir.reserve(USER, { ttlMs: 60_000 });
    assert.ok(slot.allowed && reservation.allowed);
    // Without a snapshot the service forgets them.
    await service.server.stop("SIGKILL");
    await service.restart();
    await weir.ready(10_000);
  }
  assert.equal(warnings.length, 2);
  for (const warning of warnings) assert.match(warning, /^a reservation had ended before it was settled: NOT_FOUND/);
});

test("a slot is held while the work goes on, and given back", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const outcome = await weir.withSlot(SLOTS, {}, async (slot) => {
    assert.equal(slot.lost.aborted, false);
    const second = await weir.withSlot(SLOTS, {}, () => assert.fail("two at the same time"));
    assert.ok(second.decision.retryAfterMs);
    return second.allowed;
  });
  assert.deepEqual(outcome.allowed && outcome.value, false);
  await assert.rejects(weir.withSlot(SLOTS, {}, () => Promise.reject(new Error("of the work"))), /of the work/);
  {
    await using slot = await weir.slot(SLOTS);
    assert.equal(slot.allowed, true);
  }
  assert.equal((await weir.slot(SLOTS)).allowed, true);
});

test("a slot is extended in the background", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const ttlMs = 2_000;
  const begin = performance.now();
  const slot = await weir.slot(SLOTS, { ttlMs });
  // Other requests for the slot are refused, for much longer than its ttl.
  while (performance.now() - begin < 2 * ttlMs) assert.equal((await weir.reserve(SLOTS)).allowed, false);
  assert.equal(slot.lost.aborted, false);
  await slot.release();
  await slot.release();
  assert.equal((await weir.reserve(SLOTS)).allowed, true);
});

test("a slot outlives an extension that hangs", async (t) => {
  const { address, server } = await startWeir(t);
  const weir = await connect(t, address);
  const ttlMs = 4_000;
  const slot = await weir.slot(SLOTS, { ttlMs });
  await server.freeze();
  // Later than the first attempt, and within the second.
  await setTimeout(0.625 * ttlMs);
  server.thaw();
  await setTimeout(0.5 * ttlMs);
  assert.equal(slot.lost.aborted, false);
  assert.equal((await weir.reserve(SLOTS)).allowed, false);
});

test("a slot that was given to others is noticed", async (t) => {
  const weir = await startWeir(t);
  const client = await connect(t, weir.address);
  const slot = await client.slot(SLOTS, { ttlMs: 8_000 });
  // Without a snapshot the service forgets its slots.
  await weir.server.stop("SIGKILL");
  await weir.restart();
  await lost(slot);
  assert.equal(slot.lost.reason.code, "NOT_FOUND");
  await slot.release();
});

test("a slot is lost when it could not be extended in time", async (t) => {
  const { address, server } = await startWeir(t);
  const client = await connect(t, address, { retries: 0 });
  const begin = performance.now();
  const slot = await client.slot(SLOTS, { ttlMs: 500 });
  await server.freeze();
  await lost(slot);
  assert.ok(performance.now() - begin >= 500 * (15 / 16), "not before it has ended");
});
