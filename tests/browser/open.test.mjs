// A service that is open to everybody.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { REBOUND, Service, browser, open, picture, until } from "./service.mjs";

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

let chromium;
let service;
before(async () => {
  chromium = await browser();
  service = await Service.start(POLICY);
});
after(async () => {
  await service?.stop();
  await chromium?.close();
});

/** Whether what an element shows fits. */
const shows = (page, selector, pattern) =>
  until(`${selector} shows ${pattern}`, async () => pattern.test(await page.locator(selector).innerText()));

/** The rates beside a limit: passed and refused. */
async function rates(page, limit) {
  const row = page.locator(".limit", { has: page.locator(".name", { hasText: limit }) }).first();
  const told = /^(\S+) passed\/s\s+(\S+) refused\/s$/.exec(await row.locator(".rates").innerText());
  return told?.slice(1).map((rate) => Number(rate.replace(/[<,]/g, "")));
}

async function lookAt(page, key) {
  await page.fill("#key", key);
  await page.click("#look button");
}

test("the policy is shown as a tree, and its rates are those of the traffic", async () => {
  const { page, context, wrong } = await open(chromium, service);
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
    await until(
      "figures",
      async () => Number(await page.innerText("#passed")) > 10 && Number(await page.innerText("#refused")) > 10,
    );
    assert.equal(await page.innerText("#failed"), "0.0");
    await until("the hot key", async () =>
      (await page.locator("#near tr").first().innerText()).startsWith("user/busy\tper-user"),
    );
    assert.match(await page.innerText("#busy"), /user\teverybody \(shadow\)/);
  } finally {
    clearInterval(traffic);
  }
  await picture(page, "rates");
  await until("calm again", async () => (await page.innerText("#passed")) === "0.0");
  assert.deepEqual(wrong, []);
  await context.close();
});

