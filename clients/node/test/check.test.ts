import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { WeirError, type Limit } from "weir-client";
import { scratch } from "./support/process.js";
import { BINARY, connect, POLICY, startWeir } from "./support/weir.js";

const DAY_MS = 86_400_000;

test("checks are allowed until the limit, and then refused with the time to wait", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const first = await weir.check(["user", "alex", "trade"], { levels: true });
  assert.equal(first.allowed, true);
  assert.equal(first.limit, 3);
  assert.equal(first.remaining, 2);
  assert.equal(first.retryAfterMs, null);
  assert.equal(first.source, "service");
  assert.equal(first.error, null);
  assert.equal(first.binding?.name, 'trades "fair"');
  assert.deepEqual(first.levels.map(({ name, depth }) => [name, depth]), [["per-user", 2], ['trades "fair"', 3]]);

  assert.equal((await weir.check(["user", "alex", "trade"], { cost: 2 })).remaining, 0);
  const refused = await weir.check(["user", "alex", "trade"]);
  assert.equal(refused.allowed, false);
  assert.equal(refused.never, false);
  assert.ok(refused.retryAfterMs && refused.retryAfterMs > 0.9 * DAY_MS && refused.retryAfterMs <= DAY_MS);
  assert.ok(refused.nextAfterMs && refused.nextAfterMs <= DAY_MS);
  assert.deepEqual(refused.levels, []);
  assert.equal(refused.binding, null);
  assert.equal((await weir.check(["user", "alex", "trade"], { cost: 4 })).never, true);
});

test("previews, dry runs and refunds", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const key = ["user", "alex", "trade"];
  assert.equal((await weir.check(key, { dryRun: true, cost: 3 })).remaining, 0);
  assert.equal((await weir.check(key, { cost: 0 })).remaining, 3);
  await weir.check(key, { cost: 2 });
  assert.equal((await weir.check(key, { cost: -1 })).remaining, 2);
  assert.equal((await weir.check(key, { factor: 0.1, cost: 0 })).limit, 21);
});

test("a request id is charged once", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const key = ["user", "alex", "trade"];
  for (let i = 0; i < 3; i++) {
    const { remaining, repeated } = await weir.check(key, { requestId: "mine" });
    assert.deepEqual([remaining, repeated], [2, i > 0]);
  }
  assert.equal((await weir.check(key)).remaining, 1, "the client's own ids differ");
});

test("limits of the caller's own, of every algorithm", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const limits: Limit[] = [
    { gcra: { burst: 9, count: 1, periodMs: DAY_MS } },
    { tokenBucket: { capacity: 11, count: 1, periodMs: DAY_MS } },
    { leakyBucket: { size: 12, dripSize: 1, dripRateMs: DAY_MS } },
    { leakyQueue: { count: 13, periodMs: DAY_MS, burst: 13, delay: 13, maxWaitMs: 1 } },
    { fixedWindow: { count: 14, calendar: "month", zone: "Europe/Berlin", anchor: "15", chargeDenied: true } },
    { slidingLog: { count: 15, periodMs: DAY_MS, minIntervalMs: 0.001 } },
    { slidingWindow: { count: 16, periodMs: DAY_MS } },
    { slidingBuckets: { count: 17, periodMs: DAY_MS, resolutionMs: DAY_MS / 10 } },
    { decay: { max: 18, resolutionMs: DAY_MS, decay: 2 } },
    { smoothBursty: { count: 1, periodMs: 1_000, maxBurstMs: 20_000, start: "full" } },
    { warmingUp: { count: 1, periodMs: 1_000, warmUpMs: 10_000, coldFactor: 3 } },
    { cycle: { count: 19, periodMs: DAY_MS } },
    { legacyBucket: { size: 20, dripSize: 1, dripRate: DAY_MS } },
    { concurrency: { max: 21, ttlMs: 1_000, check: "peek" } },
  ];
  for (const [rank, limit] of limits.entries()) {
    const name = Object.keys(limit)[0] ?? "";
    const { allowed, binding } = await weir.check(["own", `${rank}`], { limits: [{ ...limit, name, depth: 1 }], levels: true });
    assert.deepEqual([name, allowed, binding?.name], [name, true, name]);
  }
  const two: Limit[] = [{ gcra: { burst: 0, count: 1, periodMs: DAY_MS } }, { gcra: { burst: 9, count: 1, periodMs: DAY_MS } }];
  for (const charge of ["independent", "all-or-nothing"] as const) {
    const options = { limits: two, charge, levels: true };
    await weir.check([charge], options);
    const { levels } = await weir.check([charge], options);
    assert.equal(levels[1]?.remaining, charge === "independent" ? 8 : 9);
  }
});

