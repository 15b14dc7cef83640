// A service without authentication: rates, one key, simulation, and what the page must never do.

import assert from "node:assert/strict";
import { test } from "node:test";
import { REBOUND, Service, browserAndService, inspect, open, picture, shows, until, view } from "./service.mjs";

const POLICY = `
schema:
  user:
    limits: [{ fixed_window: { count: 100000, period: 31d }, name: everybody, shadow: true }]
    children:
      "*":
        limits: [{ gcra: { burst: 9, count: 1, period: 1h }, name: per-user }]
        children: { trade: { limits: [[99, 1, 3600]] } }
  calm: { limits: [[9, 1, 1]] }
`;
const EVIL = '<img src=x onerror="window.harmed = true">';

const { chromium, service } = await browserAndService(POLICY);

/** The rates beside a limit: allowed and refused. */
async function rates(page, limit) {
  const row = page.locator(".limit", { has: page.locator(".name", { hasText: limit }) }).first();
  const told = /^(\S+) allowed\/s\s+(\S+) refused\/s$/.exec(await row.locator(".rates").innerText());
  return told?.slice(1).map((rate) => Number(rate.replace(/[<,]/g, "")));
}

test("the policy is shown as a tree, and its rates are those of the traffic", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/policy" });
  await shows(
    page,
    "#tree",
    /user[^]*everybody\s*shadow[^]*per-user\s*[^]*gcra \{ burst: 9, count: 1, period: 1h \}[^]*trade/,
  );
  let sent = 0;
  const traffic = setInterval(() => {
    // Of each ten, five are refused at the latest when the burst is over.
    service.check(["user", sent++ % 2 ? "busy" : `other${sent}`]);
  }, 25);
  try {
    await until("rates of a limit", async () => {
      const [passed, refused] = (await rates(page, "per-user")) ?? [];
      return passed > 10 && passed < 30 && refused > 10 && refused < 30;
    });
    assert.deepEqual(await rates(page, "calm#gcra0"), [0, 0]);
    await view(page, "overview");
    await until(
      "figures",
      async () => Number(await page.innerText("#allowed")) > 10 && Number(await page.innerText("#refused")) > 10,
    );
    assert.equal(await page.innerText("#failed"), "0.0");
    await view(page, "keys");
    await until("the hot key", async () =>
      /^user\/busy\s+per-user\s+0 of 10\s/.test(await page.locator("#near tr").first().innerText()),
    );
    await shows(page, "#busy", /user\s+everybody \(shadow\)/);
  } finally {
    clearInterval(traffic);
  }
  await view(page, "overview");
  await until("calm again", async () => (await page.innerText("#allowed")) === "0.0");
  assert.deepEqual(wrong, []);
  await context.close();
});

