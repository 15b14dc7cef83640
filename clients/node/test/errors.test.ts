import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Metadata, status, type sendUnaryData } from "@grpc/grpc-js";
import { Client, WeirError, type Decision, type ErrorCode } from "weir-client";
import { startStandIn } from "./support/stand-in.js";
import { connect, POLICY, startWeir } from "./support/weir.js";

/** Returns the error of a call that must fail. */
async function failure(call: Promise<unknown>): Promise<WeirError> {
  const error: unknown = await call.then(
    () => assert.fail("it did not fail"),
    (error: unknown) => error,
  );
  assert.ok(error instanceof WeirError, String(error));
  return error;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

test("errors of the call are errors, whatever onFailure says, and name the field", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address, { onFailure: "allow" });
  const cases: [() => Promise<unknown>, ErrorCode, string | null][] = [
    [() => weir.check([]), "INVALID_ARGUMENT", "key"],
    [() => weir.check(["user"], { limits: [{ gcra: { periodMs: 1 } }] }), "INVALID_ARGUMENT", "limit_spec.limits[0].gcra.count"],
    [() => weir.check(["user"], { cost: 1.5 }), "INVALID_ARGUMENT", null],
    [() => weir.check(["user"], { maxWaitMs: NaN }), "INVALID_ARGUMENT", null],
    [() => weir.check(["user"], { domain: "unknown" }), "NOT_FOUND", null],
    [() => weir.check(["slots", "alex"]), "FAILED_PRECONDITION", null],
  ];
  for (const [call, code, field] of cases) {
    const error = await failure(call());
    assert.deepEqual([error.code, error.field, error.isOutage], [code, field, false], error.message);
    assert.notEqual(error.message, "");
  }
  assert.equal(weir.breakerState, "closed");
});

test("without a connection a check fails at once, or as onFailure decides", async (t) => {
  const target = `127.0.0.1:${await freePort()}`;
  const weir = new Client(target, { breaker: false, retries: 0 });
  t.after(() => weir.close());
  assert.equal((await failure(weir.ready(100))).code, "UNAVAILABLE");
  const error = await failure(weir.check(["user", "alex"]));
  assert.deepEqual([error.code, error.isOutage], ["UNAVAILABLE", true]);
  for (const onFailure of ["allow", "deny"] as const) {
    const decision = await weir.check(["user", "alex"], { onFailure });
    assert.deepEqual([decision.allowed, decision.source, decision.error?.code], [onFailure === "allow", "fallback", "UNAVAILABLE"]);
    const results = await weir.checkBatch([{ key: ["a"] }, { key: ["b"] }], { onFailure });
    assert.deepEqual(results.map((result) => "allowed" in result && result.allowed), Array(2).fill(onFailure === "allow"));
    const { allowed, decisions } = await weir.checkAll([{ key: ["a"] }, { key: ["b"] }], { onFailure });
    assert.deepEqual([allowed, decisions.length], [onFailure === "allow", 2]);
  }
  await assert.rejects(weir.reset(["user", "alex"]), { code: "UNAVAILABLE" });
});

test("the deadline ends a call that is not answered", async (t) => {
  const { address, server } = await startWeir(t);
  const weir = await connect(t, address, { onFailure: "deny", deadlineMs: 50 });
  await server.freeze();
  const begin = performance.now();
  const decision = await weir.check(["user", "alex"]);
  assert.deepEqual([decision.allowed, decision.error?.code], [false, "DEADLINE_EXCEEDED"]);
  assert.ok(performance.now() - begin >= 45);
  const later = performance.now();
  assert.equal((await failure(weir.check(["user", "alex"], { deadlineMs: 200, onFailure: "error" }))).code, "DEADLINE_EXCEEDED");
  assert.ok(performance.now() - later >= 195);
});

