import assert from "node:assert/strict";
import { execFileSync, type ExecFileSyncOptionsWithStringEncoding } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Metadata, status } from "@grpc/grpc-js";
import type { Client, Decision } from "weir-client";
import { scratch } from "./support/process.js";
import { startStandIn } from "./support/stand-in.js";
import { BINARY, connect, startReplicas, startWeir, streaming } from "./support/weir.js";

const LIMIT = 20_000;
const KEY = ["api", "alex"];
/** With a ttl longer than a busy machine suspends a test, so that units held do not expire. */
const POLICY = policy(LIMIT);

function policy(limit: number, lease = "{ ttl: 1m }"): string {
  return `
lease: ${lease}
schema:
  api: { children: { "*": { limits: [{ fixed_window: { count: ${limit}, period: 30d }, name: all }] } } }
  plain: { limits: [{ fixed_window: { count: ${limit}, period: 30d }, lease: false }] }
`;
}

/** Runs a program, and returns its output. */
function run(program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): string {
  const options: ExecFileSyncOptionsWithStringEncoding = { encoding: "utf8", timeout: 60_000, env: { ...process.env, ...env } };
  return execFileSync(process.execPath, [program, ...args], options);
}

/** The outcomes of checks. */
class Seen {
  readonly sources = { service: 0, lease: 0, fallback: 0 };
  allowed = 0;
  refusedByLease = 0;

  count({ allowed, source }: Decision): void {
    this.sources[source] += 1;
    if (allowed) this.allowed += 1;
    else if (source === "lease") this.refusedByLease += 1;
  }
}

/** Checks until it is enough, with I/O in between. */
async function spend(client: Client, seen: Seen, isEnough: (seen: Seen) => boolean, key = KEY): Promise<void> {
  while (!isEnough(seen)) {
    seen.count(await client.check(key, { onFailure: "deny" }));
    await new Promise(setImmediate);
  }
}

async function left(client: Client): Promise<number> {
  return (await client.check(KEY, { cost: 0 })).remaining;
}

/** Waits until all units are returned: the replicas return the units that they lease on their own. */
async function waitForLeft(client: Client, units: number): Promise<void> {
  while ((await left(client)) !== units) await sleep(10);
}

test("a key with a number is leased as the same key with its string", async (t) => {
  const { address } = await startWeir(t, {}, POLICY);
  const client = await connect(t, address, { lease: true });
  const keys = [["api", "7"], ["api", 7]] as [string[], string[]];
  const seen = new Seen();
  await spend(client, seen, ({ sources }) => sources.lease > 100, keys[0]);
  const { service } = seen.sources;
  await spend(client, seen, ({ sources }) => sources.lease > 500, keys[1]);
  assert.ok(seen.sources.service < service + 100, JSON.stringify(seen.sources));
  await client.close();
  const other = await connect(t, address);
  assert.equal((await other.check(keys[0], { cost: 0 })).remaining, LIMIT - seen.allowed);
});

test("a ban until the year 9999 refuses with a lease", async (t) => {
  const { address } = await startWeir(t, {}, POLICY);
  const client = await connect(t, address, { lease: true });
  await spend(client, new Seen(), ({ sources }) => sources.lease > 100);
  execFileSync(BINARY, ["ban", "--all-keys", "--reason", "a test", "--until", "9999-12-31T00:00:00Z", "--addr", address]);
  while ((await client.check(KEY)).allowed) await sleep(1);
  for (const key of [KEY, ["other"]]) {
    for (let i = 0; i < 50; i++) {
      const verdict = await client.guard(key);
      assert.equal(verdict.pass || verdict.status, 429);
      assert.ok(Number(verdict.headers["Retry-After"]) > 7_000 * 365 * 86_400);
    }
  }
});

