import { Server, ServerCredentials, type sendUnaryData, type ServerDuplexStream, type ServerUnaryCall } from "@grpc/grpc-js";
import { atEnd, type Scope } from "./process.js";

type Streams = { [Method in "CheckStream" | "Lease"]?: (stream: ServerDuplexStream<Buffer, Buffer>) => void };

/** Starts a server with Check, and any of the streams, for behaviour that Weir does not show at will. Resolves with its address. */
export async function startStandIn(
  t: Scope,
  check: (reply: sendUnaryData<Buffer>, call: ServerUnaryCall<Buffer, Buffer>) => void,
  streams: Streams = {},
): Promise<string> {
  const server = new Server();
  const same = (bytes: Buffer) => bytes;
  const raw = { requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same };
  server.addService(
    { check: { ...raw, path: "/weir.v1.RateLimiter/Check", requestStream: false, responseStream: false } },
    { check: (call: ServerUnaryCall<Buffer, Buffer>, reply: sendUnaryData<Buffer>) => check(reply, call) },
  );
  for (const [method, serve] of Object.entries(streams)) {
    const path = `/weir.v1.RateLimiter/${method}`;
    server.addService({ [method]: { ...raw, path, requestStream: true, responseStream: true } }, { [method]: serve });
  }
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => (error ? reject(error) : resolve(port))),
  );
  atEnd(t, () => server.forceShutdown());
  return `127.0.0.1:${port}`;
}
