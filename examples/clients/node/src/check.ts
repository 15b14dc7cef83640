// The smallest call: may alex trade?
import { credentials, loadPackageDefinition } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { ProtoGrpcType } from "./weir/weir.js";

const proto = new URL("../../../../proto/weir/v1/weir.proto", import.meta.url).pathname;
const { weir } = loadPackageDefinition(loadSync(proto, { longs: Number, defaults: true })) as unknown as ProtoGrpcType;
const client = new weir.v1.RateLimiter(process.env.WEIR_ADDR ?? "127.0.0.1:8081", credentials.createInsecure());
client.Check({ key: ["user", "alex", "trade"] }, { deadline: Date.now() + 10_000 }, (error, answer) => {
  if (!answer) throw error;
  const { seconds, nanos } = answer.retryAfter ?? { seconds: 0, nanos: 0 };
  if (answer.allowed) console.log(`allowed, ${answer.remaining} of ${answer.limit} left`);
  else console.log(`refused, retry after ${(seconds + nanos / 1e9).toFixed(3)} s`);
});
