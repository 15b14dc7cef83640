import { Server, ServerCredentials, type sendUnaryData } from "@grpc/grpc-js";
import { atEnd, type Scope } from "./process.js";

/** A server that has the call Check alone, for what Weir does not do at will. Returns its address. */
export async function startStandIn(t: Scope, check: (reply: sendUnaryData<Buffer>) => void): Promise<string> {
  const server = new Server();
  const raw = { path: "/weir.v1.RateLimiter/Check", requestStream: false, responseStream: false } as const;
  const same = (bytes: Buffer) => bytes;
  server.addService(
    { check: { ...raw, requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same } },
    { check: (_: unknown, reply: sendUnaryData<Buffer>) => check(reply) },
  );
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => (error ? reject(error) : resolve(port))),
  );
  atEnd(t, () => server.forceShutdown());
  return `127.0.0.1:${port}`;
}
