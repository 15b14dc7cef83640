// A draft of a policy, compared with the policy in force by the checks of the last minutes.

import { element, number, time } from "./draw.js";
import { $, ask, page, say } from "./page.js";
import { keyLink } from "./route.js";

const counts = (of) => (of ? `${number(of.allowed)} allowed, ${number(of.refused)} refused` : "–");

/** Increases with each comparison, so that answers to an older one are dropped. */
let comparison = 0;

/** Deletes the result: another domain is shown. */
export function forgetComparison() {
  comparison += 1;
  say("traffic-done", "");
  $("traffic-about").textContent = "";
  for (const id of ["traffic-limits", "traffic-keys"]) $(id).hidden = true;
}

async function onCompare(event) {
  event.preventDefault();
  forgetComparison();
  const mine = comparison;
  say("traffic-done", "running …");
  try {
    const draft = $("traffic-draft").value;
    const found = await ask("ui/api/traffic", { domain: page.domain, draft: draft.trim() === "" ? "" : draft });
    if (mine === comparison) show(found);
  } catch (error) {
    if (mine === comparison) say("traffic-done", error.message, "bad");
  }
}

function show(found) {
  if (!found.recorded) return say("traffic-done", "No checks are recorded: http.ui.max_traffic_bytes is 0.", "warn");
  const { checks, differing, draft, in_force, keys, left_out, limits, one_of, span_us, then } = found;
  const without = left_out
    ? ` ${number(left_out)} checks are left out: a segment of over 64 bytes is recorded as a hash, which no pattern and no name of over 64 bytes can be compared with.`
    : "";
  if (!checks) return say("traffic-done", `No check of this domain was recorded in the last minutes.${without}`, "warn");
  const lines = [`Policy in force: ${counts(in_force)}`];
  if (draft) {
    lines.unshift(`Draft: ${counts(draft)}`);
    const less = `${number(differing.refused)} checks newly refused, ${number(differing.allowed)} newly allowed`;
    const ofKeys = `${number(differing.keys)} ${differing.keys === 1 ? "key" : "keys"}`;
    lines.push(differing.keys ? `${less}, of ${ofKeys}` : "Both treat every check alike.");
  }
  say("traffic-done", lines.join("\n"));
  const part =
    one_of > 1
      ? ` They are those of one key in ${number(one_of)}, told apart by two segments: limits that more keys share see only a part of theirs.`
      : "";
  $("traffic-about").textContent =
    `${number(checks)} checks within ${time(span_us)}, of which ${counts(then)} when they came.${part}${without}`;
  const cell = (label, of) => element("td", { data: { label }, text: counts(of) });
  const limitRow = (limit) =>
    element(
      "tr",
      {},
      element("td", { data: { label: "Limit" } }, element("b", { text: limit.name })),
      cell("In force", limit.in_force),
      cell("Draft", limit.draft),
    );
  fill("traffic-limits", limits.map(limitRow));
  fill("traffic-keys", keys.map(keyRow));
}

function keyRow({ allowed, hashed, key, refused }) {
  const count = (label, value) => element("td", { className: "number", data: { label }, text: number(value) });
  return element(
    "tr",
    {},
    element("td", { data: { label: "Key" } }, keyLink(key, hashed)),
    count("Newly refused", refused),
    count("Newly allowed", allowed),
  );
}

function fill(id, rows) {
  $(id).tBodies[0].replaceChildren(...rows);
  $(id).hidden = rows.length === 0;
}

$("traffic-form").onsubmit = onCompare;