test("segments of JavaScript that are not strings are the same as their string forms", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const id = { toString: () => "8" };
  // As JavaScript may call it.
  for (const [segment, text] of [[7, "7"], [10n ** 20n, "100000000000000000000"], [true, "true"], [id, "8"]] as unknown as [string, string][]) {
    const key = ["user", segment, "trade"];
    assert.equal((await weir.check(key)).remaining, 2);
    assert.equal((await weir.check(["user", text, "trade"])).remaining, 1);
    const verdict = await weir.guard(key);
    assert.equal(verdict.decision?.remaining, 0);
    assert.equal(await weir.reset(key), true);
  }
});

test("a key that is not an array of segments is an error", async (t) => {
  const { address } = await startWeir(t, {}, `lease: true${POLICY}`);
  const weir = await connect(t, address, { lease: true });
  const letters = ["u", "s", "e", "r"];
  for (let i = 0; i < 20; i++) await weir.check(letters);
  // As JavaScript may call it.
  const segments = [undefined, null, Symbol("alex"), Object.create(null)].map((segment) => ["user", segment]);
  for (const key of ["user", null, ["user", , 7], ...segments] as unknown as string[][]) {
    const calls = [weir.check(key), weir.checkBatch([{ key }]), weir.checkAll([{ key }]), weir.reserve(key), weir.reset(key)];
    const messages = new Set<string>();
    for (const { status, ...result } of await Promise.allSettled([...calls, weir.guard(key)])) {
      assert.ok(status === "rejected" && "reason" in result && result.reason instanceof TypeError, JSON.stringify([key, result]));
      messages.add(result.reason.message);
    }
    assert.equal(messages.size, 1, `the same error from every call: ${[...messages].join("; ")}`);
  }
});

test("a reset removes the state of a key", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  await weir.check(["user", "alex", "trade"], { cost: 3 });
  assert.equal(await weir.reset(["user", "alex"], { subtree: true }), true);
  assert.equal(await weir.reset(["user", "alex"], { subtree: true }), false);
  assert.equal((await weir.check(["user", "alex", "trade"])).remaining, 2);
  assert.equal(await weir.reset(["user"], { subtree: true }), true, "a key below has state");
});

test("a batch decides each check by itself, and has errors in their place", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const key = ["user", "alex", "trade"];
  const [first, invalid, refused, other] = await weir.checkBatch([{ key, cost: 3 }, { key: [] }, { key }, { key: ["user", "berta"] }]);
  assert.ok(invalid instanceof WeirError);
  assert.deepEqual([invalid.code, invalid.field, invalid.isOutage], ["INVALID_ARGUMENT", "key", false]);
  assert.deepEqual([first, refused, other].map((result) => result && "allowed" in result && result.allowed), [true, false, true]);
});

test("the largest batch with levels is answered", async (t) => {
  const limit = (_: unknown, i: number) => `{ gcra: { burst: 99999, count: 1, period: 1h }, name: ${i + 10}${"x".repeat(230)} }`;
  const limits = Array.from({ length: 16 }, limit).join(", ");
  const weir = await connect(t, (await startWeir(t, {}, `schema: { all: { limits: [${limits}] } }`)).address);
  const results = await weir.checkBatch(Array(1_000).fill({ key: ["all"], levels: true }));
  for (const result of results) assert.equal("levels" in result && result.levels.length, 16);
});

test("checks together are all charged or none", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const [alex, berta] = [["user", "alex", "trade"], ["user", "berta", "trade"]];
  const both = [{ key: alex, cost: 2 }, { key: berta, cost: 2 }];
  assert.equal((await weir.checkAll(both)).allowed, true);
  await weir.reset(alex);
  const refused = await weir.checkAll(both);
  assert.equal(refused.allowed, false);
  assert.deepEqual(refused.decisions.map(({ allowed }) => allowed), [true, false]);
  assert.equal((await weir.check(alex, { cost: 0 })).remaining, 3);
});

test("a decision names the ban that refused it", async (t) => {
  const { address } = await startWeir(t);
  const weir = await connect(t, address);
  const before = await weir.check(["user", "alex"]);
  assert.deepEqual([before.override, before.banReason], [null, null]);
  const options = ["--reason", "a test", "--addr", address, "--json"];
  const banned = execFileSync(BINARY, ["ban", "user/alex", ...options], { encoding: "utf8" });
  const { allowed, override, banReason, never } = await weir.check(["user", "alex"]);
  assert.deepEqual([allowed, banReason, never], [false, "a test", true]);
  assert.ok(override && banned.includes(override), banned);
});

test("a unix socket", async (t) => {
  const address = `unix:${scratch(t)}/weir.sock`;
  await startWeir(t, { WEIR_GRPC__LISTEN: address });
  const weir = await connect(t, address);
  assert.equal((await weir.check(["user", "alex"])).allowed, true);
});