test("two clients of two replicas lease a hot key, and are never over its limit", async (t) => {
  const { replicas, target } = await startReplicas(t, policy(LIMIT, "true"));
  const clients = [await connect(t, target, { lease: true }), await connect(t, target, { lease: true })];
  const seen = clients.map(() => new Seen());
  const isOver = ({ refusedByLease }: Seen): boolean => refusedByLease > 100;
  const over = Promise.all(clients.map((client, index) => spend(client, seen[index] as Seen, isOver)));
  while ((seen[0]?.allowed ?? 0) < LIMIT / 8) await sleep(5);
  await replicas[0].server.stop("SIGKILL");
  replicas[0] = await replicas[0].restart();
  await over;
  const allowed = seen.reduce((sum, one) => sum + one.allowed, 0);
  assert.ok(allowed <= LIMIT, `${allowed}`);
  // Units of a request that was lost with the replica may have expired.
  assert.ok(allowed > LIMIT * 0.8, `${allowed}`);
  for (const { sources } of seen) assert.ok(sources.lease > 10 * sources.service, JSON.stringify(sources));
});

test("a leased check is decided here, and a refused one says when to try again", async (t) => {
  const { address } = await startWeir(t, {}, POLICY);
  const client = await connect(t, address, { lease: true });
  const [seen, decisions] = [new Seen(), [] as Decision[]];
  while (decisions.length === 0 || decisions.at(-1)?.allowed || decisions.at(-1)?.source !== "lease") {
    const decision = await client.check(KEY, { cost: 3 });
    seen.count(decision);
    if (decision.source === "lease") decisions.push(decision);
    await new Promise(setImmediate);
  }
  assert.equal(seen.allowed, Math.floor(LIMIT / 3));
  const [first, refused] = [decisions[0], decisions.at(-1)];
  assert.deepEqual([first?.leased, first?.limit, first?.levels, first?.retryAfterMs], [true, 0, [], null]);
  assert.ok(first && first.remaining > 0);
  assert.equal(refused?.leased, true);
  assert.ok(refused.retryAfterMs && refused.retryAfterMs > 0);
  const verdict = await client.guard(KEY, { cost: 3 });
  if (verdict.decision?.source === "lease") {
    assert.ok(!verdict.pass);
    assert.deepEqual(Object.keys(verdict.headers), ["Retry-After", "Content-Type"]);
    assert.ok(Number(verdict.headers["Retry-After"]) >= 1);
  }
});

test("a refusal by a lease says when the service would allow the check", async (t) => {
  const slow = "slow: { limits: [{ gcra: { burst: 999, count: 1, period: 1d }, name: slow }] }";
  const client = await connect(t, (await startWeir(t, {}, `${POLICY}  ${slow}\n`)).address, { lease: true });
  let [isTold, byLease] = [false, 0];
  while (byLease < 100) {
    const { decision, headers, pass } = await client.guard(["slow"]);
    if (pass) isTold = false;
    else if (decision?.source === "service") isTold = true;
    else if (isTold) {
      // A unit refills once a day.
      assert.match(headers["Retry-After"] ?? "", /^8\d{4}$/);
      byLease += 1;
    }
    await new Promise(setImmediate);
  }
});

test("a killed service: what is held is spent on, and the outage is a failure of those that must ask", async (t) => {
  let weir = await startWeir(t, {}, POLICY);
  const client = await connect(t, weir.address, { lease: true, deadlineMs: 200, breaker: false });
  const seen = new Seen();
  await spend(client, seen, ({ sources }) => sources.lease > 100);
  await weir.server.stop("SIGKILL");
  assert.equal((await client.check(KEY)).source, "lease");
  await spend(client, seen, ({ sources }) => sources.fallback > 0);
  await assert.rejects(client.check(KEY), (error: { isOutage: boolean }) => error.isOutage);
  weir = await weir.restart();
  // The new service does not know the lease: the client starts another.
  const again = new Seen();
  await spend(client, again, ({ sources }) => sources.lease > 100);
});

test("a client that is closed gives everything back", async (t) => {
  const weir = await startWeir(t, {}, POLICY);
  const [client, other] = [await connect(t, weir.address, { lease: true }), await connect(t, weir.address)];
  const seen = new Seen();
  await spend(client, seen, ({ sources }) => sources.lease > 200);
  assert.ok((await left(other)) < LIMIT - seen.allowed, "nothing is held");
  await client.close();
  await assert.rejects(client.check(KEY), { code: "CANCELLED" });
  assert.equal(await left(other), LIMIT - seen.allowed);
});

