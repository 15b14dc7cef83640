// A cost that is known afterwards: reserves an estimate for a call of a language model, and settles by what it used.
import { credentials, loadPackageDefinition } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { CommitRequest } from "./weir/weir/v1/CommitRequest.js";
import type { CommitResponse__Output } from "./weir/weir/v1/CommitResponse.js";
import type { ReserveRequest } from "./weir/weir/v1/ReserveRequest.js";
import type { ReserveResponse__Output } from "./weir/weir/v1/ReserveResponse.js";
import type { ProtoGrpcType } from "./weir/weir.js";

const estimate = 10;

/** Stands for the model: its answer, and the tokens that it took. */
async function complete(prompt: string) {
  return { answer: prompt.toUpperCase(), used: 4 };
}

const proto = new URL("../../../../proto/weir/v1/weir.proto", import.meta.url).pathname;
const { weir } = loadPackageDefinition(loadSync(proto, { longs: Number, defaults: true })) as unknown as ProtoGrpcType;
const client = new weir.v1.RateLimiter(process.env.WEIR_ADDR ?? "127.0.0.1:8081", credentials.createInsecure());
const soon = () => ({ deadline: Date.now() + 10_000 });
const reserve = (request: ReserveRequest) =>
  new Promise<ReserveResponse__Output>((resolve, reject) =>
    client.Reserve(request, soon(), (error, answer) => (answer ? resolve(answer) : reject(error))),
  );
const commit = (request: CommitRequest) =>
  new Promise<CommitResponse__Output>((resolve, reject) =>
    client.Commit(request, soon(), (error, answer) => (answer ? resolve(answer) : reject(error))),
  );

// The ttl is longer than any call takes. A reservation that nobody settles counts as spent then.
const { decision, hold } = await reserve({ check: { key: ["user", "alex"], cost: estimate }, ttl: { seconds: 120 } });
if (!decision?.allowed) throw new Error("refused");
const { used } = await complete("hello").catch((failed) => {
  client.Cancel({ hold }, soon(), () => {});
  throw failed;
});
// Idempotent: repeat it where the answer is lost.
const { charged, refunded, overage } = await commit({ hold, actual: used });
console.log(`used ${charged} of ${estimate} reserved, ${refunded} given back, ${overage} over`);
client.close();
