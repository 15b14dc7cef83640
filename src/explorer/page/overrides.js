// Overrides and bans: set, see and end them, and see the audit log.

import { element } from "./draw.js";
import { $, ask, page, say, segmentsOf, written } from "./page.js";
import { go, keyLink, route } from "./route.js";

/** Most overrides that are shown. */
const MOST_SHOWN = 200;

/** The key of the URL that the form was last filled in with, and the answers last shown. */
let proposed = null;
let shown = "";

/** Fills in the key of the URL, once: what is typed over it stays, also in another domain. */
export function proposeKey() {
  const { key } = route();
  if (key !== null && key !== proposed) $("override-key").value = key;
  proposed = key;
}

/** Another domain is shown: what was said of the last one, and that all of its keys are meant, does not hold. */
export function forgetOverride() {
  $("override-all").checked = false;
  say("override-done", "");
  $("override-effects").replaceChildren();
}

/** Shows the overrides of the domain, and the last changes. */
export async function showOverrides() {
  const answers = await Promise.all([
    ask("v1/admin/list_overrides", { domain: page.domain ?? "", pageSize: MOST_SHOWN }),
    ask("v1/admin/list_audit", { pageSize: 50 }),
  ]);
  // The focused element keeps the focus.
  if (JSON.stringify(answers) === shown) return;
  shown = JSON.stringify(answers);
  const [{ overrides, nextCursor }, { events, nextCursor: earlier }] = answers;
  $("override-rows").replaceChildren(...overrides.map(row));
  if (!overrides.length) $("override-rows").append(note(5, "none in this domain"));
  if (nextCursor) $("override-rows").append(note(5, `the first ${overrides.length}: weir overrides lists all`));
  $("audit-rows").replaceChildren(...events.map(change));
  if (!events.length) $("audit-rows").append(note(3, "none yet"));
  if (earlier) $("audit-rows").append(note(3, "earlier ones: weir audit --limit COUNT"));
}

const note = (columns, text) => element("tr", {}, element("td", { className: "about", colSpan: columns, text }));
const moment = (text) => new Date(text).toLocaleString("en-GB");
const pattern = (key) => (key.length ? written(key) : "all keys of the domain");

function described({ ban, factor, limits, shadow, unlimited }) {
  if (ban) return "banned";
  if (unlimited) return "unlimited";
  if (shadow) return "shadow";
  if (limits) return `limits ${limits}`;
  if (!factor) return "this replica cannot read it";
  return factor < 1 ? `limits times ${Number((1 / factor).toFixed(6))}` : `limits divided by ${factor}`;
}

function row(one) {
  const end = element("button", { type: "button", text: "End", title: `End the override of ${pattern(one.key)}` });
  end.onclick = () => endOne(one);
  const begins = new Date(one.start) > new Date() ? `from ${moment(one.start)} ` : "";
  const isKey = one.key.length && !one.key.includes("*");
  const name = isKey ? keyLink(one.key) : pattern(one.key);
  return element(
    "tr",
    { className: one.ban ? "bad" : "" },
    element("td", { data: { label: "Keys" } }, name),
    element("td", { data: { label: "Change" }, text: described(one) }),
    element("td", { data: { label: "Until" }, text: begins + (one.end ? moment(one.end) : "it is ended") }),
    element("td", { data: { label: "Why" }, text: `${one.reason} (${one.author})` }),
    element("td", {}, end),
  );
}

function change({ actor, after, at, before }) {
  const of = after ?? before;
  const what = !of
    ? "a change that this version cannot read"
    : `${after ? "set" : "ended"} ${pattern(of.key)}${of.domain ? ` of ${of.domain}` : ""}: ${described(of)}; ${of.reason}`;
  return element("tr", {}, ...[moment(at), actor, what].map((text) => element("td", { text })));
}

async function endOne({ domain, key }) {
  try {
    const { ended } = await ask("v1/admin/end_override", { domain, key });
    say("override-done", ended ? `The override of ${pattern(key)} has ended.` : "It had ended already.", "good");
    await showOverrides();
  } catch (error) {
    say("override-done", error.message, "bad");
  }
}

/** The contents of the form. Throws an error that says what is missing or wrong. */
function wanted() {
  const [typed, isAll] = [$("override-key").value, $("override-all").checked];
  // A field that was left empty by mistake must not concern every client.
  if (!typed && !isAll) throw new Error("Type a key, or check “all keys of the domain”.");
  if (typed && isAll) throw new Error("Either a key or “all keys of the domain”, not both.");
  const [kind, value] = [$("override-change").value, $("override-value").value];
  // JSON has no infinity, and no number for what is none.
  if (kind === "times" && !(Number(value) > 0)) throw new Error(`“${value}” is not a number above 0, such as 10 or 0.5.`);
  const changes = {
    times: { factor: 1 / Number(value) },
    limits: { limits: value },
    unlimited: { unlimited: true },
    shadow: { shadow: true },
    ban: { ban: true },
  };
  const override = {
    domain: page.domain ?? "",
    key: typed ? segmentsOf(typed) : [],
    reason: $("override-reason").value,
    ...changes[kind],
  };
  const hours = Number($("override-hours").value);
  return hours > 0 ? { override, ttl: `${Math.round(hours * 3600)}s` } : { override };
}

async function set(dryRun) {
  try {
    const { effects, override, replaced } = await ask("v1/admin/set_override", { ...wanted(), dryRun });
    const instead = replaced ? `, in place of: ${described(replaced)}` : "";
    say("override-done", `${dryRun ? "Would set" : "Set"} ${pattern(override.key)}: ${described(override)}${instead}.`, "good");
    const changes = effects.filter(({ after, before }) => after !== before);
    const lines = changes.map(({ after, before, limit }) => `${limit}: ${before} → ${after}`);
    if (override.ban && !effects.length)
      lines.push("No limit of the policy is at the pattern or below; the ban is in force all the same.");
    if (!override.ban && !changes.length) lines.push("No limit of the policy is changed.");
    for (const segment of override.key)
      if (segment.includes("*") && segment !== "*")
        lines.push(`“${segment}” is not a wildcard: only a segment of just that text matches it.`);
    $("override-effects").replaceChildren(...lines.map((text) => element("li", { text })));
    if (!dryRun) await showOverrides();
  } catch (error) {
    say("override-done", error.message, "bad");
    $("override-effects").replaceChildren();
  }
}

function showValue() {
  const kind = $("override-change").value;
  $("override-value-label").hidden = !["times", "limits"].includes(kind);
  $("override-value").value = kind === "times" ? "10" : "";
  $("override-value").placeholder = kind === "limits" ? "{ name: per-user, gcra: { burst: 99, count: 30, period: 60s } }" : "";
}

$("override-change").onchange = showValue;
$("override-form").onsubmit = (event) => {
  event.preventDefault();
  set(event.submitter?.id === "override-try");
};
$("override-this").onclick = () => {
  proposed = null;
  proposeKey();
  go({ view: "overrides" });
};
showValue();