test("a key that is not checked any more is given back, and a client that is not closed lets the process end", async (t) => {
  const weir = await startWeir(t, {}, policy(LIMIT, "{ ttl: 1s }"));
  const program = join(process.cwd(), "unclosed.mjs");
  writeFileSync(
    program,
    `import { Client } from "weir-client";
    const client = new Client(process.argv[2], { lease: true, deadlineMs: 10_000 });
    let [allowed, leased] = [0, 0];
    while (leased < 200) {
      const decision = await client.check(["api", "alex"]);
      allowed += 1;
      leased += decision.source === "lease";
      await new Promise(setImmediate);
    }
    console.log(allowed);`,
  );
  const allowed = Number(run(program, [weir.address]));
  await waitForLeft(await connect(t, weir.address), LIMIT - allowed);
});

test("a changed policy and a reset are seen within the ttl", async (t) => {
  const limits = join(scratch(t), "limits.yaml");
  const weir = await startWeir(t, { WEIR_LIMITS_POLL: "20ms" }, policy(LIMIT, "true"), limits);
  const client = await connect(t, weir.address, { lease: true });
  const seen = new Seen();
  await spend(client, seen, ({ sources }) => sources.lease > 100);
  assert.equal(await client.reset(KEY), true);
  await spend(client, seen, ({ sources }) => sources.lease > 200);
  writeFileSync(limits, policy(100, "true"));
  await spend(client, seen, ({ refusedByLease }) => refusedByLease > 0);
  writeFileSync(limits, policy(LIMIT, "false"));
  // The units held are spent first, or expire.
  for (let asked = 0; asked < 20; ) asked = (await client.check(KEY)).source === "service" ? asked + 1 : 0;
});

test("only checks that the policy decides are leased, and only where it says so", async (t) => {
  const weir = await startWeir(t, {}, POLICY);
  const client = await connect(t, weir.address, { lease: true });
  const own = { limits: [{ fixedWindow: { count: 9, periodMs: 1_000 } }] };
  for (const options of [own, { factor: 1 }, { dryRun: true }, { maxWaitMs: 1 }, { cost: 0 }, { cost: -1 }, { lease: false }]) {
    for (let i = 0; i < 20; i++) assert.equal((await client.check(["api", "b"], options)).source, "service");
  }
  assert.equal(await weir.checks("grpc_lease"), 0);
  for (let i = 0; i < 50; i++) assert.equal((await client.check(["plain"])).source, "service");
  await assert.rejects(client.check(["api", "b"], { cost: 1.5 }), { code: "INVALID_ARGUMENT" });
  await assert.rejects(client.check(["api", "b"], { domain: "unknown" }), { code: "NOT_FOUND" });
});

test("the examples", async (t) => {
  const { replicas, target } = await startReplicas(t, policy(LIMIT, "true"));
  assert.equal(run("build/examples/hot-key.js", [], { WEIR_ADDR: replicas[0].address }), "most are decided here\n");
  const lines = run("build/examples/leased.js", [target.replace("ipv4:", ""), "", KEY.join("/"), "1"]).trimEnd().split("\n");
  assert.ok(lines.length <= LIMIT, `${lines.length}`);
  for (const line of lines) assert.match(line, /^\d{16} \d{16}$/);
});

test("by one call only", async (t) => {
  const weir = await startWeir(t, {}, POLICY);
  const client = await connect(t, weir.address);
  for (let i = 0; i < 20; i++) assert.equal((await client.check(KEY)).source, "service");
  let decision = await client.check(KEY, { lease: true });
  while (decision.source !== "lease") decision = await client.check(KEY, { lease: true });
  assert.equal((await client.check(KEY)).source, "service");
});

test("a stream that does not answer is replaced", async (t) => {
  const weir = await startWeir(t, {}, POLICY);
  const client = await connect(t, weir.address, { lease: true, deadlineMs: 10_000, breaker: false });
  const seen = new Seen();
  await spend(client, seen, ({ sources }) => sources.lease > 100);
  await weir.server.freeze();
  // More units than the client holds.
  await assert.rejects(client.check(KEY, { cost: LIMIT / 2, deadlineMs: 100 }), { code: "DEADLINE_EXCEEDED" });
  weir.server.thaw();
  await spend(client, seen, ({ sources }) => sources.lease > 1_000);
});