test("a key is looked at level by level, refused, reset, and nothing of that without being asked", async () => {
  const { page, context, wrong } = await open(chromium, service);
  await lookAt(page, "user/lena/trade");
  await shows(page, "#verdict", /^A cost of 1 passes\.$/);
  const levels = async () =>
    (await page.locator("#levels tbody tr").allInnerTexts()).map((row) => row.replace(/\s+/g, " "));
  const told = await levels();
  assert.equal(told.length, 3);
  assert.match(told[1], /^per-user gcra \{ burst: 9, count: 1, period: 1h \} user\/lena 10 of 10 passes now$/);
  for (let turn = 0; turn < 10; turn += 1) assert.equal(await service.check(["user", "lena", "trade"]), 200);
  assert.equal(await service.check(["user", "lena", "trade"]), 429);
  // It is looked at again by itself.
  await shows(page, "#verdict", /^A cost of 1 is refused by per-user; it passes after (59 m \d+ s|1 h)\.$/);
  assert.match((await levels())[1], /0 of 10 passes after (59 m|1 h)/);
  assert.match(await page.locator("#levels tr.binding").innerText(), /^per-user/);
  await picture(page, "refused");
  await page.fill("#cost", "11");
  await page.click("#look button");
  await shows(page, "#verdict", /refused by per-user for ever/);

  await page.click("#reset");
  assert.match(await page.innerText("#sure-what"), /user\/lena\/trade are forgotten/);
  await page.click("#sure button[value=no]");
  await lookAt(page, "user/lena");
  await page.fill("#cost", "1");
  await page.click("#look button");
  await shows(page, "#verdict", /is refused/);
  assert.equal(await service.check(["user", "lena"]), 429, "it was kept");
  await page.click("#reset-below");
  await page.click("#sure button[value=yes]");
  await shows(page, "#verdict", /^A cost of 1 passes\.$/);
  assert.equal(await service.check(["user", "lena", "trade"], { cost: 10 }), 200);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("what callers send is shown as text and does nothing", async () => {
  const { page, context, wrong } = await open(chromium, service);
  assert.equal(await service.check(["user", EVIL, "a/b\\c"], { cost: 10 }), 200);
  const link = page.locator("#near button", { hasText: "onerror" }).first();
  await link.waitFor();
  assert.equal(await link.innerText(), `user/${EVIL}`);
  await link.click();
  await shows(page, "#verdict", /refused by per-user/);
  assert.equal(await page.inputValue("#key"), `user/${EVIL}`);
  assert.ok((await page.innerText("#levels")).includes(EVIL));
  await lookAt(page, `user/${EVIL}/a\\/b\\\\c`);
  await shows(page, "#verdict", /refused by per-user/);
  const [images, harmed] = await page.evaluate(() => [document.images.length, window.harmed]);
  assert.deepEqual([images, harmed], [0, undefined]);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("nothing runs or is loaded that is not the page's own", async () => {
  const { page, context, wrong, response } = await open(chromium, service);
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
  const { page, context, wrong } = await open(chromium, service);
  await page.fill("#sim-key", "user/lena");
  await page.fill("#rate", "1");
  await page.fill("#burst", "0");
  await page.fill("#seconds", "100");
  await page.click("#simulate button");
  await shows(page, "#simulated", /^Policy in force: 10 pass, 90 refused$/);
  assert.equal(await page.locator("#plots svg[role=img]").count(), 1);
  assert.equal(await page.getAttribute("#plots svg", "aria-label"), "Policy in force: 10 pass, 90 refused");
  await page.fill("#draft", "- token_bucket: { capacity: 5, count: 1, period: 2s }");
  await page.click("#simulate button");
  await shows(page, "#simulated", /^Draft: 54 pass, 46 refused\nPolicy in force: 10 pass, 90 refused$/);
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

test("it is read on a phone, in the dark, and by the keyboard", async () => {
  const { page, context, wrong } = await open(chromium, service, {
    viewport: { width: 360, height: 780 },
    colorScheme: "dark",
  });
  await page.locator("#tree li").first().waitFor();
  await lookAt(page, "user/lena/trade");
  await page.fill("#sim-key", "user/lena");
  await page.click("#simulate button");
  await page.locator("#plots svg").first().waitFor();
  const [wide, dark] = await page.evaluate(() => [
    document.documentElement.scrollWidth > innerWidth,
    getComputedStyle(document.body).backgroundColor,
  ]);
  assert.deepEqual([wide, dark], [false, "rgb(18, 23, 29)"]);
  await picture(page, "phone");
  const unlabelled = await page
    .locator("input, select, textarea")
    .evaluateAll((fields) => fields.filter((field) => !field.labels?.length).length);
  assert.equal(unlabelled, 0);
  const nodes = page.locator("#tree > li > details", { hasText: "per-user" });
  assert.equal(await nodes.evaluate((details) => details.open), true);
  await nodes.locator("summary").first().focus();
  await page.keyboard.press("Enter");
  assert.equal(await nodes.evaluate((details) => details.open), false);
  await page.focus("#key");
  await page.keyboard.press("Enter");
  await shows(page, "#verdict", /A cost of 1/);
  assert.deepEqual(wrong, []);
  await context.close();
});

test("it follows a policy that changes, and says when nobody answers", async () => {
  const own = await Service.start(POLICY);
  try {
    const { page, context, wrong } = await open(chromium, own);
    await shows(page, "#tree", /per-user/);
    own.write(
      "limits.yaml",
      "domain: other\nschema: { place: { limits: [{ gcra: { burst: 1, count: 1, period: 1s }, name: fresh }] } }\n",
    );
    await shows(page, "#tree", /^place\s+fresh/);
    assert.equal(await page.inputValue("#domain"), "other");
    assert.deepEqual(wrong, []);
    await own.stop();
    await shows(page, "#status", /^the service does not answer$/);
    await context.close();
  } finally {
    await own.stop();
  }
});

test("a page by a name that may be anybody's learns nothing and resets nothing", async () => {
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
