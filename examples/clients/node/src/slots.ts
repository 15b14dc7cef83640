// A function of which only so many run at the same time: a slot is held around it, and extended while it runs.
import { credentials, loadPackageDefinition, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { Duration__Output } from "./weir/google/protobuf/Duration.js";
import type { ReserveRequest } from "./weir/weir/v1/ReserveRequest.js";
import type { ReserveResponse__Output } from "./weir/weir/v1/ReserveResponse.js";
import type { ProtoGrpcType } from "./weir/weir.js";

const proto = new URL("../../../../proto/weir/v1/weir.proto", import.meta.url).pathname;
const { weir } = loadPackageDefinition(loadSync(proto, { longs: Number, defaults: true })) as unknown as ProtoGrpcType;
const client = new weir.v1.RateLimiter(process.env.WEIR_ADDR ?? "127.0.0.1:8081", credentials.createInsecure());
const soon = () => ({ deadline: Date.now() + 10_000 });
const reserve = (request: ReserveRequest) =>
  new Promise<ReserveResponse__Output>((resolve, reject) =>
    client.Reserve(request, soon(), (error, answer) => (answer ? resolve(answer) : reject(error))),
  );
const commit = (hold: string) =>
  new Promise<void>((resolve, reject) =>
    client.Commit({ hold }, soon(), (error) => (error ? reject(error) : resolve())),
  );

class AllTaken extends Error {}

const milliseconds = (time?: Duration__Output | null) => Number(time?.seconds ?? 0) * 1_000 + (time?.nanos ?? 0) / 1_000_000;

/**
 * Runs `work` with a slot of a concurrency limit. Should this process die, the slot is free after the limit's ttl. The signal tells
 * when the slot is lost.
 */
async function slot<T>(key: string[], work: (lost: AbortSignal) => Promise<T>): Promise<T> {
  const { decision, hold, expiresAfter } = await reserve({ check: { key } });
  if (!decision?.allowed) throw new AllTaken(key.join("/"));
  const lost = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  // A third: an answer may be lost, and the next one is in time.
  const extendAfter = (third: number) => {
    timer = setTimeout(() => {
      client.Extend({ hold }, { deadline: Date.now() + third }, (error, held) => {
        if (!timer) return;
        if (error?.code === status.NOT_FOUND) lost.abort();
        else extendAfter(held ? milliseconds(held.expiresAfter) / 3 : third);
      });
    }, third);
  };
  extendAfter(milliseconds(expiresAfter) / 3);
  try {
    return await work(lost.signal);
  } finally {
    clearTimeout(timer);
    timer = undefined;
    await commit(hold).catch((error) => console.warn("the slot is free after its ttl:", error.message));
  }
}

const exports = ["exports", "alex"];
await slot(exports, async () => {
  console.log("exporting");
  await slot(exports, async () => console.log("two at the same time")).catch((error) => {
    if (!(error instanceof AllTaken)) throw error;
    console.log("another one has to wait");
  });
});
await slot(exports, async () => console.log("exporting again"));
client.close();
