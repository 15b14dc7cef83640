// Usage: the keys that are fullest, and the replicas. Both are the operators' API.

import { bar, element, number, rate, time } from "./draw.js";
import { $, ask, page, problemOf, segmentsOf } from "./page.js";
import { keyLink } from "./route.js";

/** Rows read per press of the button, and rows of a page. */
const MAX_READ = 10_000;
const PAGE = 500;
/** Maximum of rows shown: the fullest ones. */
const MAX_SHOWN = 100;

/** What the list says before it has rows. */
const ABOUT = $("usage-read").textContent;

/** The rows read so far: their number, the fullest of them, and the cursor of the next page; empty: the end. */
const NOTHING = { count: 0, fullest: [], cursor: "" };
let read = NOTHING;
/** Increases with each new list, so that answers for an older one are dropped. */
let list = 0;

/** Parses a duration of the API to microseconds. */
const micros = (text) => Math.round(Number.parseFloat(text) * 1e6);

const share = (row) => Number(row.used) / Math.max(1, Number(row.limit));

/** Reads the next rows, and shows the fullest ones. */
async function readOn(mine) {
  const wanted = read.count + MAX_READ;
  const text = $("usage-prefix").value;
  const query = { domain: page.domain ?? "", prefix: text ? segmentsOf(text) : [], pageSize: PAGE };
  $("usage-more").hidden = true;
  do {
    const { keys, nextCursor } = await ask("v1/admin/list_keys", { ...query, cursor: read.cursor });
    if (mine !== list) return;
    const fullest = [...read.fullest, ...keys.filter((row) => row.known)];
    fullest.sort((one, other) => share(other) - share(one));
    read = { count: read.count + keys.length, fullest: fullest.slice(0, MAX_SHOWN), cursor: nextCursor };
    show();
  } while (read.cursor && read.count < wanted);
  $("usage-more").hidden = !read.cursor;
}

function show() {
  const shown = Math.min(read.fullest.length, MAX_SHOWN);
  const more = read.cursor ? "; there are more" : "";
  $("usage-read").textContent = `${number(read.count)} rows read${more}. The ${number(shown)} fullest:`;
  $("usage-rows").replaceChildren(...read.fullest.map(row));
  $("usage-table").hidden = !shown;
}

function row(found) {
  const [used, limit] = [Number(found.used), Number(found.limit)];
  const held = Number(found.outstanding);
  const cells = [
    element("td", {}, keyLink(found.key, found.hashed), element("div", { className: "about", text: found.limitName + (found.shadow ? " (shadow)" : "") })),
    element("td", { className: found.atLimit ? "bad" : "", data: { label: "Used" } }, bar(limit - used, limit), ` ${number(used)} of ${number(limit)}`),
    element("td", { className: "number", data: { label: "Leased or reserved" }, text: number(held) }),
    element("td", { className: "number", data: { label: "Full again in" }, text: time(micros(found.resetAfter)) }),
  ];
  return element("tr", {}, ...cells);
}

/** Shows the replicas as they are now. */
export async function showReplicas() {
  const { replicas } = await ask("v1/admin/list_replicas", {});
  const hashes = new Set(replicas.map((replica) => replica.policyHash));
  $("replicas-differ").hidden = hashes.size < 2;
  $("replica-rows").replaceChildren(...replicas.map(replica));
}

function replica(found) {
  const up = found.storeHealthy;
  const cell = (label, className, ...children) => element("td", { className, data: { label } }, ...children);
  const cells = [
    element("td", { text: found.address + (found.answering ? " (answers here)" : ""), title: found.id }),
    cell("Version", "", found.version),
    cell("Policy", "", element("code", { text: found.policyHash || "none" })),
    cell("Uptime", "number", time(micros(found.uptime))),
    cell("Store", up ? "good" : "bad", up ? "up" : "down"),
    cell("Degraded/s", found.degradedPerSecond > 0 ? "number bad" : "number", rate(found.degradedPerSecond)),
  ];
  return element("tr", {}, ...cells);
}

/** Empties the list: another one starts, or another domain is shown. */
export function forgetUsage() {
  list += 1;
  read = NOTHING;
  $("usage-read").textContent = ABOUT;
  $("usage-table").hidden = $("usage-more").hidden = true;
}

/** Reads the next rows of the list, or says why it cannot. */
function readList() {
  const mine = list;
  readOn(mine).catch((error) => {
    if (mine !== list) return;
    $("usage-read").textContent = problemOf(error);
    $("usage-more").hidden = !read.cursor;
  });
}

$("usage-form").onsubmit = (event) => {
  event.preventDefault();
  forgetUsage();
  readList();
};
$("usage-more").onclick = readList;
