// A function of which only so many run at the same time: a slot is held around it, and extended while it runs.
import { credentials, loadPackageDefinition } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
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

/** Runs `work` with a slot of a concurrency limit. Should this process die, the slot is free after the limit's ttl. */
async function slot<T>(key: string[], work: () => Promise<T>): Promise<T> {
  const { decision, hold, expiresAfter } = await reserve({ check: { key } });
  if (!decision?.allowed) throw new AllTaken(key.join("/"));
  const milliseconds = Number(expiresAfter?.seconds ?? 0) * 1_000 + (expiresAfter?.nanos ?? 0) / 1_000_000;
  // Without an answer the next one may have it.
  const extend = setInterval(() => client.Extend({ hold }, soon(), () => {}), milliseconds / 2);
  try {
    return await work();
  } finally {
    clearInterval(extend);
    await commit(hold);
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
