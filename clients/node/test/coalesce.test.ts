import assert from "node:assert/strict";
import { test } from "node:test";
import { WeirError, type CheckOptions, type Client, type Decision, type Key } from "weir-client";
import { connect, startReplicas, startWeir } from "./support/weir.js";

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

/** What does not depend on the moment. */
function essence(result: Decision | WeirError): unknown {
  // On a stream NOT_FOUND names a field too; the status of a call has it only of invalid arguments.
  if (result instanceof WeirError) return [result.code, result.code === "INVALID_ARGUMENT" && result.field];
  const { allowed, limit, remaining, never, source, levels, binding } = result;
  return { allowed, limit, remaining, never, source, names: levels.map(({ name }) => name), binding: binding?.name };
}

async function results(client: Client): Promise<unknown[]> {
  // At once: the service decides them in this order on a stream.
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
  const calling = await connect(t, (await startWeir(t)).address);
  assert.deepEqual(await results(coalescing), await inOrder(calling));
  assert.ok((await weir.checks("grpc_stream")) > 0);
  assert.equal(await weir.checks("grpc"), 0);
});

test("more checks than the stream takes are calls of their own", async (t) => {
  const weir = await startWeir(t);
  const client = await connect(t, weir.address, { coalesce: { maxInFlight: 4 } });
  const decisions = await Promise.all(Array.from({ length: 50 }, () => client.check(["many"])));
  assert.equal(new Set(decisions.map(({ remaining }) => remaining)).size, 50);
  assert.deepEqual([await weir.checks("grpc_stream"), await weir.checks("grpc")], [4, 46]);
});

test("a check on the stream has its own deadline, and a late answer is not that of another check", async (t) => {
  const { address, server } = await startWeir(t);
  const weir = await connect(t, address, { coalesce: true, breaker: false });
  await weir.check(["user", "alex", "trade"]);
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

test("a stream that does not answer is replaced by one to another replica", async (t) => {
  const { replicas, target } = await startReplicas(t);
  const client = await connect(t, target, { coalesce: true, breaker: false, retries: 0, deadlineMs: 400 });
  await client.check(["many"], { deadlineMs: 10_000 });
  const [first] = await Promise.all(replicas.map((replica) => replica.checks("grpc_stream")));
  const [served, other] = first ? replicas : ([replicas[1], replicas[0]] as const);
  await served.server.freeze();
  const outcomes = [];
  // The connections take turns, so one of two new streams goes to the replica that answers.
  for (let i = 0; i < 6; i++) outcomes.push(await client.check(["many"]).then(() => "ok", (error: WeirError) => error.code));
  assert.equal(outcomes.at(-1), "ok", outcomes.join());
  assert.ok((await other.checks("grpc_stream")) > 0);
});
