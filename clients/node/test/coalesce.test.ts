import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { Metadata, status } from "@grpc/grpc-js";
import { WeirError, type CheckOptions, type Client, type Decision, type Key } from "weir-client";
import { setTimeout as sleep } from "node:timers/promises";
import { startStandIn } from "./support/stand-in.js";
import { connect, startReplicas, startWeir, streaming } from "./support/weir.js";

/** A CheckResponse. */
const ALLOWED = Buffer.from([0x08, 1]);
const CHECKS: [Key, CheckOptions][] = [
  [["user", "alex", "trade"], { levels: true }],
  [["user", "alex", "trade"], { cost: 2 }],
  [["user", "alex", "trade"], {}],
  [["user", "alex", "trade"], { cost: 9, dryRun: true }],
  [["user", "berta", "trade"], { cost: 0 }],
  [["own"], { limits: [{ fixedWindow: { count: 1, periodMs: 86_400_000 } }], levels: true }],
  [[], {}],
  [["user"], { domain: "unknown" }],
  [["slots", "alex"], {}],
];

/** Returns the parts of a result that do not depend on the time. */
function essence(result: Decision | WeirError): unknown {
  // On a stream NOT_FOUND has a field too; the status of a call has one only with INVALID_ARGUMENT.
  if (result instanceof WeirError) return [result.code, result.code === "INVALID_ARGUMENT" && result.field];
  const { allowed, limit, remaining, never, source, levels, binding } = result;
  return { allowed, limit, remaining, never, source, names: levels.map(({ name }) => name), binding: binding?.name };
}

async function results(client: Client): Promise<unknown[]> {
  // Concurrently: on a stream the service decides them in this order.
  const pending = CHECKS.map(([key, options]) => client.check(key, options).catch((error: WeirError) => error));
  return (await Promise.all(pending)).map(essence);
}

async function inOrder(client: Client): Promise<unknown[]> {
  const found = [];
  for (const [key, options] of CHECKS) found.push(essence(await client.check(key, options).catch((error: WeirError) => error)));
  return found;
}

test("checks over the stream are answered as calls are", async (t) => {
  const weir = await startWeir(t);
  const coalescing = await connect(t, weir.address, { coalesce: true });
  await streaming(coalescing, weir);
  const unary = await weir.checks("grpc");
  const calling = await connect(t, (await startWeir(t)).address);
  assert.deepEqual(await results(coalescing), await inOrder(calling));
  assert.equal(await weir.checks("grpc"), unary);
});

test("checks of a stream that the service rejects are calls of their own, and the stream is tried again", async (t) => {
  const weir = await startWeir(t, { WEIR_GRPC__MAX_OPEN_STREAMS: "1" });
  const other = await connect(t, weir.address, { coalesce: true });
  await streaming(other, weir);
  const [streamed, unary] = [await weir.checks("grpc_stream"), await weir.checks("grpc")];
  const client = await connect(t, weir.address, { coalesce: true, retries: 0, breaker: { failures: 1 } });
  const started = performance.now();
  for (let i = 0; i < 20; i++) {
    assert.ok((await Promise.all([1, 2, 3].map(() => client.check(["many"])))).every(({ allowed }) => allowed));
    await sleep(1);
  }
  assert.deepEqual([await weir.checks("grpc_stream"), await weir.checks("grpc")], [streamed, unary + 60]);
  assert.ok((await weir.rejectedStreams()) <= 1 + (performance.now() - started) / 1_000, "it is asked for once a second at most");
  await other.close();
  await streaming(client, weir);
  assert.equal(client.breakerState, "closed");
});

test("more checks than the stream takes are calls of their own", async (t) => {
  const weir = await startWeir(t);
  const client = await connect(t, weir.address, { coalesce: { maxInFlight: 4 } });
  await streaming(client, weir);
  const [streamed, unary] = [await weir.checks("grpc_stream"), await weir.checks("grpc")];
  const decisions = await Promise.all(Array.from({ length: 50 }, () => client.check(["many"])));
  assert.equal(new Set(decisions.map(({ remaining }) => remaining)).size, 50);
  assert.deepEqual([await weir.checks("grpc_stream"), await weir.checks("grpc")], [streamed + 4, unary + 46]);
});

test("a check on the stream has its own deadline, and a late answer is not that of another check", async (t) => {
  const service = await startWeir(t);
  const { address, server } = service;
  const weir = await connect(t, address, { coalesce: true, breaker: false });
  await streaming(weir, service);
  await server.freeze();
  const late = weir.check(["user", "alex", "trade"], { deadlineMs: 50 });
  const patient = weir.check(["user", "berta", "trade"], { cost: 0 });
  await assert.rejects(late, { code: "DEADLINE_EXCEEDED" });
  server.thaw();
  assert.equal((await patient).remaining, 3);
});

test("a stream that breaks is opened again", async (t) => {
  let weir = await startWeir(t);
  const client = await connect(t, weir.address, { coalesce: true, deadlineMs: 20_000 });
  for (let i = 0; i < 3; i++) {
    assert.ok((await client.check(["many"])).allowed);
    await weir.server.stop(i % 2 ? "SIGKILL" : "SIGTERM");
    const waiting = Promise.all(Array.from({ length: 20 }, () => client.check(["many"])));
    weir = await weir.restart();
    await waiting;
  }
});

test("the status of a stream that the service had accepted is not the answer to its check", async (t) => {
  let streamed = 0;
  const address = await startStandIn(t, (reply) => reply(null, ALLOWED), {
    CheckStream: (stream) => {
      stream.sendMetadata(new Metadata());
      stream.once("data", () => {
        streamed += 1;
        stream.emit("error", { code: status.UNAUTHENTICATED, details: "the token is not valid any more" });
      });
    },
  });
  const client = await connect(t, address, { coalesce: true });
  while (streamed === 0) assert.equal((await client.check(["many"])).allowed, true);
});

test("a check on the stream of a client that closes fails", async (t) => {
  const received = new EventEmitter();
  const address = await startStandIn(t, (reply) => reply(null, ALLOWED), {
    CheckStream: (stream) => {
      stream.sendMetadata(new Metadata());
      stream.once("data", () => received.emit("check"));
    },
  });
  const client = await connect(t, address, { coalesce: true });
  received.once("check", () => void client.close());
  await assert.rejects(
    (async () => {
      for (;;) await client.check(["many"]);
    })(),
    { code: "CANCELLED", message: "the client is closed" },
  );
});

test("a stream that does not answer is replaced by one to another replica", async (t) => {
  const { replicas, target } = await startReplicas(t);
  const client = await connect(t, target, { coalesce: true, breaker: false, retries: 0, deadlineMs: 400 });
  await streaming(client, ...replicas);
  const [first] = await Promise.all(replicas.map((replica) => replica.checks("grpc_stream")));
  const [served, other] = first ? replicas : ([replicas[1], replicas[0]] as const);
  await served.server.freeze();
  const before = await other.checks("grpc_stream");
  while ((await other.checks("grpc_stream")) === before) {
    await client.check(["many"]).catch((error: WeirError) => assert.ok(error.isOutage, error.message));
  }
});
