// Services and browsers for the tests.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const WEIR = process.env.WEIR;
const CHROMIUM = process.env.CHROMIUM;

/** A service with its explorer, on free ports. */
export class Service {
  static async start(policy, { callers } = {}) {
    const service = new Service();
    service.dir = mkdtempSync(join(tmpdir(), "weir-browser-"));
    service.write("limits.yaml", policy);
    const settings = {
      WEIR_GRPC__LISTEN: "127.0.0.1:0",
      WEIR_HTTP__LISTEN: "127.0.0.1:0",
      WEIR_HTTP__UI__ENABLED: "true",
      WEIR_LOG__FORMAT: "json",
      WEIR_LIMITS_POLL: "50ms",
      WEIR_SHUTDOWN__DELAY: "0s",
      WEIR_LIMITS: join(service.dir, "limits.yaml"),
    };
    if (callers) settings.WEIR_AUTH__FILE = service.write("callers.yaml", callers);
    service.child = spawn(WEIR, ["serve"], { env: settings, stdio: ["ignore", "ignore", "pipe"] });
    for await (const line of createInterface({ input: service.child.stderr })) {
      const told = JSON.parse(line);
      if (told.message === "serving") {
        service.url = `http://${told.http}`;
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
    const ended = this.child.exitCode === null && new Promise((end) => this.child.once("exit", end));
    this.child.kill("SIGTERM");
    await ended;
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A token with these roles, and its lines for the file of callers. */
export function caller(name, roles) {
  const { token, sha256 } = JSON.parse(execFileSync(WEIR, ["token", name, "--json"], { env: {} }));
  return { token, lines: `  ${name}: { roles: [${roles}], tokens: [{ sha256: ${sha256} }] }\n` };
}

/** A name of somebody else's, which the browser is told leads to this machine. */
export const REBOUND = "rebound.example";

export function browser() {
  const args = ["--no-sandbox", "--disable-gpu", `--host-resolver-rules=MAP ${REBOUND} 127.0.0.1`];
  return chromium.launch({ executablePath: CHROMIUM, args });
}

/** A page of the explorer, and what it has done that it must not. */
export async function open(browser, service, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 1000 }, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(`${service.url}/`) && !request.url().startsWith("data:"))
      wrong.push(`asked ${request.url()}`);
  });
  // A refusal that the service means is told by the browser as well; scripts and policies that fail are not meant.
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !message.text().startsWith("Failed to load resource"))
      wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(error.stack));
  const response = await page.goto(`${service.url}/ui`);
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

export async function picture(page, name) {
  if (process.env.DRILL_SCREENSHOTS)
    await page.screenshot({ path: join(process.env.DRILL_SCREENSHOTS, `${name}.png`), fullPage: true });
}
