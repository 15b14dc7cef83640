// The explorer: reads /ui/api, draws the answers. Text from the service is shown as text, never as markup.

import { element, number, rate } from "./draw.js";
import {
  answered,
  asking,
  forgetEpisode,
  report,
  showDegraded,
  showServers,
  unanswered,
} from "./health.js";
import { forgetHistory, keep, quantile, showStoreCharts } from "./history.js";
import { showKeys } from "./keys.js";
import { forgetOverride, proposeKey, showOverrides } from "./overrides.js";
import { $, ask, calmly, may, page, problemOf } from "./page.js";
import { showQuotas } from "./quotas.js";
import { correct, go, route, showView } from "./route.js";
import { forgetSimulation } from "./simulation.js";
import { inspect, inspectRoute } from "./state.js";
import { forgetComparison } from "./traffic.js";
import { filterTree, loadTree, showRates } from "./tree.js";
import { forgetUsage, showReplicas } from "./usage.js";

const POLL_MS = 2000;
/** One of this many polls is made while the page is not visible, so that its charts continue. */
const HIDDEN_POLLS = 5;

/** The role that each part requires. */
const PARTS = [
  ["policy", "metrics"],
  ["overview", "metrics"],
  ["hot", "metrics"],
  ["simulate", "metrics"],
  ["state", "check"],
  ["fleet", "admin"],
  ["quotas", "metrics"],
  ["usage-list", "admin"],
  ["override-set", "admin"],
  ["override-list", "admin"],
  ["audit", "admin"],
];

let timer = 0;
let ticks = 0;
/** The last poll: counters, and when. */
let before = null;

// ---- session

async function begin() {
  clearInterval(timer);
  try {
    const session = await ask("ui/api/session");
    page.roles = session.roles;
    $("version").textContent = session.weir;
  } catch (error) {
    if (error.status === 401) return signIn(error.message);
    unanswered(problemOf(error));
    timer = setTimeout(begin, POLL_MS);
    return;
  }
  $("forget").hidden = !page.token;
  $("no-reset").hidden = may("reset");
  for (const [id, role] of PARTS) deny($(id), may(role) ? null : role);
  // Hidden until the service says that limits are divided, which needs the role.
  if (!may("metrics")) $("quotas").hidden = false;
  showView();
  if (may("metrics")) await loadPolicy();
  else withoutPolicy();
  await inspectRoute();
  // Another call of `begin` may have come in between.
  clearInterval(timer);
  timer = setInterval(poll, POLL_MS);
}

/** A client without the role that lists domains types their name. */
function withoutPolicy() {
  page.domain = route().domain ?? "";
  if ($("domain").tagName === "SELECT")
    $("domain").replaceWith(element("input", { id: "domain", placeholder: "(default)", onchange: changeDomain }));
  $("domain").value = page.domain;
  report("");
}

/** Disables a part of the page for a client without its role. */
function deny(part, role) {
  part.querySelector(".denied")?.remove();
  part.querySelectorAll("button, input, textarea").forEach((field) => {
    field.disabled = role !== null;
  });
  if (!role) return;
  const told = element("p", { className: "denied", text: `This requires the role “${role}”.` });
  part.querySelector("h2").after(told);
}

function signIn(why) {
  report("not signed in");
  $("sign-in-why").textContent = page.token ? `The service rejected the token: ${why}.` : "Data requires a bearer token.";
  $("token").value = "";
  if (!$("sign-in").open) $("sign-in").showModal();
}

// ---- the policy

async function loadPolicy() {
  const isFirst = page.version === null;
  page.domain = isFirst ? route().domain : page.domain;
  before = null;
  try {
    await loadTree();
  } catch (error) {
    if (error.status !== 404 || page.domain === null) return failed(error);
    // The domain is not defined, or not any more: the first is shown.
    page.domain = null;
    forgetDomain();
    await loadTree().catch(failed);
  }
  if (route().domain !== page.domain) correct({ domain: page.domain });
  await poll();
}

/** Another domain is shown: the page has nothing of the last one. */
function forgetDomain() {
  forgetHistory();
  forgetEpisode();
  forgetOverride();
  forgetUsage();
  forgetSimulation();
  forgetComparison();
}

async function changeDomain() {
  go({ domain: $("domain").value, key: null, cost: null, filter: null, search: null });
}

// ---- polling

/** Polls in progress. */
const running = new Set();

/** Starts a poll, unless it is in progress. */
async function once(work) {
  if (running.has(work)) return;
  running.add(work);
  await work().catch(failed);
  running.delete(work);
}

async function poll() {
  ticks += 1;
  if (document.hidden && ticks % HIDDEN_POLLS) return;
  await Promise.all([once(pollLive), once(pollView)]);
}

/** Updates the sections of the view. While the store is unavailable, some cannot be answered: each says so itself. */
async function pollView() {
  const { view } = route();
  await inspect();
  if (view === "usage" && may("admin")) await updateSection("fleet", showReplicas);
  if (view === "usage" && may("metrics")) await updateSection("quotas", showQuotas);
  if (view === "overrides" && may("admin")) await updateSection("override-list", showOverrides);
}