test("a retry that waits in vain tells why the first attempt failed", async (t) => {
  // Long enough for the first attempt to fail on a busy machine: the retry waits for a connection until the deadline.
  const weir = new Client(`127.0.0.1:${await freePort()}`, { deadlineMs: 3_000 });
  t.after(() => weir.close());
  await assert.rejects(weir.ready(100));
  assert.equal((await failure(weir.check(["user", "alex"]))).code, "UNAVAILABLE");
});

test("the circuit breaker opens, fails calls at once, and closes when the service answers again", async (t) => {
  const weir = await startWeir(t);
  const client = await connect(t, weir.address, { deadlineMs: 100, breaker: { failures: 3, openMs: 1_000 } });
  await weir.server.freeze();
  for (let i = 0; i < 3; i++) {
    assert.equal(client.breakerState, "closed");
    assert.equal((await failure(client.check(["user", "alex"]))).code, "DEADLINE_EXCEEDED");
  }
  assert.equal(client.breakerState, "open");
  const error = await failure(client.check(["user", "alex"]));
  assert.deepEqual([error.code, error.isOutage], ["CIRCUIT_OPEN", true]);
  assert.equal((await client.check(["user", "alex"], { onFailure: "allow" })).error?.code, "CIRCUIT_OPEN");

  await halfOpen(client);
  const [probe, other] = await Promise.all([failure(client.check(["user", "alex"])), failure(client.check(["user", "alex"]))]);
  assert.deepEqual([probe.code, other.code], ["DEADLINE_EXCEEDED", "CIRCUIT_OPEN"], "one probe at a time");
  assert.equal(client.breakerState, "open", "the probe found it down");

  weir.server.thaw();
  await halfOpen(client);
  await client.check(["user", "alex"], { deadlineMs: 10_000 });
  assert.equal(client.breakerState, "closed");
});

test("a deadline that is over before the call does not open the circuit breaker", async (t) => {
  const { address } = await startWeir(t, {}, `lease: true${POLICY}`);
  for (const options of [{}, { coalesce: true }, { lease: true }]) {
    const client = await connect(t, address, { ...options, breaker: { failures: 1 } });
    for (const deadlineMs of [0, -1, 0, -1, 0]) {
      assert.equal((await failure(client.check(["many"], { deadlineMs }))).code, "DEADLINE_EXCEEDED");
    }
    assert.equal(client.breakerState, "closed");
    assert.equal((await client.check(["many"])).source, "service");
  }
});

async function halfOpen(client: Client): Promise<void> {
  while (client.breakerState === "open") await new Promise(setImmediate);
}

test("a circuit breaker of zero failures never opens", async (t) => {
  const weir = await startWeir(t);
  const client = await connect(t, weir.address, { retries: 0, breaker: { failures: 0 } });
  assert.equal(client.breakerState, "closed");
  assert.ok((await client.check(["user", "alex"])).allowed);
  await weir.server.stop("SIGKILL");
  for (let i = 0; i < 20; i++) {
    assert.equal((await failure(client.check(["user", "alex"]))).code, "UNAVAILABLE");
    assert.equal(client.breakerState, "closed");
  }
});

test("a cancelled probe does not close the circuit breaker", async (t) => {
  const codes = [status.UNAVAILABLE, status.CANCELLED, status.NOT_FOUND];
  const address = await startStandIn(t, (reply) => reply({ code: codes.shift() ?? status.OK, details: "why" }));
  const client = await connect(t, address, { retries: 0, breaker: { failures: 1, openMs: 0 } });
  for (const [code, state] of [
    ["UNAVAILABLE", "half-open"],
    ["CANCELLED", "half-open"],
    ["NOT_FOUND", "closed"],
  ]) {
    assert.equal((await failure(client.check(["user", "alex"]))).code, code);
    assert.equal(client.breakerState, state, code);
  }
});

