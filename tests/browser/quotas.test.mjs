// What the page shows of Envoy's quotas, with streams that report as Envoy's client does.

import assert from "node:assert/strict";
import { connect } from "node:http2";
import { test } from "node:test";
import { Service, browser, open, picture, shows, until } from "./service.mjs";

const POLICY = `
domain: api
schema: { user: { children: { alex: { limits: [{ token_bucket: { capacity: 1000, count: 1000, period: 1s } }] } } } }
`;
const STREAM = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/** A field of a protobuf message: a number, a text, or a message of its fields. */
function field(number, value) {
  if (typeof value === "number") return Buffer.concat([varint(number << 3), varint(value)]);
  const bytes = Array.isArray(value) ? Buffer.concat(value) : Buffer.from(value);
  return Buffer.concat([varint((number << 3) | 2), varint(bytes.length), bytes]);
}

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

/** A report of a user's bucket: hits allowed and denied in so many seconds. */
function report(user, allowed, denied, seconds) {
  const bucket = field(1, [field(1, [field(1, "user"), field(2, user)])]);
  const usage = [bucket, field(2, [field(1, seconds)]), field(3, allowed), field(4, denied)];
  const message = Buffer.concat([field(1, "api"), field(2, usage)]);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** An Envoy, as far as the service can tell. */
class Envoy {
  constructor(address) {
    this.session = connect(`http://${address}`);
    const headers = { ":method": "POST", ":path": STREAM, "content-type": "application/grpc", te: "trailers" };
    this.stream = this.session.request(headers);
    this.stream.resume();
  }

  report(...usage) {
    this.stream.write(report(...usage));
  }

  close() {
    this.session.destroy();
  }
}

test("buckets show what each Envoy is assigned, uses and is denied", async () => {
  const service = await Service.start(POLICY, { env: { WEIR_RLQS__DOMAINS: "api=user" } });
  const launched = await browser();
  const envoys = [new Envoy(service.grpc), new Envoy(service.grpc)];
  try {
    for (const envoy of envoys) envoy.report("alex", 1, 0, 0);
    const { page, context, wrong } = await open(launched, service, { place: "#/usage?domain=api" });
    await shows(page, "#quotas-read", /^2 streams of Envoys, 1 buckets?\./);
    const cells = (row) => page.locator(`#quota-rows tr:nth-child(${row}) td`).allInnerTexts();
    await until("what is used and denied", async () => {
      envoys[0].report("alex", 400, 200, 1);
      envoys[1].report("alex", 50, 0, 1);
      await page.reload();
      await shows(page, "#quotas-read", /^2 streams/);
      return Number((await cells(1))[3]?.replaceAll(/[^0-9.]/g, "")) > 0;
    });
    assert.match((await cells(1))[0], /^user=alex\s+1,000\/s, 2 streams$/);
    assert.equal(await page.locator("#quota-rows tr").count(), 3);
    const addresses = [(await cells(2))[0], (await cells(3))[0]];
    for (const address of addresses) assert.match(address, /^127\.0\.0\.1:\d+$/);
    await picture(page, "quotas");
    envoys[1].close();
    await until("an Envoy that is gone", async () => {
      await page.reload();
      await shows(page, "#quotas-read", /^1 stream/);
      return /gone; its share is free when it is over/.test(await page.locator("#quota-rows").innerText());
    });
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    for (const envoy of envoys) envoy.close();
    await service.stop();
  }
});

test("a domain that is not divided has no such section", async () => {
  const service = await Service.start("schema: { user: { children: { '*': { limits: [1, 1, 60] } } } }");
  const launched = await browser();
  try {
    const { page, context, wrong } = await open(launched, service, { place: "#/usage" });
    const asked = () => performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("ui/api/quotas")).length > 1;
    // The second answer is asked for once the first one has been shown.
    await until("the service has answered twice", () => page.evaluate(asked));
    assert.equal(await page.locator("#usage").isVisible(), true);
    assert.equal(await page.locator("#quotas").isVisible(), false);
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    await service.stop();
  }
});
