// How the page is used: links, filters, themes, small screens, keyboards and screen readers.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import { Service, browserAndService, caller, inspect, open, picture, shows, until, view } from "./service.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const LIMIT = "limits: [{ gcra: { burst: 9, count: 1, period: 1h }, name: per-user }]";
const POLICY = `
schema:
  user:
    limits: [{ fixed_window: { count: 100000, period: 31d }, name: all-users, shadow: true }]
    children:
      "*":
        ${LIMIT}
        children: { trade: { limits: [{ token_bucket: { capacity: 6, count: 2, period: 3s }, name: trades }] } }
      internal: { factor: 0, ${LIMIT} }
  ip: { children: { "*": { limits: [{ sliding_window: { count: 600, period: 1m }, name: per-ip }] } } }
`;
const OTHER = "domain: other\nschema: { place: { limits: [{ gcra: { burst: 1, count: 1, period: 1s }, name: fresh }] } }\n";

const { chromium, service } = await browserAndService(POLICY);

const place = (page) => decodeURIComponent(new URL(page.url()).hash);

test("views, domain, key and filters are in the URL, and the back button works", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/keys?key=user/ada/trade&cost=7" });
  await shows(page, "#verdict", /^A cost of 7 is refused by trades; no wait will help/);
  assert.equal(await page.inputValue("#key"), "user/ada/trade");
  assert.equal(await page.title(), "user/ada/trade · Keys · Weir");
  await inspect(page, "user/bob");
  await shows(page, "#verdict", /^A cost of 7 is allowed/);
  assert.equal(place(page), "#/keys?domain=&key=user/bob&cost=7");
  await view(page, "policy");
  await page.fill("#filter", "trade");
  await until("the filter is in the URL", () => place(page).includes("filter=trade"));
  assert.equal(await page.getAttribute("nav a[data-view=policy]", "aria-current"), "page");
  assert.equal(await page.locator("#keys").isVisible(), false);
  await page.goBack();
  await shows(page, "#verdict", /^A cost of 7 is allowed/);
  assert.equal(await page.inputValue("#key"), "user/bob");
  await page.goBack();
  await shows(page, "#verdict", /refused by trades/);
  await page.goForward();
  await page.goForward();
  await shows(page, "#matches", /^1 node matches\.$/);
  await page.reload();
  await shows(page, "#matches", /^1 node matches\.$/);
  assert.equal(await page.inputValue("#filter"), "trade");
  assert.deepEqual(wrong, []);
  await context.close();
});

test("usage lists the fullest keys below a prefix, and the replicas", async () => {
  const own = await Service.start(POLICY);
  try {
    assert.equal(await own.check(["user", "much"], { cost: 9 }), 200);
    assert.equal(await own.check(["user", "little"]), 200);
    assert.equal(await own.check(["ip", "192.0.2.1"]), 200);
    const { page, context, wrong } = await open(chromium, own, { place: "#/usage" });
    await shows(page, "#replica-rows", /answers here/);
    assert.equal(await page.locator("#replicas-differ").isVisible(), false);
    await page.fill("#usage-prefix", "user");
    await page.click("#usage-form button");
    await shows(page, "#usage-read", /rows read\. The/);
    await shows(page, "#usage-rows tr:first-child", /user\/much[^]*per-user[^]*9 of 10/);
    await shows(page, "#usage-rows", /user\/little/);
    assert.equal((await page.locator("#usage-rows").innerText()).includes("192.0.2.1"), false);
    await picture(page, "usage");
    await page.click("#usage-rows tr:first-child a");
    await shows(page, "#verdict", /refused by per-user|allowed/);
    assert.equal(await page.inputValue("#key"), "user/much");
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    await own.stop();
  }
});

test("another domain or list shows nothing of the last one", async () => {
  const own = await Service.start(POLICY);
  try {
    own.write("limits/other.yaml", OTHER);
    assert.equal(await own.check(["user", "much"], { cost: 9 }), 200);
    const { page, context, wrong } = await open(chromium, own, { place: "#/usage" });
    await until("both domains", async () => (await page.locator("#domain option").count()) === 2);
    const list = async () => {
      await page.click("#usage-form button");
      await shows(page, "#usage-rows", /user\/much/);
    };
    await list();
    await page.fill("#usage-prefix", "user/");
    await page.click("#usage-form button");
    await shows(page, "#usage-read", /segment .* is empty/);
    assert.equal(await page.locator("#usage-table").isVisible(), false);
    assert.equal(await page.innerText("#status"), "live");
    await page.fill("#usage-prefix", "");
    await list();
    await view(page, "simulate");
    await page.fill("#sim-key", "user/ada");
    await both(page);
    await shows(page, "#simulated", /allowed/);
    await page.selectOption("#domain", "other");
    await until("no result", async () => (await page.innerText("#simulated")) === "");
    assert.equal(await page.innerText("#plots"), "");
    assert.equal(await page.innerText("#traffic-done"), "");
    assert.equal(await page.locator("#traffic-limits").isVisible(), false);
    await view(page, "usage");
    assert.match(await page.innerText("#usage-read"), /^Reads what is stored/);
    assert.equal(await page.locator("#usage-table").isVisible(), false);
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    await own.stop();
  }
});

