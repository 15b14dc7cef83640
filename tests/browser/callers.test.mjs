// A service with authentication.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Service, browserAndService, caller, inspect, open, shows, until, view } from "./service.mjs";

const POLICY =
  "schema: { user: { children: { '*': { limits: [{ gcra: { burst: 1, count: 1, period: 1h }, name: per-user }] } } } }";

const names = { all: "check, reset, metrics", reads: "check, metrics", metrics: "metrics", checks: "check" };
const callers = Object.fromEntries(Object.entries(names).map(([name, roles]) => [name, caller(name, roles)]));
const lines = Object.values(callers).map((one) => one.lines);
const { chromium, service } = await browserAndService(POLICY, { callers: `callers:\n${lines.join("")}` });

async function signedIn(name) {
  const opened = await open(chromium, service);
  await opened.page.locator("#sign-in[open]").waitFor();
  await opened.page.fill("#token", callers[name].token);
  await opened.page.click("#token-form button");
  await until("the dialog closes", async () => !(await opened.page.locator("#sign-in").isVisible()));
  return opened;
}

const text = (page, selector) => page.locator(selector).textContent();

test("nothing is shown without a valid token, and the token is stored nowhere", async () => {
  const { page, context, wrong } = await open(chromium, service);
  await page.locator("#sign-in[open]").waitFor();
  assert.equal(await page.locator("#tree li").count(), 0);
  await page.fill("#token", "weir_wrong");
  await page.click("#token-form button");
  await until("why not", async () => (await text(page, "#sign-in-why")).includes("is unknown"));
  await page.fill("#token", callers.all.token);
  await page.click("#token-form button");
  await until("the policy", async () => /per-user/.test(await text(page, "#tree")));
  const kept = await page.evaluate(() =>
    [
      localStorage.length,
      sessionStorage.length,
      document.cookie,
      location.href,
      document.documentElement.outerHTML,
    ].join(),
  );
  assert.ok(kept.startsWith("0,0,,") && !kept.includes(callers.all.token), "in no storage, cookie, address or element");
  assert.deepEqual(await context.cookies(), []);
  await page.reload();
  await page.locator("#sign-in[open]").waitFor();
  assert.deepEqual(wrong, []);
  await context.close();
});

test("a client with all roles sees a refusal and resets the key", async () => {
  const { page, context, wrong } = await signedIn("all");
  assert.equal(await service.check(["user", "mia"], { cost: 2 }, callers.checks.token), 200);
  await view(page, "keys");
  await page.locator("#near a", { hasText: "user/mia" }).click();
  await until("refused", async () => /refused by per-user/.test(await text(page, "#verdict")));
  await page.click("#reset");
  await page.click("#sure-yes");
  await until("reset", async () => /is allowed\.$/.test(await text(page, "#verdict")));
  await shows(page, "#reset-done", /^user\/mia is reset\.$/);
  assert.deepEqual(wrong, []);
  await page.click("#forget");
  await page.locator("#sign-in[open]").waitFor();
  await context.close();
});

test("a client without the role cannot reset, whatever the page does", async () => {
  const { page, context, wrong } = await signedIn("reads");
  await inspect(page, "user/noa");
  await until("its state", async () => /is allowed\.$/.test(await text(page, "#verdict")));
  assert.equal(await page.locator("#resets").isVisible(), false);
  assert.match(await text(page, "#no-reset"), /requires the role reset/);
  assert.deepEqual(wrong, []);
  assert.equal((await service.post("/v1/reset", { key: ["user", "noa"] }, callers.reads.token)).status, 403);
  await page.evaluate(() => {
    document.getElementById("resets").hidden = false;
  });
  await page.click("#reset");
  await page.click("#sure-yes");
  await until("the service's own no", async () => /the role `reset` is required/.test(await text(page, "#verdict")));
  await context.close();
});

test("parts that a client has no role for are closed, and name the role", async () => {
  const reader = await signedIn("metrics");
  await until("the policy", async () => /per-user/.test(await text(reader.page, "#tree")));
  assert.match(await text(reader.page, "#state"), /This requires the role “check”/);
  assert.equal(await reader.page.isDisabled("#key"), true);
  assert.deepEqual(reader.wrong, []);
  await reader.context.close();

  const checker = await signedIn("checks");
  await until("what it takes", async () => /This requires the role “metrics”/.test(await text(checker.page, "#policy")));
  assert.equal(await checker.page.locator("#tree li").count(), 0);
  await inspect(checker.page, "user/ole");
  await until("its state", async () => /^A cost of 1 is allowed\.$/.test(await text(checker.page, "#verdict")));
  assert.equal(await service.check(["user", "ole"], { cost: 2 }, callers.checks.token), 200);
  await until("its state again", async () => /is refused/.test(await text(checker.page, "#verdict")));
  assert.deepEqual(checker.wrong, []);
  await checker.context.close();
});

test("the page asks again after a token is revoked", async () => {
  const [kept, gone] = [caller("kept", "check, metrics"), caller("gone", "check, metrics")];
  const own = await Service.start(POLICY, { callers: `callers:\n${kept.lines}${gone.lines}` });
  try {
    const { page, context } = await open(chromium, own);
    await page.locator("#sign-in[open]").waitFor();
    await page.fill("#token", gone.token);
    await page.click("#token-form button");
    await until("the policy", async () => /per-user/.test(await text(page, "#tree")));
    own.write("callers.yaml", `callers:\n${kept.lines}`);
    await page.locator("#sign-in[open]").waitFor();
    await page.fill("#token", kept.token);
    await page.click("#token-form button");
    await until("live again", async () => /^live/.test(await text(page, "#status")));
    await context.close();
  } finally {
    await own.stop();
  }
});
