import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import express, { type Request } from "express";
import { Client, type Logger } from "weir-client";
import { byAddress, byPrincipal, byRoute, rateLimit } from "weir-client/express";
import { shop as expressShop } from "../examples/express.js";
import { shop as fastifyShop } from "../examples/fastify.js";
import { connect, startWeir } from "./support/weir.js";

const NAME = '"trades \\"fair\\""';

class Lines implements Logger {
  readonly warnings: string[] = [];
  readonly errors: string[] = [];
  warn = (line: string) => void this.warnings.push(line);
  error = (line: string) => void this.errors.push(line);
}

test("a guard passes, refuses and says so in headers", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const key = ["user", "alex", "trade"];
  for (const left of [2, 1]) {
    const verdict = await weir.guard(key);
    assert.deepEqual([verdict.pass, verdict.headers], [true, { "RateLimit-Policy": `${NAME};q=3`, RateLimit: `${NAME};r=${left}` }]);
  }
  assert.match((await weir.guard(key)).headers["RateLimit"] ?? "", /;r=0;t=8\d{4}$/);
  const refused = await weir.guard(key);
  assert.ok(!refused.pass);
  assert.equal(refused.status, 429);
  assert.match(refused.headers["Retry-After"] ?? "", /^8\d{4}$/);
  assert.equal(refused.headers["Content-Type"], "application/problem+json");
  assert.deepEqual(JSON.parse(refused.body)["violated-policies"], ['trades "fair"']);
  assert.deepEqual((await weir.guard(["unlimited"])).headers, {});
});

test("a guard does not wait: limits that shape traffic refuse", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const limits = [{ leakyQueue: { count: 1, periodMs: 3_600_000, burst: 5 } }];
  // As JavaScript may call it.
  const options: Record<string, unknown> = { limits, maxWaitMs: 36_000_000 };
  assert.ok((await weir.guard(["queue"], options)).pass);
  const refused = await weir.guard(["queue"], options);
  assert.deepEqual([refused.pass, refused.headers["Retry-After"]], [false, "3600"]);
});

test("a guard repairs keys that would make the check invalid", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const remaining = async (segment: string) => (await weir.guard(["user", segment])).decision?.remaining;
  assert.deepEqual([await remaining(""), await remaining("-")], [99, 98]);
  const long = "é".repeat(512);
  assert.deepEqual([await remaining(`${long}é`), await remaining(`${long}🎈`), await remaining(long)], [99, 98, 97]);
  // The character that does not fit is dropped as a whole.
  assert.deepEqual([await remaining(`x${"é".repeat(600)}`), await remaining(`x${"é".repeat(511)}`)], [99, 98]);
  assert.deepEqual([await remaining("\ud800"), await remaining("\ufffd")], [99, 98]);
  // Only the first 32 segments count, and a key has at least one.
  assert.equal((await weir.guard(["user", "deep", ...Array<string>(40).fill("x")])).decision?.remaining, 99);
  assert.ok((await weir.guard([])).decision);
});

test("without a decision a guard passes or fails closed, and each kind of failure is logged once", async (t) => {
  const { address, server } = await startWeir(t);
  const logger = new Lines();
  const weir = await connect(t, address, { logger, deadlineMs: 100, breaker: false, retries: 0 });
  for (let i = 0; i < 2; i++) assert.deepEqual((await weir.guard(["user"], { domain: "unknown" })).pass, true);
  await server.stop();
  for (let i = 0; i < 2; i++) assert.deepEqual((await weir.guard(["user"])).headers, {});
  const closed = await weir.guard(["user"], { failClosed: true });
  assert.ok(!closed.pass);
  assert.deepEqual([closed.status, closed.headers["Retry-After"]], [503, "1"]);
  assert.match(logger.errors.join("\n"), /^WEIR IS SET UP WRONGLY, NO REQUEST IS CHECKED: NOT_FOUND .*$/);
  assert.match(logger.warnings.join("\n"), /^no answer from weir: UNAVAILABLE .*$/);

  const denying = new Client(address, { onFailure: "deny", logger });
  t.after(() => denying.close());
  assert.equal((await denying.guard(["user"])).pass, false);
  // As if an option were passed on: types may allow undefined.
  const unset = { failClosed: undefined } as object;
  assert.equal((await denying.guard(["user"], unset)).pass, false);
  assert.equal((await denying.guard(["user"], { failClosed: false })).pass, true);
});

/** Serves on a free port. Resolves with a function that requests a path as a user. */
async function serve(t: TestContext, listener: RequestListener): Promise<(path: string, user?: string, method?: string) => Promise<Response>> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close().closeAllConnections());
  const { port } = server.address() as AddressInfo;
  return (path, user = "alex", method = "GET") => fetch(`http://127.0.0.1:${port}${path}`, { method, headers: { "x-user": user } });
}

