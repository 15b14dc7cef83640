// Overrides and bans by mouse.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Service, browserAndService, inspect, open, picture, shows, until, view } from "./service.mjs";

const POLICY =
  "schema: { user: { children: { '*': { limits: [{ fixed_window: { count: 10, period: 31d }, name: per-user }] } } } }";

const { chromium, service } = await browserAndService(POLICY);
const rows = (page, id) => page.locator(`#${id} tr`).count();

test("a key's limits are raised from its page, shown, and end", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/keys?key=user/ada" });
  await shows(page, "#verdict", /^A cost of 1 is allowed\.$/);
  await page.click("#override-this");
  await until("the key is proposed", async () => (await page.inputValue("#override-key")) === "user/ada");
  await page.fill("#override-reason", "a launch");
  await page.click("#override-try");
  await shows(page, "#override-done", /^Would set user\/ada: limits times 10\.$/);
  await shows(page, "#override-effects", /per-user: fixed_window { count: 10, period: 31d } → fixed_window { count: 100, period: 31d }/);
  assert.match(await page.locator("#override-rows").textContent(), /none in this domain/);
  await page.click("#override-do");
  await shows(page, "#override-done", /^Set user\/ada: limits times 10\.$/);
  await shows(page, "#override-rows", /user\/ada\s*limits times 10[^]*a launch \(127\.0\.0\.1\)/);
  await picture(page, "explorer-overrides");
  await page.click("#override-rows a");
  await shows(page, "#levels", /100 of 100/);
  await shows(page, "#verdict", /^A cost of 1 is allowed \(override [0-9a-f]{12}\)\.$/);
  await view(page, "overrides");
  await page.click("#override-rows button");
  await shows(page, "#override-done", /^The override of user\/ada has ended\.$/);
  await shows(page, "#override-rows", /none in this domain/);
  await until("both changes", async () => (await rows(page, "audit-rows")) === 2);
  await shows(page, "#audit-rows", /ended user\/ada: limits times 10; a launch/);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("a ban is set with its reason, which the key's page shows", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/overrides?key=user/eve" });
  await page.selectOption("#override-change", "ban");
  assert.equal(await page.locator("#override-value").isVisible(), false);
  await page.fill("#override-hours", "2");
  await page.fill("#override-reason", "<b>abuse</b>");
  await page.click("#override-do");
  await shows(page, "#override-done", /^Set user\/eve: banned\.$/);
  assert.equal(await service.check(["user", "eve"]), 429);
  await view(page, "keys");
  await inspect(page, "user/eve");
  await shows(page, "#verdict", /^Banned for 1 h 59 m: <b>abuse<\/b> \(override [0-9a-f]{12}\)\.$/);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("the form has the key whose page leads to it, whatever was typed before", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/overrides?key=user/ann" });
  await page.fill("#override-key", "user/bob");
  await view(page, "keys");
  await shows(page, "#verdict", /^A cost of 1 is allowed/);
  await page.click("#override-this");
  await until("the view", () => page.locator("#override-form").isVisible());
  assert.equal(await page.inputValue("#override-key"), "user/ann");
  await page.fill("#override-key", "user/bob");
  await new Promise((later) => setTimeout(later, 2500));
  assert.equal(await page.inputValue("#override-key"), "user/bob", "a poll changes nothing");
  assert.deepEqual(wrong, []);
  await context.close();
});

test("an empty key is every key of the domain only if that is checked, and not in another domain", async () => {
  const own = await Service.start(POLICY);
  try {
    own.write("limits/other.yaml", `domain: other\n${POLICY}\n`);
    const { page, context, wrong } = await open(chromium, own, { place: "#/overrides?key=user/kim" });
    await until("both domains", async () => (await page.locator("#domain option").count()) === 2);
    const set = async (pattern) => {
      await page.click("#override-do");
      await shows(page, "#override-done", pattern);
    };
    await page.selectOption("#override-change", "ban");
    await page.fill("#override-reason", "a test");
    await page.selectOption("#domain", "other");
    await until("the other domain", () => /domain=other/.test(page.url()));
    assert.equal(await page.inputValue("#override-key"), "user/kim", "what is typed stays");
    await page.fill("#override-key", "");
    await set(/^Type a key, or check “all keys of the domain”\.$/);
    assert.equal(await own.check(["user", "lea"], { domain: "other" }), 200);
    await page.check("#override-all");
    await page.selectOption("#domain", "");
    await shows(page, "#override-done", /^$/);
    assert.equal(await page.isChecked("#override-all"), false);
    await page.check("#override-all");
    await page.fill("#override-key", "user/kim");
    await set(/^Either a key or “all keys of the domain”, not both\.$/);
    await page.fill("#override-key", "");
    await set(/^Set all keys of the domain: banned\.$/);
    assert.equal(await own.check(["user", "lea"]), 429);
    assert.equal(await own.check(["user", "lea"], { domain: "other" }), 200);
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    await own.stop();
  }
});

test("a wrong value is named, and an override that changes nothing is said to", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/overrides?key=user/bob" });
  await page.fill("#override-reason", "a test");
  for (const value of ["", "0", "abc", "1,5", "-2"]) {
    await page.fill("#override-value", value);
    await page.click("#override-try");
    await shows(page, "#override-done", new RegExp(`^“${value}” is not a number above 0`));
  }
  await page.fill("#override-value", "1");
  await page.click("#override-try");
  await shows(page, "#override-effects", /^No limit of the policy is changed\.$/);
  await page.selectOption("#override-change", "ban");
  await page.fill("#override-key", "usr/x");
  await page.click("#override-try");
  await shows(page, "#override-effects", /^No limit of the policy is at the pattern or below;/);
  await page.fill("#override-key", "user/v*");
  await page.click("#override-try");
  await shows(page, "#override-effects", /“v\*” is not a wildcard: only a segment of just that text matches it\.$/);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("what the service refuses is told", async () => {
  const { page, context } = await open(chromium, service, { place: "#/overrides?key=user/bob" });
  await page.selectOption("#override-change", "limits");
  await page.fill("#override-value", "{ gcra: { burts: 1 } }");
  await page.fill("#override-reason", "a test");
  await page.click("#override-try");
  await shows(page, "#override-done", /burts/);
  await context.close();
});
