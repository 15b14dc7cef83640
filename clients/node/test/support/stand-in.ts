import { Server, ServerCredentials, type sendUnaryData, type ServerDuplexStream, type ServerUnaryCall } from "@grpc/grpc-js";
import { atEnd, type Scope } from "./process.js";

/** Starts a server with Check, and optionally Lease, for behaviour that Weir does not show at will. Resolves with its address. */
export async function startStandIn(
  t: Scope,
  check: (reply: sendUnaryData<Buffer>, call: ServerUnaryCall<Buffer, Buffer>) => void,
  lease?: (stream: ServerDuplexStream<Buffer, Buffer>) => void,
): Promise<string> {
  const server = new Server();
  const same = (bytes: Buffer) => bytes;
  const raw = { requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same };
  server.addService(
    { check: { ...raw, path: "/weir.v1.RateLimiter/Check", requestStream: false, responseStream: false } },
    { check: (call: ServerUnaryCall<Buffer, Buffer>, reply: sendUnaryData<Buffer>) => check(reply, call) },
  );
  if (lease) {
    server.addService({ lease: { ...raw, path: "/weir.v1.RateLimiter/Lease", requestStream: true, responseStream: true } }, { lease });
  }
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => (error ? reject(error) : resolve(port))),
  );
  atEnd(t, () => server.forceShutdown());
  return `127.0.0.1:${port}`;
}