test("outages of calls that started before the last answer do not count", async (t) => {
  const replies: sendUnaryData<Buffer>[] = [];
  const address = await startStandIn(t, (reply) => void replies.push(reply));
  const client = await connect(t, address, { retries: 0, breaker: { failures: 2, openMs: 60_000 } });
  const received = async (calls: number) => {
    while (replies.length < calls) await new Promise(setImmediate);
    return replies.splice(0);
  };
  const together = Array.from({ length: 5 }, () => client.check(["user", "alex"]));
  const failures = together.slice(1).map(failure);
  const [first, ...others] = await received(5);
  first?.(null, Buffer.alloc(0));
  await Promise.any(together);
  for (const reply of others) reply({ code: status.UNAVAILABLE, details: "why" });
  await Promise.all(failures);
  assert.equal(client.breakerState, "closed");
  for (const state of ["closed", "open"]) {
    const failed = failure(client.check(["user", "alex"]));
    (await received(1))[0]?.({ code: status.UNAVAILABLE, details: "why" });
    await failed;
    assert.equal(client.breakerState, state);
  }
});

test("an answer frees the place of the probe", async (t) => {
  const replies: sendUnaryData<Buffer>[] = [];
  const address = await startStandIn(t, (reply) => void replies.push(reply));
  const client = await connect(t, address, { retries: 0, breaker: { failures: 1, openMs: 0 } });
  const calls: Promise<unknown>[] = [];
  /** Sends a call, and resolves with the function that ends it. */
  const sent = async () => {
    const call = client.check(["user", "alex"]).catch((error: unknown) => error);
    calls.push(call);
    while (replies.length < calls.length) {
      const ended = await Promise.race([call, new Promise<void>((resolve) => setImmediate(resolve))]);
      assert.equal(ended, undefined, "the call is not sent");
    }
    const reply = replies[calls.length - 1];
    return async (code: status) => {
      if (code === status.OK) reply?.(null, Buffer.alloc(0));
      else reply?.({ code, details: "why" });
      await call;
    };
  };
  const early = await sent();
  await (await sent())(status.UNAVAILABLE);
  const former = await sent();
  await early(status.OK);
  assert.equal(client.breakerState, "closed");
  await (await sent())(status.UNAVAILABLE);
  const probe = await sent();
  // It is not the place of this one any more.
  await former(status.CANCELLED);
  assert.equal((await failure(client.check(["user", "alex"]))).code, "CIRCUIT_OPEN");
  await probe(status.OK);
});

test("malformed details of an error are left out", async (t) => {
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", Buffer.from([0xff, 0xff]));
  const address = await startStandIn(t, (reply) => reply({ code: status.NOT_FOUND, details: "why", metadata }));
  const client = await connect(t, address);
  const { code, field, retryAfterMs } = await failure(client.check(["user", "alex"]));
  assert.deepEqual([code, field, retryAfterMs], ["NOT_FOUND", null, null]);
});

for (const deadlineMs of [2 ** 31, Infinity]) {
  test(`a deadline of ${deadlineMs} ms is a long one`, async (t) => {
    const { address } = await startWeir(t, {}, `lease: true${POLICY}`);
    for (const options of [{}, { coalesce: true }, { lease: true }]) {
      const client = await connect(t, address, { deadlineMs, ...options });
      await client.ready(deadlineMs);
      for (let i = 0; i < 20; i++) assert.ok((await client.check(["many"])).allowed);
      assert.ok((await client.check(["many"], { deadlineMs })).allowed);
      await client.withSlot(["slots", "alex"], {}, async () => {});
      await client.close();
    }
  });
}

