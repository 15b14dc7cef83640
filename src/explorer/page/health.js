// Health: stale data, degraded decisions.

import { clock, element, number, rate, time } from "./draw.js";
import { interrupt } from "./history.js";
import { $, page } from "./page.js";

/** The data counts as stale if an answer takes longer. */
const STALE_MS = 3000;
/** Time after the last degraded decision until the store counts as healthy again. */
const CALM_MS = 6000;

const MODES = {
  local: "each replica decides alone: N replicas together may allow up to N times each limit",
  allow: "every check is allowed, and nothing is counted",
  deny: "every check is refused",
  error: "every check fails",
};

// ---- stale

const freshness = { at: null, requested: null, problem: "" };

/** A poll starts. */
export function asking() {
  freshness.requested = Date.now();
}

/** The poll was answered. */
export function answered() {
  Object.assign(freshness, { at: Date.now(), requested: null, problem: "" });
  showFreshness();
}

/** The poll failed. */
export function unanswered(problem) {
  Object.assign(freshness, { requested: null, problem });
  showFreshness();
}

function showFreshness() {
  const { at, requested, problem } = freshness;
  const isLate = requested !== null && Date.now() - requested > STALE_MS;
  const isStale = problem !== "" || isLate;
  $("stale").hidden = !isStale;
  document.body.classList.toggle("is-stale", isStale);
  if (isStale) {
    interrupt();
    const why = problem || "the service has taken more than 3 s to answer";
    tell("stale", at === null ? `No data: ${why}.` : `Stale since ${clock(at)}: ${why}. The data below is from then.`);
    report("stale", true);
  } else if (at !== null) report("live");
}

setInterval(() => freshness.requested !== null && showFreshness(), 500);

/** Shows the status of the whole page. */
export function report(text, isWrong = false) {
  tell("status", text);
  $("status").classList.toggle("wrong", isWrong);
}

/** Sets a text only if it changes, so that screen readers read it once. */
function tell(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

// ---- degraded

/** The degraded decisions of the current outage. */
let episode = null;
let hasWatched = false;

/** Forgets the outage: the counters of another domain are shown. */
export function forgetEpisode() {
  episode = null;
  hasWatched = false;
}

/** `affected`: checks since the last poll that were decided without the store, or failed because of it. Returns whether decisions
 * are degraded. */
export function showDegraded(store, affected, perSecond) {
  const now = Date.now();
  const down = (store?.servers ?? []).filter((server) => !server.up);
  if (down.length || affected > 0) {
    episode ??= { count: 0, from: now, watched: hasWatched };
    episode.count += affected;
    episode.last = now;
  } else if (episode && now - episode.last > CALM_MS) episode = null;
  hasWatched = true;
  $("degraded").hidden = !episode;
  if (!episode) return false;
  const since = Math.min(episode.from, ...down.map((server) => now - server.down_for_ms));
  const isNow = page.mode === "error" ? "checks fail" : "checks are decided";
  tell("degraded-title", `Degraded: ${isNow} without the shared store`);
  const counted = episode.watched ? `since ${clock(since)}` : `since this page was opened at ${clock(episode.from)}`;
  tell("degraded-count", `${rate(perSecond)} checks/s now, ${number(episode.count)} ${counted}`);
  $("degraded-mode").replaceChildren(
    element("code", { text: `on_store_failure: ${page.mode}` }),
    ` – ${MODES[page.mode] ?? ""}`,
  );
  tell("degraded-since", `${clock(since)} (${time((now - since + 1000) * 1000)})`);
  const servers = down.map((server) =>
    element("div", {}, element("code", { text: server.server }), ` – ${server.cause || "down"}`),
  );
  $("degraded-servers").replaceChildren(
    ...(servers.length ? servers : ["no circuit breaker is open; single round trips fail or are late"]),
  );
  return true;
}

/** The servers of a shared store. */
export function showServers(store) {
  $("servers").hidden = !store;
  $("server-rows").replaceChildren(
    ...(store?.servers ?? []).map((server) =>
      element(
        "tr",
        {},
        element("td", {}, element("code", { text: server.server })),
        element("td", {
          className: server.up ? "good" : "bad",
          text: server.up ? "up" : `down for ${time(server.down_for_ms * 1000)}: circuit breaker open`,
        }),
        element("td", { className: "number", text: number(server.waiting) }),
      ),
    ),
  );
}