async function updateSection(id, show) {
  const problem = await show().then(() => "", (error) => `Not up to date: ${problemOf(error)}.`);
  const shown = $(id).querySelector(".problem");
  if (problem === (shown?.textContent ?? "")) return;
  shown?.remove();
  if (problem) $(id).querySelector("h2").after(element("p", { className: "problem bad", text: problem }));
}

/** Updates the counters. This request alone decides whether the page is stale. */
async function pollLive() {
  asking();
  if (page.version === null) await ask("ui/api/session");
  else await pollCounters();
  answered();
}

async function pollCounters() {
  const now = await ask("ui/api/live", { domain: page.domain, search: $("search").value }).catch((error) => {
    // The policy shows that a domain is gone.
    if (error.status !== 404) throw error;
    return { version: null };
  });
  const isRestarted = before && now.at_ms < before.at_ms;
  if (now.version === page.version && !isRestarted) return showLive(now);
  // Once this poll is over.
  setTimeout(loadPolicy);
}

function failed(error) {
  if (error.status === 401) return begin();
  unanswered(problemOf(error));
}

/** The rates of the counters since the last poll, per second. */
function rates(now, seconds) {
  const since = (value, earlier) => (seconds > 0 && value !== null ? (value - (earlier ?? 0)) / seconds : null);
  const checks = [0, 1, 2].map((at) => since(now.checks?.[at] ?? null, before?.checks?.[at]));
  const sum = (counts) => Object.values(counts ?? {}).reduce((total, count) => total + count, 0);
  return {
    since,
    allowed: checks[0],
    refused: checks[1],
    failed: checks[2],
    decisions: checks[0] === null ? null : checks[0] + checks[1],
    unmatched: since(now.unmatched ?? null, before?.unmatched),
    degraded: now.degraded ? since(sum(now.degraded), sum(before?.degraded)) : null,
  };
}

function showLive(now) {
  const counts = new Map(now.limits.map(([index, ...row]) => [index, row]));
  const seconds = before ? (now.at_ms - before.at_ms) / 1000 : 0;
  const { since, ...seen } = rates(now, seconds);
  showRates((index) => {
    const [count, earlier] = [counts.get(index) ?? [0, 0, 0], before?.counts.get(index) ?? [0, 0, 0]];
    return [since(count[0], earlier[0]), since(count[1] + count[2], earlier[1] + earlier[2])];
  });
  const affected = (seen.degraded ?? 0) + (now.store && page.mode === "error" ? (seen.failed ?? 0) : 0);
  const isDegraded = showDegraded(now.store, Math.round(affected * seconds), affected);
  if (seconds > 0) {
    const trips = (of) => of?.round_trips.counts.reduce((total, count) => total + count, 0) ?? null;
    keep({
      ...seen,
      at: Date.now(),
      isDegraded,
      latency50: quantile(0.5, now.latency, before.latency),
      latency99: quantile(0.99, now.latency, before.latency),
      trips: now.store ? since(trips(now.store), trips(before.store)) : null,
      trip50: now.store && quantile(0.5, now.store.round_trips, before.store?.round_trips),
      trip99: now.store && quantile(0.99, now.store.round_trips, before.store?.round_trips),
    });
  }
  before = { ...now, counts };
  showFigures(now, seen);
  showStoreCharts(now.store !== null);
  showServers(now.store);
  showKeys(now);
}

function showFigures(now, seen) {
  for (const [id, kind] of [
    ["allowed", "good"],
    ["refused", "bad"],
    ["failed", "bad"],
    ["unmatched", "warn"],
  ]) {
    $(id).textContent = rate(seen[id]);
    $(id).className = seen[id] > 0 ? kind : "";
  }
  $("unmatched-about").hidden = !(seen.unmatched > 0);
  $("states").textContent = number(now.states);
}

// ---- wiring

async function onRoute() {
  const { domain, filter, search } = route();
  showView();
  proposeKey();
  if ((domain ?? page.domain) !== page.domain) {
    page.domain = domain;
    forgetDomain();
    if (page.version !== null) await loadPolicy();
  } else if (page.version !== null && (filter ?? "") !== $("filter").value) {
    $("filter").value = filter ?? "";
    await filterTree();
  }
  if ((search ?? "") !== $("search").value) $("search").value = search ?? "";
  await inspectRoute();
  if (["usage", "overrides"].includes(route().view)) await poll();
}

$("search").oninput = calmly(() => {
  correct({ search: $("search").value || null });
  poll();
});
$("search").value = route().search ?? "";
$("find-key").onsubmit = (event) => event.preventDefault();
$("domain").onchange = changeDomain;
$("token-form").onsubmit = () => {
  page.token = $("token").value.trim();
  begin();
};
$("sign-in").oncancel = (event) => event.preventDefault();
$("forget").onclick = () => location.reload();
document.addEventListener("visibilitychange", () => document.hidden || poll());
addEventListener("hashchange", onRoute);
// The fragment is the route, so the link to the content cannot be one.
$("skip").onclick = (event) => {
  event.preventDefault();
  $("main").focus();
};
showView();
proposeKey();
begin();
