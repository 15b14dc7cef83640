// The state of one key.

import { bar, element, number, time } from "./draw.js";
import { $, ask, may, page, problemOf, say, segmentsOf, written } from "./page.js";
import { confirmReset } from "./reset.js";
import { go, route } from "./route.js";

/** The inspected key, and the last answer. */
let wanted = null;
let seen = null;

/** Inspects the key of the URL, if there is one. */
export async function inspectRoute() {
  const { key, cost } = route();
  const typed = document.activeElement === $("key");
  if (!typed) $("key").value = key ?? "";
  if (key) $("sim-key").value = key;
  $("cost").value = cost ?? "1";
  $("reset-done").textContent = "";
  hide();
  wanted = key && may("check") ? { domain: page.domain, key: segmentsOf(key), cost: Number(cost ?? 1) } : null;
  await inspect();
}

/** Updates the state of the inspected key, or says why it is not known. */
export async function inspect() {
  if (!wanted) return;
  const asked = wanted;
  try {
    const answer = await ask("ui/api/key", asked);
    if (wanted === asked) show(answer);
  } catch (error) {
    if (wanted !== asked) return;
    hide();
    say("verdict", problemOf(error), "bad");
  }
}

function show(answer) {
  seen = answer;
  say("verdict", ...verdict(answer));
  $("levels").hidden = !answer.levels.length;
  $("levels").tBodies[0].replaceChildren(...answer.levels.map((level, at) => levelRow(level, at === answer.binding)));
  $("resets").hidden = !may("reset");
  $("overriding").hidden = !may("admin");
}

function hide() {
  seen = null;
  say("verdict", "");
  $("levels").hidden = $("resets").hidden = $("overriding").hidden = true;
}

function verdict({ allowed, ban_reason, binding, degraded, levels, never, override, retry_after_us, unlimited }) {
  const by = override ? ` (override ${override})` : "";
  if (ban_reason) {
    const end = never ? "until the ban is ended" : `for ${time(retry_after_us)}`;
    return [`Banned ${end}: ${ban_reason}${by}.`, "bad"];
  }
  if (!levels.length && override) return [`Unlimited: an override lifts the limits of this key${by}.`, "good"];
  const how = (degraded ? " (degraded: decided without the shared store)" : "") + by;
  if (!levels.length && unlimited) return ["Unlimited: a factor of 0 lifts the limits of this key.", "good"];
  if (!levels.length) return ["No limit matches this key: every request is allowed.", "warn"];
  if (allowed) return [`A cost of ${wanted.cost} is allowed${how}.`, "good"];
  const when = never ? "; no wait will help" : `; allowed again in ${time(retry_after_us)}`;
  return [`A cost of ${wanted.cost} is refused by ${levels[binding].name}${when}${how}.`, "bad"];
}

function levelRow(level, isBinding) {
  const refused = level.never ? "refused; no wait will help" : `refused for ${time(level.retry_after_us)}`;
  const allowed = level.wait_us > 0 ? `allowed, after a wait of ${time(level.wait_us)}` : "allowed";
  const name = element(
    "td",
    { data: { label: "Limit" } },
    element("b", { text: level.name }),
    ...[level.shadow && "shadow", isBinding && "binding"].flatMap((mark) =>
      mark ? [" ", element("span", { className: "mark", text: mark })] : [],
    ),
    element("code", { text: `${level.algorithm} ${level.parameters}` }),
    element("code", { text: `counts ${written(wanted.key.slice(0, level.depth))}` }),
    ...holds(level),
  );
  const left = `${number(level.remaining)} of ${number(level.limit)}`;
  return element(
    "tr",
    { className: isBinding ? "binding" : "" },
    name,
    element("td", { data: { label: "Left" } }, left, bar(level.remaining, level.limit)),
    element("td", {
      data: { label: "This request" },
      className: level.allowed ? "good" : "bad",
      text: level.allowed ? allowed : refused,
    }),
    element("td", { data: { label: "Full again in" }, text: time(level.reset_after_us) }),
  );
}

/** The owners of units of a level: replicas and clients that lease them, and clients that have reserved them. */
function holds({ holds }) {
  if (!holds.length) return [];
  const total = holds.reduce((sum, { units }) => sum + units, 0);
  const each = holds.map(({ owner, own, units, expires_after_us }) => {
    const who = own ? "this replica" : owner ? `lease ${owner}` : "reservations";
    return `${who} ${number(units)} for ${time(expires_after_us)}`;
  });
  return [element("code", { className: "holds", text: `held: ${number(total)} (${each.join("; ")})` })];
}

async function onReset(subtree) {
  const asked = wanted;
  if (!(await confirmReset(asked, subtree, seen.levels))) return;
  try {
    const done = await ask("v1/reset", { domain: asked.domain, key: asked.key, subtree });
    const key = written(asked.key);
    const reset = subtree ? `${key} and all keys below it are reset.` : `${key} is reset.`;
    const nothing = subtree ? `Neither ${key} nor a key below it had counts.` : `${key} had no counts of its own.`;
    $("reset-done").textContent = done.removed ? reset : nothing;
    await inspect();
  } catch (error) {
    say("verdict", error.message, "bad");
  }
}

$("look").onsubmit = (event) => {
  event.preventDefault();
  const cost = $("cost").value;
  const changes = { view: "keys", key: $("key").value, cost: cost === "1" ? null : cost };
  const { key, cost: before } = route();
  if (changes.key === key && changes.cost === before) inspectRoute();
  else go(changes);
};
$("reset").onclick = () => onReset(false);
$("reset-below").onclick = () => onReset(true);
