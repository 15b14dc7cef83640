// What the page shows during an outage, and its charts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Redis, Service, browser, open, picture, shows, until, view } from "./service.mjs";

const POLICY = `
on_store_failure: local
schema:
  user:
    children:
      "*":
        limits: [{ gcra: { burst: 19, count: 10, period: 1s }, name: per-user }]
`;

const chromium = await browser();

async function withRedis(work, policy = POLICY) {
  const redis = await Redis.start();
  try {
    // A busy machine is not an outage.
    const env = { WEIR_STORE__URL: `redis://${redis.address}`, WEIR_STORE__REDIS__COMMAND_TIMEOUT: "30s" };
    const service = await Service.start(policy, { env });
    try {
      await work(redis, service);
    } finally {
      await service.stop();
    }
  } finally {
    await redis.remove();
  }
}

const since = async (page) => (await page.innerText("#degraded-since")).slice(0, 8);

/** How many seconds two times of day are apart. */
function apart(...clocks) {
  const [one, other] = clocks.map((clock) => clock.split(":").reduce((sum, part) => 60 * sum + Number(part), 0));
  const gap = Math.abs(one - other);
  return Math.min(gap, 86_400 - gap);
}

test("degraded decisions raise a banner: how many, mode, server, since when", () =>
  withRedis(async (redis, service) => {
    const { page, context, wrong } = await open(chromium, service);
    const traffic = setInterval(() => service.check(["user", "ada"]), 50);
    try {
      await until("decisions", async () => Number(await page.innerText("#allowed")) > 0);
      assert.equal(await page.locator("#degraded").isVisible(), false);
      await shows(page, "#server-rows", new RegExp(`${redis.address}\\s+up`));
      const stopped = new Date();
      await redis.stop();
      await shows(page, "#degraded-title", /^Degraded: checks are decided without the shared store$/);
      await shows(page, "#degraded-count", /^[1-9][\d.]* checks\/s now, [1-9]\d* since \d\d:\d\d:\d\d$/);
      assert.match(await page.innerText("#degraded-mode"), /^on_store_failure: local – each replica decides alone/);
      await shows(page, "#degraded-servers", new RegExp(`^${redis.address} – .*[Rr]efused`));
      const told = await since(page);
      assert.ok(apart(told, stopped.toISOString().slice(11, 19)) < 60, `${told} is near ${stopped.toISOString()}`);
      await shows(page, "#server-rows", new RegExp(`${redis.address}\\s+down for .*circuit breaker open`));
      // It is above every view.
      await view(page, "policy");
      assert.equal(await page.locator("#degraded").isVisible(), true);
      // A page that is opened later knows since when, and says from when on it has counted.
      await shows(page, "#degraded-since", /\((\d m )?([6-9]|\d\d)(\.\d)? s\)$/);
      const late = await open(chromium, service);
      await shows(late.page, "#degraded-count", /since this page was opened at/);
      const same = await since(late.page);
      assert.ok(apart(same, told) <= 2, `${same} is near ${told}`);
      await late.context.close();
      await redis.resume();
      await until("the banner goes", async () => !(await page.locator("#degraded").isVisible()));
    } finally {
      clearInterval(traffic);
    }
    assert.deepEqual(wrong, []);
    await context.close();
  }));

test("a section that needs the store says that it is unavailable, and the rest of the page is live", () =>
  withRedis(async (redis, service) => {
    const { page, context, wrong } = await open(chromium, service, { place: "#/overrides?key=user/ada" });
    const problem = page.locator("#override-list .problem");
    await shows(page, "#override-rows", /none in this domain/);
    await shows(page, "#verdict", /^A cost of 1 is allowed\.$/);
    const stale = () => page.evaluate(() => window.staleOnce);
    await page.evaluate(() => {
      const look = () => (window.staleOnce ||= document.body.classList.contains("is-stale"));
      new MutationObserver(look).observe(document.body, { attributes: true });
    });
    await redis.stop();
    await until("the overrides have a problem", () => problem.isVisible());
    assert.match(await problem.innerText(), /^Not up to date: .*store.*\.$/);
    await view(page, "keys");
    await until("the verdict of before is gone", async () => !/allowed/.test(await page.innerText("#verdict")));
    assert.match(await page.innerText("#verdict"), /store/);
    assert.equal(await page.locator("#levels").isVisible(), false);
    assert.equal(await page.innerText("#status"), "live");
    await redis.resume();
    await shows(page, "#verdict", /^A cost of 1 is allowed\.$/);
    await view(page, "overrides");
    await until("the overrides are read", async () => (await problem.count()) === 0);
    assert.ok(!(await stale()), "the counters were answered all the time");
    assert.deepEqual(wrong, []);
    await context.close();
  }, POLICY.replace("local", "error")));

