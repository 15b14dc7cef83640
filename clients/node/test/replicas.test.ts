import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client } from "weir-client";
import { connect, startReplicas, startWeir } from "./support/weir.js";

const LIMIT = 1_000_000;

/** Callers that check until they are stopped. */
class Load {
  calls = 0;
  #isOver = false;
  readonly #callers: Promise<void>[];

  constructor(client: Client, callers = 8) {
    this.#callers = Array.from({ length: callers }, () => this.#call(client));
  }

  async #call(client: Client): Promise<void> {
    while (!this.#isOver) {
      const { allowed } = await client.check(["many"]);
      assert.ok(allowed);
      this.calls += 1;
    }
  }

  /** Waits until that many more calls are answered. */
  async answered(calls: number): Promise<void> {
    const enough = this.calls + calls;
    const failed = Promise.all(this.#callers);
    while (this.calls < enough) await Promise.race([failed, new Promise(setImmediate)]);
  }

  /** Fails if a call has failed. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#callers);
  }
}

async function charged(client: Client): Promise<number> {
  return LIMIT - (await client.check(["many"], { cost: 0 })).remaining;
}

test("a frozen replica leaves the circuit breaker closed", async (t) => {
  const { replicas, target } = await startReplicas(t);
  const client = await connect(t, target);
  while ((await Promise.all(replicas.map((replica) => replica.checks("grpc")))).includes(0)) await client.check(["many"]);
  await replicas[0].server.freeze();
  const codes = new Set<string | undefined>();
  for (let i = 0; i < 3; i++) {
    const checks = Array.from({ length: 20 }, () => client.check(["many"], { deadlineMs: 1_000, onFailure: "deny" }));
    for (const { error } of await Promise.all(checks)) codes.add(error?.code);
  }
  assert.deepEqual(codes, new Set([undefined, "DEADLINE_EXCEEDED"]));
  assert.equal(client.breakerState, "closed");
});

for (const coalesce of [false, true]) {
  const how = coalesce ? "over a stream" : "in calls";

  test(`a replica that is killed fails no check, and each is charged once: ${how}`, async (t) => {
    const { replicas, target } = await startReplicas(t);
    const client = await connect(t, target, { coalesce });
    const load = new Load(client, 32);
    for (const index of [0, 1] as const) {
      await load.answered(200);
      await replicas[index].server.stop("SIGKILL");
      await load.answered(200);
      replicas[index] = await replicas[index].restart();
      await load.answered(200);
    }
    await load.stop();
    assert.equal(await charged(client), load.calls);
  });

  test(`a rolling restart fails no check: ${how}`, async (t) => {
    const { replicas, target } = await startReplicas(t);
    const client = await connect(t, target, { coalesce });
    const load = new Load(client);
    for (const index of [0, 1, 0, 1] as const) {
      await load.answered(200);
      await replicas[index].server.stop();
      replicas[index] = await replicas[index].restart();
    }
    await load.answered(200);
    await load.stop();
    assert.equal(await charged(client), load.calls);
  });
}

test("calls are balanced over all addresses", async (t) => {
  const { replicas, target } = await startReplicas(t);
  const client = await connect(t, target);
  // The second connection may be ready a moment after the first one.
  while ((await replicas[0].checks("grpc")) === 0 || (await replicas[1].checks("grpc")) === 0) await client.check(["many"]);
});

test("a restart of the only replica fails no check that can wait for it", async (t) => {
  let weir = await startWeir(t);
  const client = await connect(t, weir.address, { deadlineMs: 20_000 });
  const load = new Load(client);
  await load.answered(100);
  await weir.server.stop();
  weir = await weir.restart();
  await load.answered(100);
  await load.stop();
});