test("a key is inspected level by level, refused, and reset", async () => {
  const { page, context, wrong } = await open(chromium, service);
  await inspect(page, "user/lena/trade");
  await shows(page, "#verdict", /^A cost of 1 is allowed\.$/);
  const levels = async () =>
    (await page.locator("#levels tbody tr").allInnerTexts()).map((row) => row.replace(/\s+/g, " "));
  const told = await levels();
  assert.equal(told.length, 3);
  assert.match(told[1], /^per-user binding gcra \{ burst: 9, count: 1, period: 1h \} counts user\/lena 10 of 10 allowed now$/);
  for (let turn = 0; turn < 10; turn += 1) assert.equal(await service.check(["user", "lena", "trade"]), 200);
  assert.equal(await service.check(["user", "lena", "trade"]), 429);
  // The page inspects it again by itself.
  await shows(page, "#verdict", /^A cost of 1 is refused by per-user; allowed again in (59 m \d+ s|1 h)\.$/);
  assert.match((await levels())[1], /binding .* 0 of 10 refused for (59 m|1 h)/);
  assert.match(await page.locator("#levels tr.binding").innerText(), /^per-user/);
  await page.fill("#cost", "11");
  await page.click("#look button");
  await shows(page, "#verdict", /refused by per-user; no wait will help/);
  await page.fill("#cost", "1");

  await inspect(page, "user/lena");
  await shows(page, "#verdict", /is refused/);
  await page.click("#reset");
  await page.click("#sure-yes");
  await shows(page, "#reset-done", /^user\/lena is reset\.$/);
  await shows(page, "#verdict", /^A cost of 1 is allowed\.$/);
  assert.equal(await service.check(["user", "lena"], { cost: 10 }), 200);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("the reset dialog says what is lost, and a subtree has to be typed", async () => {
  const { page, context, wrong } = await open(chromium, service);
  for (let turn = 0; turn < 4; turn += 1) assert.equal(await service.check(["user", "nia", "trade"]), 200);
  await inspect(page, "user/nia");
  await page.click("#reset");
  assert.equal(await page.innerText("#sure-title"), "Reset one key?");
  assert.equal(await page.innerText("#sure-domain"), "(default)");
  assert.equal(await page.innerText("#sure-key"), "user/nia");
  assert.equal(await page.innerText("#sure-below"), "not reset: they keep their counts");
  assert.equal(await page.innerText("#sure-lost"), "per-user: 4 of 10 used");
  assert.equal(await page.innerText("#sure-kept"), "everybody: limits of shorter keys; keys below");
  assert.equal(await page.innerText("#sure-yes"), "Reset user/nia");
  assert.equal(await page.locator("#sure-typed").isVisible(), false);
  assert.equal(await page.evaluate(() => document.activeElement.id), "sure-no");
  await page.keyboard.press("Enter");

  await page.click("#reset-below");
  assert.equal(await page.innerText("#sure-title"), "Reset a key and every key below it?");
  assert.match(await page.innerText("#sure-below"), /^reset too: all keys that start with user\/nia\//);
  assert.match(await page.innerText("#sure-lost"), /per-user: 4 of 10 used\s+all counts of the keys below it/);
  assert.equal(await page.innerText("#sure-yes"), "Reset user/nia and all keys below it");
  await picture(page, "reset", {});
  await page.fill("#sure-typed", "user/ni");
  await page.keyboard.press("Enter");
  assert.equal(await page.isDisabled("#sure-yes"), true);
  assert.equal(await page.locator("#sure").isVisible(), true);
  await page.keyboard.press("Escape");
  await inspect(page, "user/nia/trade");
  await shows(page, "#levels", /6 of 10[^]*96 of 100/);

  await inspect(page, "user/nia");
  await page.click("#reset-below");
  await page.fill("#sure-typed", "user/nia");
  await page.click("#sure-yes");
  await shows(page, "#reset-done", /^user\/nia and all keys below it are reset\.$/);
  await inspect(page, "user/nia/trade");
  await shows(page, "#levels", /10 of 10[^]*100 of 100/);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("request values are shown as text and do nothing", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/keys" });
  assert.equal(await service.check(["user", EVIL, "a/b\\c"], { cost: 10 }), 200);
  const link = page.locator("#near a", { hasText: "onerror" }).first();
  await link.waitFor();
  assert.equal(await link.innerText(), `user/${EVIL}`);
  await link.click();
  await shows(page, "#verdict", /refused by per-user/);
  assert.equal(await page.inputValue("#key"), `user/${EVIL}`);
  assert.ok((await page.innerText("#levels")).includes(EVIL));
  await inspect(page, `user/${EVIL}/a\\/b\\\\c`);
  await shows(page, "#verdict", /refused by per-user/);
  const [images, harmed] = await page.evaluate(() => [document.images.length, window.harmed]);
  assert.deepEqual([images, harmed], [0, undefined]);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("nothing runs or is loaded that is not the page's own", async () => {
  const { page, context, wrong, response } = await open(chromium, service, { place: "#/policy" });
  assert.match(response.headers()["content-security-policy"], /default-src 'none'/);
  await page.locator("#tree li").first().waitFor();
  assert.deepEqual(wrong, []);
  const ran = await page.evaluate(async (outside) => {
    const script = document.createElement("script");
    script.textContent = "window.injected = true";
    document.head.append(script);
    const image = document.createElement("img");
    image.src = `${outside}/healthz`;
    document.body.append(image);
    const fetched = await fetch("http://127.0.0.1:9/").then(
      () => true,
      () => false,
    );
    return [window.injected, image.naturalWidth, fetched];
  }, service.url);
  assert.deepEqual(ran, [undefined, 0, false]);
  assert.ok(wrong.filter((told) => told.includes("Content Security Policy")).length >= 3, wrong.join("\n"));
  await context.close();
});

test("a policy and a draft are simulated and drawn", async () => {
  const { page, context, wrong } = await open(chromium, service, { place: "#/simulate" });
  await page.fill("#sim-key", "user/lena");
  await page.fill("#rate", "1");
  await page.fill("#burst", "0");
  await page.fill("#seconds", "100");
  await page.click("#simulate button");
  await shows(page, "#simulated", /^Policy in force: 10 allowed, 90 refused$/);
  assert.equal(await page.locator("#plots svg[role=img]").count(), 1);
  assert.equal(await page.getAttribute("#plots svg", "aria-label"), "Policy in force: 10 allowed, 90 refused");
  await page.fill("#draft", "- token_bucket: { capacity: 5, count: 1, period: 2s }");
  await page.click("#simulate button");
  await shows(page, "#simulated", /^Draft: 54 allowed, 46 refused\nPolicy in force: 10 allowed, 90 refused$/);
  await picture(page, "simulate");
  // Half of the arrivals pass in the long run: the area of what passes ends about half as high as the whole.
  const heights = await page
    .locator("#plots figure")
    .first()
    .locator("polygon")
    .evaluateAll((areas) => areas.map((area) => area.getBBox().height));
  assert.ok(Math.abs(heights[0] / heights[1] - 0.54) < 0.02, `${heights}`);
  await page.fill("#draft", "- token_bucket: { capacty: 5 }");
  await page.click("#simulate button");
  await shows(page, "#simulated", /draft:1:19: .*`capacty`/);
  assert.equal(await page.locator("#plots svg").count(), 0);
  await page.fill("#draft", "");
  await page.fill("#rate", "1000");
  await page.click("#simulate button");
  await shows(page, "#simulated", /at most 10000/);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("a draft is compared with the traffic of the last minutes", async () => {
  const own = await Service.start(
    "schema: { user: { children: { '*': { limits: [{ fixed_window: { count: 4, period: 31d }, name: per-user }] } } } }",
  );
  try {
    const { page, context, wrong } = await open(chromium, own, { place: "#/simulate" });
    await page.click("#traffic-form button");
    await shows(page, "#traffic-done", /^No check of this domain was recorded/);
    for (let turn = 0; turn < 6; turn += 1) await own.check(["user", "mia"]);
    await own.check(["user", "ada"]);
    await page.click("#traffic-form button");
    await shows(page, "#traffic-done", /^Policy in force: 5 allowed, 2 refused$/);
    assert.equal(await page.isVisible("#traffic-keys"), false);
    await page.fill(
      "#traffic-draft",
      "schema: { user: { children: { '*': { limits: [{ fixed_window: { count: 1, period: 31d }, name: per-user }] } } } }",
    );
    await page.click("#traffic-form button");
    await shows(page, "#traffic-done", /^Draft: 2 allowed, 5 refused\nPolicy in force: 5 allowed, 2 refused\n3 checks newly refused, 0 newly allowed, of 1 key$/);
    await shows(page, "#traffic-limits", /per-user\s*5 allowed, 2 refused\s*2 allowed, 5 refused/);
    await shows(page, "#traffic-keys", /user\/mia\s*3\s*0/);
    await picture(page, "traffic");
    // A long segment is known as its hash: its key cannot be inspected, and may be that of a long name.
    const long = "l".repeat(80);
    for (let turn = 0; turn < 2; turn += 1) await own.check(["user", long]);
    await page.click("#traffic-form button");
    await shows(page, "#traffic-keys", /user\/hash:[0-9a-f]{32}\s*1\s*0/);
    assert.equal(await page.locator("#traffic-keys a").count(), 1, "the other key has a link");
    await page.fill("#traffic-draft", `schema: { user: { children: { ${long}: {} } } }`);
    await page.click("#traffic-form button");
    await shows(page, "#traffic-about", / 2 checks are left out: a segment of over 64 bytes is recorded as a hash/);
    await page.fill("#traffic-draft", "schema: 7");
    await page.click("#traffic-form button");
    await shows(page, "#traffic-done", /draft:1:/);
    assert.equal(await page.isVisible("#traffic-limits"), false);
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    await own.stop();
  }
});

test("the page follows a policy reload", async () => {
  const own = await Service.start(POLICY);
  try {
    const { page, context, wrong } = await open(chromium, own, { place: "#/policy" });
    await shows(page, "#tree", /per-user/);
    own.write(
      "limits/policy.yaml",
      "domain: other\nschema: { place: { limits: [{ gcra: { burst: 1, count: 1, period: 1s }, name: fresh }] } }\n",
    );
    await shows(page, "#tree", /^place\s+fresh/);
    assert.equal(await page.inputValue("#domain"), "other");
    assert.deepEqual(wrong, []);
    await context.close();
  } finally {
    await own.stop();
  }
});

test("a page under a foreign host name reads nothing and resets nothing", async () => {
  assert.equal(await service.check(["user", "rae"], { cost: 4 }), 200);
  const context = await chromium.newContext();
  const page = await context.newPage();
  await page.goto(`${service.url.replace("127.0.0.1", REBOUND)}/ui`);
  const asked = await page.evaluate(async () => {
    const ask = async (path, body) => {
      const headers = { "content-type": "application/json" };
      return (await fetch(path, { method: "POST", headers, body: JSON.stringify(body) })).status;
    };
    return [
      await ask("/v1/reset", { key: ["user", "rae"] }),
      await ask("/ui/api/key", { domain: "", key: ["user", "rae"] }),
      await ask("/ui/api/live", { domain: "" }),
    ];
  });
  assert.deepEqual(asked, [403, 403, 403]);
  const kept = await service.post("/v1/check", { key: ["user", "rae"], cost: 0 });
  assert.equal((await kept.json()).levels[1].remaining, "6");
  await context.close();
});