test("usage is for the role admin", async () => {
  const [reads, admin] = [caller("reads", "metrics"), caller("ops", "admin, metrics")];
  const own = await Service.start(POLICY, { callers: `callers:\n${reads.lines}${admin.lines}` });
  try {
    for (const [{ token }, denied] of [[reads, true], [admin, false]]) {
      const { page, context, wrong } = await open(chromium, own, { place: "#/usage" });
      await page.fill("#token", token);
      await page.click("#token-form button");
      if (denied) await shows(page, "#usage", /requires the role “admin”/);
      else await shows(page, "#replica-rows", /answers here/);
      assert.equal(await page.locator("#usage-form button").isDisabled(), denied);
      assert.deepEqual(wrong, []);
      await context.close();
    }
  } finally {
    await own.stop();
  }
});

test("a domain is chosen by the URL or the list, and an unknown one gives the first", async () => {
  const own = await Service.start(POLICY);
  try {
    own.write("limits/other.yaml", OTHER);
    const { page, context, wrong } = await open(chromium, own);
    await until("both domains", async () => (await page.locator("#domain option").count()) === 2);
    await page.goto(`${own.url}/ui#/policy?domain=other`);
    await shows(page, "#tree", /place\s+fresh/);
    await page.selectOption("#domain", "");
    await shows(page, "#tree", /per-user/);
    assert.equal(place(page), "#/policy?domain=");
    await page.goBack();
    await shows(page, "#tree", /place\s+fresh/);
    await page.reload();
    await shows(page, "#tree", /place\s+fresh/);
    await page.goto(`${own.url}/ui#/policy?domain=nowhere`);
    await shows(page, "#tree", /per-user/);
    assert.equal(place(page), "#/policy?domain=");
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    await own.stop();
  }
});

test("a large tree is collapsed, and a filter finds nodes and limits in it", async () => {
  const tenants = Array.from({ length: 1500 }, (_, at) => `  tenant${at}: { children: { "*": { ${LIMIT} } } }\n`);
  const door = "  site: { limits: [{ gcra: { burst: 1, count: 1, period: 1s }, name: front-door }] }\n";
  const names = Array.from({ length: 1800 }, (_, at) => `      n${at}: {}\n`);
  const own = await Service.start(`schema:\n${tenants.join("")}${door}  wide:\n    children:\n${names.join("")}`);
  try {
    const { page, context, wrong } = await open(chromium, own, { place: "#/policy" });
    await page.locator("#tree > li").first().waitFor();
    assert.equal(await page.locator("#tree details[open]").count(), 0);
    assert.equal(await page.getByText("tenant999", { exact: true }).count(), 0, "beyond the first 1,000 nodes");
    assert.equal(await page.locator("#tree > li").last().innerText(), "… and 502 more: use the filter");
    await page.fill("#filter", "tenant999");
    await shows(page, "#matches", /^1 node matches\.$/);
    await shows(page, "#tree", /^tenant999/);
    assert.equal(await page.innerText("#tree mark"), "tenant999");
    await page.locator("#tree button", { hasText: "1 not shown" }).click();
    await shows(page, "#tree", /per-user/);
    await page.fill("#filter", "front-d");
    await shows(page, "#tree", /^site\s+front-door[^…]*$/);
    await page.fill("#filter", "wide");
    await page.locator("#tree button", { hasText: "not shown" }).click();
    await shows(page, "#tree", /… and 800 more: use the filter$/);
    await page.fill("#filter", "nothing like it");
    await shows(page, "#matches", /^0 nodes match\.$/);
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    await own.stop();
  }
});

