import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { Client, type ClientOptions } from "weir-client";
import { atEnd, scratch, Server, type Scope } from "./process.js";

/** The binary under test. */
export const BINARY = process.env.WEIR_BINARY ?? resolve("../../target/debug/weir");

/** Limits that are refilled too slowly to matter during a test. */
export const POLICY = `
schema:
  user:
    children:
      "*":
        limits: [{ gcra: { burst: 99, count: 1, period: 1d }, name: per-user }]
        children: { trade: { limits: [{ gcra: { burst: 2, count: 1, period: 1d }, name: 'trades "fair"' }] } }
  many: { limits: [{ fixed_window: { count: 1000000, period: 30d }, name: many }] }
  slots: { children: { "*": { limits: [{ concurrency: { max: 1, ttl: 10s }, name: at-once }] } } }
`;

/** A running service, with its gRPC address. */
export interface Weir {
  readonly address: string;
  readonly server: Server;
  /** Returns the number of checks that it has answered over a transport: `grpc`, `grpc_stream`. */
  checks(transport: string): Promise<number>;
  /** Returns the number of streams that it has rejected because of `grpc.max_open_streams`. */
  rejectedStreams(): Promise<number>;
  /** Starts the same service again, at the same address. */
  restart(): Promise<Weir>;
}

/**
 * Starts a service, on a free port unless `env` sets one. The policy is written to the file `limits`, unless it is null: then the
 * file exists.
 */
export async function startWeir(
  t: Scope,
  env: NodeJS.ProcessEnv = {},
  policy: string | null = POLICY,
  limits = join(scratch(t), "limits.yaml"),
): Promise<Weir> {
  if (policy !== null) writeFileSync(limits, policy);
  const settings = {
    WEIR_GRPC__LISTEN: "127.0.0.1:0",
    WEIR_HTTP__LISTEN: "127.0.0.1:0",
    WEIR_LOG__FORMAT: "json",
    WEIR_SHUTDOWN__DELAY: "1ms",
    ...env,
  };
  const [server, { grpc: address, http }] = await Server.start([BINARY, "serve", "--limits", limits], settings, servingAt);
  atEnd(t, () => server.stop("SIGKILL"));
  return {
    address,
    server,
    checks: (transport) => sum(http, "weir_checks_total{", `transport="${transport}"`),
    rejectedStreams: () => sum(http, "weir_requests_rejected_total{", 'listener="grpc",reason="open"'),
    restart: () => startWeir(t, { ...env, WEIR_GRPC__LISTEN: address }, policy),
  };
}

function servingAt(line: string): { grpc: string; http: string } | undefined {
  return line.includes('"message":"serving"') ? (JSON.parse(line) as { grpc: string; http: string }) : undefined;
}

/** Returns the sum of a metric over its samples with a label. */
async function sum(http: string, name: string, label: string): Promise<number> {
  const metrics = await (await fetch(`http://${http}/metrics`)).text();
  const samples = metrics.split("\n").filter((line) => line.startsWith(name) && line.includes(label));
  return samples.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

/** Checks until the service has accepted the stream of a coalescing client, and answers over it. */
export async function streaming(client: Client, ...replicas: readonly Weir[]): Promise<void> {
  const streamed = async () => (await Promise.all(replicas.map((replica) => replica.checks("grpc_stream")))).reduce((sum, n) => sum + n);
  const before = await streamed();
  while ((await streamed()) === before) await client.check(["many"], { cost: 0, deadlineMs: 10_000 });
}

/** Starts two replicas with one Redis. Resolves with them, and the target of a client that balances over them. */
export async function startReplicas(t: Scope, policy = POLICY): Promise<{ replicas: [Weir, Weir]; target: string }> {
  const socket = join(scratch(t), "redis.sock");
  const arguments_ = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", ""] as const;
  const [redis] = await Server.start(arguments_, {}, (line) => line.includes("eady to accept connections") || undefined);
  atEnd(t, () => redis.stop("SIGKILL"));
  const env = { WEIR_STORE__URL: `redis+unix://${socket}` };
  const replicas: [Weir, Weir] = [await startWeir(t, env, policy), await startWeir(t, env, policy)];
  return { replicas, target: `ipv4:${replicas.map(({ address }) => address).join(",")}` };
}

/** Connects a client with a deadline long enough for a busy machine. */
export async function connect(t: Scope, target: string, options: ClientOptions = {}): Promise<Client> {
  const client = new Client(target, { deadlineMs: 10_000, ...options });
  atEnd(t, () => client.close());
  await client.ready(20_000);
  return client;
}
