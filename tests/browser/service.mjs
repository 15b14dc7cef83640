// Services, Redis servers and browsers for the tests.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { chromium } from "playwright-core";

const WEIR = process.env.WEIR;
const CHROMIUM = process.env.CHROMIUM;

/** A service with its explorer, on free ports. */
export class Service {
  static async start(policy, { callers, env = {} } = {}) {
    const service = new Service();
    service.dir = mkdtempSync(join(tmpdir(), "weir-browser-"));
    mkdirSync(join(service.dir, "limits"));
    service.write("limits/policy.yaml", policy);
    const settings = {
      WEIR_GRPC__LISTEN: "127.0.0.1:0",
      WEIR_HTTP__LISTEN: "127.0.0.1:0",
      WEIR_HTTP__UI__ENABLED: "true",
      WEIR_LOG__FORMAT: "json",
      WEIR_LIMITS_POLL: "50ms",
      WEIR_SHUTDOWN__DELAY: "0s",
      WEIR_LIMITS: join(service.dir, "limits"),
      ...env,
    };
    if (callers) settings.WEIR_AUTH__FILE = service.write("callers.yaml", callers);
    service.child = spawn(WEIR, ["serve"], { env: settings, stdio: ["ignore", "ignore", "pipe"] });
    for await (const line of createInterface({ input: service.child.stderr })) {
      const told = JSON.parse(line);
      if (told.message === "serving") {
        service.url = `http://${told.http}`;
        service.grpc = told.grpc;
        service.child.stderr.resume();
        return service;
      }
    }
    throw new Error("the service does not start");
  }

  write(name, text) {
    const path = join(this.dir, name);
    writeFileSync(path, text);
    return path;
  }

  async post(path, body, token) {
    const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
    return fetch(this.url + path, { method: "POST", headers, body: JSON.stringify(body) });
  }

  /** The status of a check. */
  async check(key, more = {}, token = undefined) {
    return (await this.post("/v1/check", { key, ...more }, token)).status;
  }

  async stop() {
    await end(this.child, "SIGTERM");
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A Redis server on a free port, which may be stopped and started again. */
export class Redis {
  static async start() {
    const redis = new Redis();
    redis.dir = mkdtempSync(join(tmpdir(), "weir-browser-redis-"));
    redis.port = await new Promise((found) => {
      const server = createServer().listen(0, "127.0.0.1", () => {
        const { port } = server.address();
        server.close(() => found(port));
      });
    });
    await redis.resume();
    return redis;
  }

  get address() {
    return `127.0.0.1:${this.port}`;
  }

  async resume() {
    const args = ["--bind", "127.0.0.1", "--port", this.port, "--save", "", "--dir", this.dir];
    this.child = spawn("redis-server", args, { stdio: "ignore" });
    await until("Redis answers", () => new Promise((answered) => {
      const socket = connect(this.port, "127.0.0.1", () => socket.end(() => answered(true)));
      socket.on("error", () => answered(false));
    }));
  }

  async stop() {
    await end(this.child, "SIGKILL");
  }

  async remove() {
    await this.stop();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Ends a process, if it has not ended. */
async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((done) => child.once("exit", done));
  child.kill(signal);
  await ended;
}

/** A token with these roles, and its lines for the credentials file. */
export function caller(name, roles) {
  const { token, sha256 } = JSON.parse(execFileSync(WEIR, ["token", name, "--json"], { env: {} }));
  return { token, lines: `  ${name}: { roles: [${roles}], tokens: [{ sha256: ${sha256} }] }\n` };
}

/** A foreign host name, which the browser resolves to this machine. */
export const REBOUND = "rebound.example";

/** A browser for the tests of one file. */
export async function browser() {
  const args = ["--no-sandbox", "--disable-gpu", `--host-resolver-rules=MAP ${REBOUND} 127.0.0.1`];
  const launched = await chromium.launch({ executablePath: CHROMIUM, args });
  after(() => launched.close());
  return launched;
}

/** A browser, and a service with this policy, for the tests of one file. */
export async function browserAndService(policy, options) {
  const launched = await browser();
  const service = await Service.start(policy, options);
  after(() => service.stop());
  return { chromium: launched, service };
}

/** A page of the explorer, and what it has done that it must not. `place` is the URL's fragment, `prepare` runs before it loads. */
export async function open(browser, service, { place = "", prepare = () => {}, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, timezoneId: "UTC", ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(`${service.url}/`) && !request.url().startsWith("data:"))
      wrong.push(`asked ${request.url()}`);
  });
  // The browser logs an intended refusal as well; errors of scripts and of the Content-Security-Policy are not intended.
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !message.text().startsWith("Failed to load resource"))
      wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(error.stack));
  await prepare(page);
  const response = await page.goto(`${service.url}/ui${place}`);
  assert.equal(response.status(), 200);
  return { page, context, wrong, response };
}

/** Waits until `look` gives something true. */
export async function until(what, look, patience = 30_000) {
  for (const end = Date.now() + patience; ;) {
    const seen = await look();
    if (seen) return seen;
    assert.ok(Date.now() < end, `not in time: ${what}`);
    await new Promise((later) => setTimeout(later, 50));
  }
}

/** Waits until the text of an element matches. */
export const shows = (page, selector, pattern) =>
  until(`${selector} shows ${pattern}`, async () => pattern.test(await page.locator(selector).innerText()));

/** Goes to a view by its link. */
export const view = (page, name) => page.click(`nav a[data-view=${name}]`);

/** Inspects a key as a user does. */
export async function inspect(page, key) {
  await view(page, "keys");
  await page.fill("#key", key);
  await page.click("#look button");
}

/** Saves a screenshot where the drill wants them. */
export async function picture(page, name, options = { fullPage: true }) {
  if (!process.env.DRILL_SCREENSHOTS) return;
  await page.evaluate(() => document.activeElement.matches("dialog *") || document.activeElement.blur());
  await page.screenshot({ path: join(process.env.DRILL_SCREENSHOTS, `explorer-${name}.png`), ...options });
}