test("a factor of 0 is shown as unlimited, a key without a limit as unmatched", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/policy" });
  await shows(page, "#tree", /internal\s*unlimited: factor 0/);
  await inspect(page, "usr/ada");
  await shows(page, "#verdict", /^No limit matches this key: every request is allowed\.$/);
  await view(page, "overview");
  const traffic = setInterval(() => service.check(["usr", "ada"]), 50);
  try {
    await until("unmatched checks", async () => Number(await page.innerText("#unmatched")) > 2);
    assert.equal(await page.locator("#unmatched-about").isVisible(), true);
  } finally {
    clearInterval(traffic);
  }
  await until("none", async () => (await page.innerText("#unmatched")) === "0.0");
  assert.equal(await page.locator("#unmatched-about").isVisible(), false);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("a hot key has one row, and is found by a part of it", async () => {
  for (let turn = 0; turn < 12; turn += 1) await service.check(["user", "zoe", "trade"]);
  await service.check(["ip", "203.0.113.9"]);
  const { page, context, wrong } = await open(chromium, service, { place: "#/keys" });
  await until("its row", async () => (await page.locator("#busy tr", { hasText: "user/zoe/trade" }).count()) === 1);
  await page.fill("#search", "OE/TR");
  await until("one row", async () => (await page.locator("#busy tr").count()) === 1);
  await shows(page, "#busy", /^user\/zoe\/trade\s+trades/);
  assert.match(place(page), /search=OE\/TR/);
  await page.fill("#search", "nobody");
  await shows(page, "#busy", /no hot key contains this text/);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("a theme is chosen and remembered; without a choice it is the system's", async () => {
  const { page, context, wrong } = await open(chromium, service, { colorScheme: "dark" });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await page.selectOption("#theme", "light");
  const light = await ground();
  assert.notEqual(light, dark);
  await page.reload();
  assert.equal(await ground(), light);
  assert.equal(await page.inputValue("#theme"), "light");
  await page.emulateMedia({ colorScheme: "light" });
  await page.selectOption("#theme", "dark");
  assert.equal(await ground(), dark);
  await page.selectOption("#theme", "auto");
  assert.equal(await ground(), light);
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  assert.deepEqual(wrong, []);
  await context.close();
});

/** Each view with something in it. */
const PLACES = [
  "#/overview",
  "#/policy?filter=tr",
  "#/keys?key=user/mia/trade",
  "#/usage",
  "#/overrides?key=user/mia",
  "#/simulate?key=user/mia",
];

/** Has both parts of the simulations shown, with tables. */
async function both(page) {
  await page.click("#simulate button");
  await page.fill("#traffic-draft", "schema: { user: { children: { '*': { limits: [[0, 1, 3600]] } } } }");
  await page.click("#traffic-form button");
  await shows(page, "#traffic-done", /^Draft: /);
}

test("every view fits a screen of 360 pixels", async () => {
  for (let turn = 0; turn < 8; turn += 1) await service.check(["user", "mia", "trade"]);
  for (const one of PLACES) {
    const viewport = { width: 360, height: 780 };
    const { page, context, wrong } = await open(chromium, service, { place: one, viewport, colorScheme: "dark" });
    await shows(page, "#status", /^live$/);
    if (one.startsWith("#/keys")) await page.click("#reset-below");
    if (one.startsWith("#/simulate")) await both(page);
    const beyond = await page.evaluate(() => {
      const isOut = (one) => one.getBoundingClientRect().right > innerWidth + 1;
      const out = [...document.querySelectorAll("body *")].filter(isOut);
      return [document.documentElement.scrollWidth, out.map((one) => one.outerHTML.slice(0, 80))];
    });
    assert.deepEqual(beyond, [360, []], one);
    if (one.startsWith("#/keys")) {
      await page.keyboard.press("Escape");
      await page.evaluate(() => scrollTo(0, 0));
      await picture(page, "phone", {});
    }
    assert.deepEqual(wrong, []);
    await context.close();
  }
});

test("no view breaks a rule of accessibility, in either theme", async () => {
  for (const colorScheme of ["light", "dark"]) {
    for (const one of PLACES) {
      const { page, context, wrong } = await open(chromium, service, { place: one, colorScheme });
      await shows(page, "#status", /^live$/);
      if (one.startsWith("#/simulate")) await both(page);
      if (one.startsWith("#/keys")) await page.click("#reset-below");
      await page.evaluate(AXE);
      const broken = await page.evaluate(async () => {
        const { violations } = await window.axe.run();
        return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target).join(", ")}`);
      });
      assert.deepEqual(broken, [], `${one}, ${colorScheme}`);
      assert.deepEqual(wrong, []);
      await context.close();
    }
  }
});

test("the page works by keyboard alone, and without motion where that is preferred", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/policy", reducedMotion: "reduce" });
  await page.locator("#tree details").first().waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.id), "skip");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  assert.match(place(page), /^#\/policy/);
  const node = page.locator("#tree details").first();
  assert.equal(await node.evaluate((details) => details.open), true);
  await node.locator("summary").first().focus();
  await page.keyboard.press("Enter");
  assert.equal(await node.evaluate((details) => details.open), false);
  const durations = await page.evaluate(() =>
    [...document.querySelectorAll("*")].map((one) => getComputedStyle(one).transitionDuration),
  );
  assert.deepEqual([...new Set(durations)], ["0s"]);
  await page.keyboard.press("Enter");
  const traffic = setInterval(() => service.check(["user", "mia", "trade"]), 100);
  await shows(page, "#tree", /[1-9]\S* refused\/s/);
  await picture(page, "policy");
  clearInterval(traffic);
  await view(page, "keys");
  await page.focus("#key");
  await page.keyboard.type("user/mia/trade");
  await page.keyboard.press("Enter");
  await shows(page, "#verdict", /^A cost of 1 is (allowed|refused)/);
  await picture(page, "keys");
  assert.deepEqual(wrong, []);
  await context.close();
});
