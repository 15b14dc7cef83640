// Load shedding cannot be brought about at will: a server that always sheds, with the details that Weir sends.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Metadata, Server, ServerCredentials, status } from "@grpc/grpc-js";
import { connect } from "./support/weir.js";

test("load shedding is an outage, is not retried, and says when to try again", async (t) => {
  const server = new Server();
  let calls = 0;
  const raw = { path: "/weir.v1.RateLimiter/Check", requestStream: false, responseStream: false } as const;
  const bytes = (value: Buffer) => value;
  server.addService(
    { check: { ...raw, requestSerialize: bytes, requestDeserialize: bytes, responseSerialize: bytes, responseDeserialize: bytes } },
    {
      check: (_: unknown, reply: (error: { code: status; details: string; metadata: Metadata }) => void) => {
        calls += 1;
        const metadata = new Metadata();
        metadata.set("grpc-status-details-bin", shed());
        reply({ code: status.RESOURCE_EXHAUSTED, details: "too many calls", metadata });
      },
    },
  );
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => (error ? reject(error) : resolve(port))),
  );
  t.after(() => server.forceShutdown());
  const weir = await connect(t, `127.0.0.1:${port}`);
  await assert.rejects(weir.check(["user", "alex"]), { code: "RESOURCE_EXHAUSTED", isOutage: true, retryAfterMs: 1_500 });
  assert.equal(calls, 1);
});

/** A google.rpc.Status with a RetryInfo of 1.5 s. */
function shed(): Buffer {
  const retryInfo = field(1, Buffer.from([0x08, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]));
  const any = Buffer.concat([field(1, Buffer.from("type.googleapis.com/google.rpc.RetryInfo")), field(2, retryInfo)]);
  return Buffer.concat([Buffer.from([0x08, status.RESOURCE_EXHAUSTED]), field(3, any)]);
}

function field(number: number, bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
}