async function assertRefused(response: Response): Promise<void> {
  assert.equal(response.status, 429);
  assert.match(response.headers.get("ratelimit-policy") ?? "", /;q=3$/);
  assert.match(response.headers.get("ratelimit") ?? "", /;r=0;t=\d+$/);
  assert.match(response.headers.get("retry-after") ?? "", /^\d+$/);
  assert.match(response.headers.get("content-type") ?? "", /^application\/problem\+json/);
  assert.equal(((await response.json()) as { status: number }).status, 429);
}

test("Express", async (t) => {
  const { address, server } = await startWeir(t);
  const ask = await serve(t, expressShop(await connect(t, address, { retries: 0, logger: new Lines() })));
  for (const left of [2, 1, 0]) {
    const response = await ask("/trade");
    assert.equal(response.status, 200);
    assert.match(response.headers.get("ratelimit") ?? "", new RegExp(`;r=${left}`));
  }
  await assertRefused(await ask("/trade"));
  assert.equal((await ask("/trade", "berta")).status, 200);
  assert.equal((await ask("/health")).headers.get("ratelimit"), null);
  await server.stop();
  assert.equal((await ask("/trade")).status, 200);
  assert.equal((await ask("/login")).status, 503);
});

test("Express: keys by route, principal and address, and errors of keys", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const keys: (readonly string[])[] = [];
  const spy = { guard: (key: readonly string[]) => (keys.push(key), weir.guard(key)) };
  const app = express();
  const user = byPrincipal("user", (request: Request) => request.get("x-user"));
  app.use("/api", express.Router().get("/trades/:id", rateLimit(spy, byRoute(user)), (_, response) => void response.json({})));
  app.get("/address", rateLimit(spy, byAddress()), (_, response) => void response.json({}));
  app.get("/broken", rateLimit(spy, () => assert.fail("no key")), (_, response) => void response.json({}));
  app.use(((_error, _request, response, _next) => void response.status(500).end()) satisfies express.ErrorRequestHandler);
  const ask = await serve(t, app);
  for (const method of ["GET", "HEAD"]) await ask("/api/trades/7", "alex", method);
  await ask("/address");
  assert.equal((await ask("/broken")).status, 500);
  const route = ["user", "alex", "GET /trades/:id"];
  assert.deepEqual(keys, [route, route, ["address", "127.0.0.1"]], "HEAD is limited as GET");
});

test("Express: a route has one key, however the path of its router is spelled", async (t) => {
  const keys = new Set<string | undefined>();
  const spy = { guard: async (key: readonly string[]) => (keys.add(key.at(-1)), { pass: true, headers: {}, decision: null } as const) };
  const user = byPrincipal("user", (request: Request) => request.get("x-user"));
  const router = (prefix?: string) =>
    express.Router().get("/login", rateLimit(spy, byRoute(user, prefix)), (_, response) => void response.json({}));
  const app = express().use("/api", router("/api")).use("/tenants/:tenant", router());
  const ask = await serve(t, app);
  for (const path of ["/api/login", "/API/login", "/aPi/LOGIN", "/api/login/"]) assert.equal((await ask(path)).status, 200);
  assert.deepEqual([...keys], ["GET /api/login"]);
  keys.clear();
  for (const path of ["/tenants/acme/login", "/tenants/other/login"]) assert.equal((await ask(path)).status, 200);
  assert.deepEqual([...keys], ["GET /login"]);
});

test("node:http", async (t) => {
  const weir = await connect(t, (await startWeir(t)).address);
  const guard = rateLimit(weir, () => ["user", "alex", "trade"]);
  const ask = await serve(t, (request, response) => void guard(request, response, () => response.end("traded")));
  for (let i = 0; i < 3; i++) assert.equal(await (await ask("/")).text(), "traded");
  await assertRefused(await ask("/"));
});

test("Fastify", async (t) => {
  const policy = `
schema:
  user:
    children:
      "*": { children: { "GET /trades/:id": { limits: [{ gcra: { burst: 2, count: 1, period: 1d }, name: trades }] } } }
`;
  const { address, server } = await startWeir(t, {}, policy);
  const app = await fastifyShop(await connect(t, address, { retries: 0, logger: new Lines() }));
  t.after(() => app.close());
  await app.ready();
  const ask = await serve(t, app.routing);
  for (const id of [1, 2, 3]) {
    const response = await ask(`/trades/${id}`);
    assert.deepEqual(await response.json(), { traded: true });
    assert.match(response.headers.get("ratelimit") ?? "", new RegExp(`^"trades";r=${3 - id}`));
  }
  assert.equal((await ask("/trades/4", "alex", "HEAD")).status, 429, "HEAD is limited as GET");
  await assertRefused(await ask("/trades/4"));
  assert.equal((await ask("/trades/4", "berta")).status, 200);
  assert.equal((await ask("/health")).headers.get("ratelimit"), null, "the plugin guards only the part that registers it");
  await server.stop();
  assert.equal((await ask("/trades/4")).status, 200);
  assert.equal((await ask("/login")).status, 503);
});