test("a deadline that is not a number is an error, and the client goes on", async (t) => {
  const { address } = await startWeir(t, {}, `lease: true${POLICY}`);
  for (const options of [{}, { coalesce: true }, { lease: true }]) {
    const client = await connect(t, address, { ...options, breaker: { failures: 1 }, logger: { warn() {}, error() {} } });
    for (let i = 0; i < 10; i++) {
      assert.equal((await failure(client.check(["user", "alex"], { deadlineMs: NaN }))).code, "INVALID_ARGUMENT");
    }
    assert.equal((await client.guard(["user", "alex"], { deadlineMs: NaN })).pass, true);
    assert.equal((await failure(client.reserve(["user", "alex"], { deadlineMs: NaN }))).code, "INVALID_ARGUMENT");
    assert.equal((await failure(client.ready(NaN))).code, "INVALID_ARGUMENT");
    assert.equal(client.breakerState, "closed");
    assert.equal((await client.check(["user", "alex"])).allowed, true);
  }
  const none = Number(process.env.WEIR_NOT_SET);
  for (const options of [
    { deadlineMs: none },
    { retries: none },
    { breaker: { failures: none } },
    { breaker: { openMs: none } },
    { coalesce: { maxInFlight: none } },
  ]) {
    assert.throws(() => new Client(address, options), RangeError);
  }
});

test("a check of a batch that cannot be encoded has its error in its place", async (t) => {
  const { address, server } = await startWeir(t);
  const weir = await connect(t, address, { retries: 0 });
  const [good, bad] = [{ key: ["user", "alex"] }, { key: ["user", "alex"], cost: 1.5 }];
  const codes = (results: readonly (Decision | WeirError)[]) =>
    results.map((result) => (result instanceof WeirError ? result.code : result.source));
  assert.deepEqual(codes(await weir.checkBatch([bad, good, bad, good])), [
    "INVALID_ARGUMENT",
    "service",
    "INVALID_ARGUMENT",
    "service",
  ]);
  assert.deepEqual(codes(await weir.checkBatch([bad])), ["INVALID_ARGUMENT"]);
  await server.stop();
  assert.deepEqual(codes(await weir.checkBatch([bad, good], { onFailure: "allow" })), ["INVALID_ARGUMENT", "fallback"]);
  await assert.rejects(weir.checkBatch([bad, good]), { code: "UNAVAILABLE" });
});

test("outages are the same as in the packages of other languages", () => {
  const codes = [...Object.keys(status).filter((name) => Number.isNaN(Number(name))), "CIRCUIT_OPEN"] as ErrorCode[];
  const outages = codes.filter((code) => new WeirError(code, "why").isOutage).sort();
  assert.deepEqual(outages, ["CIRCUIT_OPEN", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNAVAILABLE"]);
});

test("a closed client says so", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  weir.close();
  assert.equal((await failure(weir.check(["user", "alex"]))).code, "CANCELLED");
  assert.equal((await failure(weir.ready())).code, "CANCELLED");
});

test("a call that is not answered before its client closes fails as one of a closed client", async (t) => {
  const replies: sendUnaryData<Buffer>[] = [];
  const address = await startStandIn(t, (reply) => void replies.push(reply));
  const warnings: string[] = [];
  const logger = { warn: (line: string) => void warnings.push(line), error: assert.fail };
  const client = await connect(t, address, { logger, onFailure: "deny" });
  const failed = failure(client.check(["user", "alex"]));
  const guarded = client.guard(["user", "alex"]);
  const answered = client.check(["user", "alex"]);
  while (replies.length < 3) await new Promise(setImmediate);
  await client.close();
  for (const reply of replies.splice(0, 2)) reply({ code: status.UNAVAILABLE, details: "the connection is lost" });
  replies[0]?.(null, Buffer.alloc(0));
  assert.equal((await failed).code, "CANCELLED");
  assert.equal((await guarded).pass, false);
  assert.match(warnings.join("\n"), /^no answer from weir: CANCELLED .*$/);
  assert.equal((await answered).source, "service");
});

test("a client that is closed while it waits for a connection says so", async () => {
  const weir = new Client("127.0.0.1:1");
  const waiting = failure(weir.ready(10_000));
  await sleep(50);
  await weir.close();
  assert.equal((await waiting).code, "CANCELLED");
});