test("a replica of a version without leases decides by ordinary checks", async (t) => {
  const allowed = Buffer.from([0x08, 1]);
  const client = await connect(t, await startStandIn(t, (reply) => reply(null, allowed)), { lease: true });
  for (let i = 0; i < 20; i++) assert.deepEqual((await client.check(KEY)).source, "service");
});

test("a check whose stream is rejected keeps its deadline", async (t) => {
  const [deadlineMs, rejectsAfterMs] = [5_000, 500];
  let [isRejected, leftMs] = [false, 0];
  const address = await startStandIn(
    t,
    (reply, call) => {
      leftMs = Number(call.getDeadline()) - Date.now();
      reply(null, Buffer.from([0x08, 1]));
    },
    {
      Lease: (stream) => {
        // The latency of a rejection over a long distance.
        setTimeout(() => {
          isRejected = true;
          stream.emit("error", { code: status.RESOURCE_EXHAUSTED, details: "too many streams" });
        }, rejectsAfterMs);
      },
    },
  );
  const client = await connect(t, address, { lease: true });
  while (!isRejected) assert.equal((await client.check(KEY, { deadlineMs })).source, "service");
  // gRPC sends rounded deadlines.
  assert.ok(leftMs < deadlineMs - rejectsAfterMs + 200, `${leftMs}`);
});

test("the status of a stream that the service had accepted is not the answer to its check", async (t) => {
  let streams = 0;
  const address = await startStandIn(t, (reply) => reply(null, Buffer.from([0x08, 1])), {
    Lease: (stream) => {
      streams += 1;
      stream.sendMetadata(new Metadata());
      // The decision of a LeaseResponse: allowed, with 7 remaining.
      const answer = () => stream.write(Buffer.from([0x1a, 4, 0x08, 1, 0x18, 7]));
      const end = () => stream.emit("error", { code: status.UNAUTHENTICATED, details: "the token is not valid any more" });
      stream.once("data", streams === 1 ? end : answer);
    },
  });
  const client = await connect(t, address, { lease: true, retries: 0 });
  let decision = await client.check(KEY);
  while (streams === 0) decision = await client.check(KEY);
  assert.deepEqual([decision.remaining, streams], [7, 2]);
});

test("while the service rejects the stream of leases, calls decide", async (t) => {
  const weir = await startWeir(t, { WEIR_GRPC__MAX_OPEN_STREAMS: "1" }, POLICY.replace("plain:", "many:"));
  const other = await connect(t, weir.address, { coalesce: true });
  await streaming(other, weir);
  const client = await connect(t, weir.address, { lease: true, retries: 0, breaker: { failures: 1 } });
  const keys = Array.from({ length: 20 }, (_, key) => ["api", `${key}`]);
  const started = performance.now();
  for (let i = 0; i < 10; i++) {
    for (const { allowed, source } of await Promise.all(keys.map((key) => client.check(key)))) {
      assert.deepEqual([allowed, source], [true, "service"]);
    }
  }
  assert.ok((await weir.rejectedStreams()) <= 1 + (performance.now() - started) / 1_000, "it is asked for once a second at most");
  for (const key of keys) assert.equal((await client.check(key, { cost: 0 })).remaining, LIMIT - 10);
  await other.close();
  await spend(client, new Seen(), ({ sources }) => sources.lease > 100);
  assert.equal(client.breakerState, "closed");
});

test("keys whose names look alike have leases of their own", async (t) => {
  const weir = await startWeir(t, {}, POLICY);
  const client = await connect(t, weir.address, { lease: true });
  const [one, other] = [new Seen(), new Seen()];
  await spend(client, one, ({ sources }) => sources.lease > 100, ["api", "a\0b", "c"]);
  await spend(client, other, ({ sources }) => sources.service > 100, ["api", "a", "b\0c"]);
  assert.equal(other.sources.lease, 0);
});
