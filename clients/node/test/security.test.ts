import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Client, WeirError } from "weir-client";
import { Authority } from "./support/certificates.js";
import { scratch } from "./support/process.js";
import { connect, startWeir } from "./support/weir.js";
import type * as TokenModule from "../node_modules/weir-client/dist/token.js";

// Not exported by the package.
const TOKEN = new URL("../../node_modules/weir-client/dist/token.js", import.meta.url).href;
const { credentialsOf } = (await import(TOKEN)) as typeof TokenModule;

/** Writes a credentials file in which each of these tokens may check. */
function callers(directory: string, ...tokens: string[]): string {
  const path = join(directory, "callers.yaml");
  const hashes = tokens.map((token) => `{ sha256: ${createHash("sha256").update(token).digest("hex")} }`);
  writeFileSync(path, `callers: { shop: { roles: [check], tokens: [${hashes.join(", ")}] } }\n`);
  return path;
}

test("tokens authenticate, and roles permit", async (t) => {
  const directory = scratch(t);
  const { address } = await startWeir(t, { WEIR_AUTH__FILE: callers(directory, "secret") });
  const shop = await connect(t, address, { token: "secret" });
  assert.equal((await shop.check(["user", "alex"])).allowed, true);
  await assert.rejects(shop.reset(["user", "alex"]), { code: "PERMISSION_DENIED", isOutage: false });
  const stranger = await connect(t, address, { onFailure: "allow" });
  await assert.rejects(stranger.check(["user", "alex"]), { code: "UNAUTHENTICATED", isOutage: false });
});

for (const coalesce of [false, true]) {
  test(`a token file is read again when it changes: ${coalesce ? "over a stream" : "in calls"}`, async (t) => {
    const directory = scratch(t);
    const auth = callers(directory, "first", "second");
    const { address } = await startWeir(t, { WEIR_AUTH__FILE: auth, WEIR_LIMITS_POLL: "20ms" });
    const tokenFile = join(directory, "token");
    writeFileSync(tokenFile, "first\n");
    const weir = await connect(t, address, { tokenFile, coalesce });
    assert.equal((await weir.check(["many"])).allowed, true);
    writeFileSync(tokenFile, "second\n");
    callers(directory, "second");
    // The service revokes the first token, and within a second the client reads the second one.
    const revoked = await connect(t, address, { token: "first" });
    while (await isAuthenticated(revoked));
    const begin = performance.now();
    while (!(await isAuthenticated(weir))) assert.ok(performance.now() - begin < 5_000, "the second token is not used");
    for (let i = 0; i < 10; i++) await weir.check(["many"]);
  });
}

async function isAuthenticated(weir: Client): Promise<boolean> {
  try {
    return (await weir.check(["many"])).allowed;
  } catch (error) {
    if (error instanceof WeirError && error.code === "UNAUTHENTICATED") return false;
    throw error;
  }
}

test("a token or a token file that cannot be used is told at once", () => {
  assert.throws(() => new Client("127.0.0.1:1", { token: "a", tokenFile: "b" }), TypeError);
  assert.throws(() => new Client("127.0.0.1:1", { token: " " }), TypeError);
  assert.throws(() => new Client("127.0.0.1:1", { tokenFile: "/nowhere/token" }), { code: "ENOENT" });
});

test("a token file without a token is logged once, and the last token stays in use", (t) => {
  let nowMs = 0;
  t.mock.method(performance, "now", () => nowMs);
  const [tokenFile, lines] = [join(scratch(t), "token"), [] as string[]];
  const write = (content: string) => (rmSync(tokenFile, { force: true }), writeFileSync(tokenFile, content));
  const logger = { warn: (line: string) => void lines.push(line), error: assert.fail };
  write("first\n");
  const credentials = credentialsOf({ tokenFile }, logger);
  /** Returns the metadata of a call a second later. */
  const sent = () => ((nowMs += 1_000), credentials.metadata().get("authorization")[0]);
  const cannotBeUsed = `the token file ${tokenFile} cannot be used, the last token stays in use: `;
  for (const content of ["", " \n", "secret\nsecret", "sëcret", null]) {
    lines.length = 0;
    if (content === null) rmSync(tokenFile);
    else write(content);
    assert.deepEqual([sent(), sent()], ["Bearer first", "Bearer first"]);
    assert.equal(lines.length, 1, String(content));
    assert.ok(lines[0]?.startsWith(cannotBeUsed) && !/s.cret/.test(lines[0]), lines[0]);
    write("first\n");
    assert.equal(sent(), "Bearer first");
  }
  write("second\n");
  assert.equal(sent(), "Bearer second");
  assert.equal(lines.length, 1);
});

test("TLS and mutual TLS", async (t) => {
  const directory = scratch(t);
  const authority = new Authority(directory, "ca");
  const server = authority.sign("server", "IP:127.0.0.1,DNS:localhost");
  const shop = authority.sign("shop", "DNS:shop.example");
  const settings = { WEIR_GRPC__TLS__CERT: server.cert, WEIR_GRPC__TLS__KEY: server.key };
  const { ca } = authority;

  const encrypted = await startWeir(t, settings);
  assert.equal((await (await connect(t, encrypted.address, { tls: { ca } })).check(["user", "alex"])).allowed, true);
  const untrusting = new Client(encrypted.address, { tls: true, breaker: false });
  t.after(() => untrusting.close());
  await assert.rejects(untrusting.ready(300), { code: "UNAVAILABLE" });

  const mutual = await startWeir(t, { ...settings, WEIR_GRPC__TLS__CLIENT_CA: ca });
  assert.equal((await (await connect(t, mutual.address, { tls: { ca, ...shop } })).check(["user", "alex"])).allowed, true);
  const nameless = new Client(mutual.address, { tls: { ca }, deadlineMs: 500, breaker: false });
  t.after(() => nameless.close());
  await assert.rejects(nameless.check(["user", "alex"]), { code: "UNAVAILABLE" });
});
