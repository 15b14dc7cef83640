// Weir cannot be made to shed load at will, so this server always does, with the details that Weir sends.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Metadata, status } from "@grpc/grpc-js";
import { startStandIn } from "./support/stand-in.js";
import { connect } from "./support/weir.js";

test("load shedding is an outage, is not retried, and says when to try again", async (t) => {
  let calls = 0;
  const address = await startStandIn(t, (reply) => {
    calls += 1;
    const metadata = new Metadata();
    metadata.set("grpc-status-details-bin", shed());
    reply({ code: status.RESOURCE_EXHAUSTED, details: "too many calls", metadata });
  });
  const weir = await connect(t, address);
  await assert.rejects(weir.check(["user", "alex"]), { code: "RESOURCE_EXHAUSTED", isOutage: true, retryAfterMs: 1_500 });
  assert.equal(calls, 1);
});

/** Returns a google.rpc.Status with a RetryInfo of 1.5 s. */
function shed(): Buffer {
  const retryInfo = field(1, Buffer.from([0x08, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]));
  const any = Buffer.concat([field(1, Buffer.from("type.googleapis.com/google.rpc.RetryInfo")), field(2, retryInfo)]);
  return Buffer.concat([Buffer.from([0x08, status.RESOURCE_EXHAUSTED]), field(3, any)]);
}

function field(number: number, bytes: Buffer): Buffer {
  return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
}
