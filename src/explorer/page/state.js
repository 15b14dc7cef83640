// The state of one key.

import { bar, element, time } from "./draw.js";
import { $, ask, may, page, report, say, segmentsOf, written } from "./page.js";

/** Shows what a request would be answered now. */
export async function look(wanted) {
  const seen = await ask("ui/api/key", wanted);
  if (page.looked !== wanted) return;
  showState(wanted, seen);
}

function showState(wanted, seen) {
  const degraded = seen.degraded ? " (the shared store does not answer)" : "";
  const binding = seen.binding === null ? null : seen.levels[seen.binding];
  if (!binding) say("verdict", "No limit applies: it passes.", "good");
  else if (seen.allowed) say("verdict", `A cost of ${wanted.cost} passes${degraded}.`, "good");
  else
    say(
      "verdict",
      `A cost of ${wanted.cost} is refused by ${binding.name}${seen.never ? " for ever" : `; it passes after ${time(seen.retry_after_us)}`}${degraded}.`,
      "bad",
    );
  $("levels").hidden = !seen.levels.length;
  $("levels").tBodies[0].replaceChildren(
    ...seen.levels.map((level, at) => levelRow(wanted, level, at === seen.binding)),
  );
  $("resets").hidden = !may("reset");
}

function levelRow(wanted, level, isBinding) {
  const wait = level.never ? "never passes" : `passes after ${time(level.retry_after_us)}`;
  const passes = level.wait_us > 0 ? `passes, to start in ${time(level.wait_us)}` : "passes";
  const name = element(
    "td",
    { text: level.name + (level.shadow ? " (shadow)" : "") },
    element("br"),
    element("code", { text: `${level.algorithm} ${level.parameters}` }),
  );
  return element(
    "tr",
    { className: isBinding ? "binding" : "" },
    name,
    element("td", { text: written(wanted.key.slice(0, level.depth)) }),
    element("td", { text: `${level.remaining} of ${level.limit}` }, bar(level.remaining, level.limit)),
    element("td", { className: level.allowed ? "good" : "bad", text: level.allowed ? passes : wait }),
    element("td", { text: time(level.reset_after_us) }),
  );
}

async function onLook(event) {
  event.preventDefault();
  page.looked = { domain: page.domain, key: segmentsOf($("key").value), cost: Number($("cost").value) };
  try {
    await look(page.looked);
  } catch (error) {
    forgetKey();
    say("verdict", error.message, "bad");
  }
}

/** Shows no key any more. */
export function forgetKey() {
  page.looked = null;
  say("verdict", "");
  $("levels").hidden = $("resets").hidden = true;
}

async function onReset(subtree) {
  const { domain, key } = page.looked;
  $("sure-what").textContent =
    `All counts of ${written(key)}${subtree ? ", and of every key below it," : ""} are forgotten.`;
  $("sure").returnValue = "";
  $("sure").showModal();
  await new Promise((closed) => $("sure").addEventListener("close", closed, { once: true }));
  if ($("sure").returnValue !== "yes") return;
  try {
    const done = await ask("v1/reset", { domain, key, subtree });
    await look(page.looked);
    report(done.existed ? `${written(key)} is reset` : `${written(key)} had no counts of its own`);
  } catch (error) {
    say("verdict", error.message, "bad");
  }
}

$("look").onsubmit = onLook;
$("reset").onclick = () => onReset(false);
$("reset-below").onclick = () => onReset(true);