test("data is marked as stale while the service is slow or gone", async () => {
  const service = await Service.start(POLICY);
  const { page, context, wrong } = await open(chromium, service);
  try {
    await shows(page, "#status", /^live$/);
    service.child.kill("SIGSTOP");
    await shows(page, "#stale", /^Stale since \d\d:\d\d:\d\d: the service has taken more than 3 s to answer\./);
    assert.equal(await page.innerText("#status"), "stale");
    service.child.kill("SIGCONT");
    await shows(page, "#status", /^live$/);
    assert.equal(await page.locator("#stale").isVisible(), false);
    assert.deepEqual(wrong, []);
  } finally {
    service.child.kill("SIGCONT");
    await service.stop();
  }
  await shows(page, "#stale", /^Stale since \d\d:\d\d:\d\d: the service does not answer\./);
  await context.close();
});

/** The path of a line of a chart. */
const path = (page, chart, line = 0) =>
  page.locator(`#charts figure:nth-child(${chart}) path.line`).nth(line).getAttribute("d");

test("charts hold the last 15 minutes, and are read by pointer and keyboard", () =>
  withRedis(async (redis, service) => {
    // The page's clock is advanced poll by poll; the service's answers say that so much time has passed.
    let elapsed = 0;
    let answers = 0;
    let answered = () => {};
    let down = null;
    const prepare = async (page) => {
      await page.clock.install({ time: new Date("2026-11-23T12:00:00Z") });
      await page.route("**/ui/api/live", async (route) => {
        const answer = await route.fetch();
        const json = await answer.json();
        json.at_ms = elapsed;
        for (const server of json.store.servers) if (!server.up) server.down_for_ms = elapsed - (down ??= elapsed);
        await route.fulfill({ response: answer, json });
        answers += 1;
        answered();
      });
    };
    const { page, context, wrong } = await open(chromium, service, { prepare });
    await until("the first poll", () => answers > 0);
    await page.clock.pauseAt(new Date("2026-11-23T12:01:00Z"));
    const polls = async (count, checks) => {
      for (let turn = 0; turn < count; turn += 1) {
        const sent = Array.from({ length: checks(turn) }, (_, at) => ({ key: ["user", `u${at % 5}`] }));
        await service.post("/v1/check_batch", { checks: sent });
        const before = answers;
        elapsed += 2000;
        await until("a poll", async () => {
          const answer = new Promise((done) => (answered = done));
          // Without an effect while the page still reads the last answer.
          await page.clock.runFor(2000);
          await Promise.race([answer, new Promise((later) => setTimeout(later, 500))]);
          return answers > before;
        });
      }
    };
    await polls(350, (turn) => Math.round(60 + 20 * Math.sin(turn / 40) + (turn > 200 && turn < 250 ? 120 : 0)));
    await redis.stop();
    await polls(45, () => 50);
    const decisions = page.locator("#charts figure").first();
    await shows(page, "#charts figure:nth-child(1) figcaption", /Decisions\s+all 25\/s/);
    await shows(page, "#charts figure:nth-child(3) figcaption", /degraded 25\/s/);
    const label = await decisions.locator("svg").getAttribute("aria-label");
    assert.match(label, /^Decisions: all 25\/s, .*; at most \d+\/s in the chart$/);
    assert.match(await decisions.locator("svg").textContent(), /12:05.*12:10/);
    assert.ok((await page.locator("#charts figure:nth-child(1) .outage").count()) > 30);
    assert.ok((await path(page, 1)).split(/[ML]/).length > 380);
    for (const chart of [2, 4, 5, 6]) assert.ok((await path(page, chart)).length > 1000, `chart ${chart}`);
    await page.hover("#charts figure:nth-child(2) svg", { position: { x: 120, y: 60 } });
    const moment = () => page.locator("#charts .moment").first().textContent();
    assert.match(await moment(), /^12:0\d:\d\d$/);
    assert.equal(await page.locator("#charts .cursor").count(), 6, "in all charts at once");
    await picture(page, "outage");
    await decisions.locator("svg").focus();
    await page.keyboard.press("End");
    const last = await moment();
    await page.keyboard.press("ArrowLeft");
    assert.ok((await moment()) < last);
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#charts .cursor").count(), 0);
    elapsed += 16 * 60_000;
    const before = answers;
    await page.clock.fastForward(16 * 60_000);
    await until("a poll", () => answers > before);
    await until("old samples go", async () => (await path(page, 1)).split(/[ML]/).length < 5);
    assert.deepEqual(wrong, []);
    await context.close();
  }));
