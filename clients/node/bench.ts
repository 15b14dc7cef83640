// Checks per second and latency, of one caller and of many: unary, coalesced and leased, compared with bare gRPC calls. The latency
// of a leased check is the time that it adds to the caller.
import { credentials, Client as GrpcClient } from "@grpc/grpc-js";
import { Client, type ClientOptions } from "weir-client";
import { startWeir } from "./test/support/weir.js";

const SECONDS = Number(process.env["BENCH_SECONDS"] ?? 5);
/** I/O happens after this many checks, as between the requests of a server, since leased checks do not wait for any. */
const CHECKS_AT_ONCE = 1_000;
const POLICY = 'lease: true\nschema: { user: { children: { "*": { limits: [{ gcra: { burst: 1000000000, count: 1000000, period: 1s } }] } } } }';
/** One key for all callers, so that it is hot enough for a lease. */
const KEY = ["user", "alex"];
const MODES: [string, ClientOptions][] = [
  ["unary", {}],
  ["unary, no retries", { retries: 0 }],
  ["coalesced", { coalesce: true }],
  ["coalesced, no retries", { coalesce: true, retries: 0 }],
  ["leased", { lease: true }],
];

type Check = (key: string[]) => Promise<unknown>;

const cleanups: (() => unknown)[] = [];
const { address } = await startWeir({ after: (cleanup) => void cleanups.push(() => (cleanup as () => unknown)()) }, {}, POLICY);
console.log("mode                   callers  checks/s   p50 us   p99 us");
for (const callers of [1, 64]) {
  const grpc = new GrpcClient(address, credentials.createInsecure());
  await measure("gRPC alone", callers, (key) => bareCall(grpc, key));
  grpc.close();
  for (const [mode, options] of MODES) {
    const weir = new Client(address, { deadlineMs: 30_000, ...options });
    await weir.ready();
    await measure(mode, callers, (key) => weir.check(key));
    await weir.close();
  }
}
for (const cleanup of cleanups.reverse()) await cleanup();

async function measure(mode: string, callers: number, check: Check): Promise<void> {
  await run(check, callers, 1);
  const latenciesUs = (await run(check, callers, SECONDS)).sort((a, b) => a - b);
  const rate = latenciesUs.length / SECONDS;
  const figures = [callers, rate, quantile(latenciesUs, 0.5), quantile(latenciesUs, 0.99)];
  const texts = figures.map((figure) => figure.toFixed(figure < 10 && figure !== callers ? 2 : 0).padStart(8));
  console.log(`${mode.padEnd(22)}${texts.join(" ")}`);
}

/** Returns the latencies, in microseconds, of callers that check one after the other. */
async function run(check: Check, callers: number, seconds: number): Promise<number[]> {
  const latenciesUs: number[] = [];
  const endMs = performance.now() + seconds * 1_000;
  const caller = async (): Promise<void> => {
    let startedMs = performance.now();
    for (let count = 1; startedMs < endMs; count++) {
      await check(KEY);
      const nowMs = performance.now();
      latenciesUs.push((nowMs - startedMs) * 1_000);
      if (count % Math.ceil(CHECKS_AT_ONCE / callers) === 0) await new Promise(setImmediate);
      startedMs = performance.now();
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return latenciesUs;
}

function quantile(sorted: readonly number[], part: number): number {
  return sorted[Math.floor(sorted.length * part)] ?? NaN;
}

/** Sends a CheckRequest with only a key, encoded by hand, and does not read the answer. */
function bareCall(grpc: GrpcClient, key: string[]): Promise<unknown> {
  const request = Buffer.concat(key.map((segment) => Buffer.concat([Buffer.from([0x12, segment.length]), Buffer.from(segment)])));
  const same = (bytes: Buffer) => bytes;
  return new Promise((resolve, reject) => {
    const options = { deadline: Date.now() + 30_000 };
    grpc.makeUnaryRequest("/weir.v1.RateLimiter/Check", same, same, request, options, (error, answer) =>
      error ? reject(error) : resolve(answer),
    );
  });
}
