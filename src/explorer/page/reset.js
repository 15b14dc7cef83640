// The dialog before a reset: exactly which counts are deleted.

import { element, number } from "./draw.js";
import { $, written } from "./page.js";

/** Asks whether to reset a key with these limits. A subtree must be confirmed by typing its key. */
export async function confirmReset({ domain, key }, subtree, levels) {
  const name = written(key);
  $("sure-title").textContent = subtree ? "Reset a key and every key below it?" : "Reset one key?";
  $("sure-what").textContent = "Its counts start again from zero at once, for all clients. This cannot be undone.";
  $("sure-domain").textContent = domain === "" ? "(default)" : domain;
  $("sure-key").textContent = name;
  $("sure-below").textContent = subtree
    ? `reset too: all keys that start with ${name}/, however many`
    : "not reset: they keep their counts";
  $("sure-lost").replaceChildren(...lost(key, subtree, levels));
  const above = levels.filter(({ depth }) => depth < key.length).map((level) => level.name);
  const kept = [...(above.length ? [`${above.join(", ")}: limits of shorter keys`] : []), ...(subtree ? [] : ["keys below"])];
  $("sure-kept").textContent = kept.join("; ") || "–";
  $("sure-yes").textContent = subtree ? `Reset ${name} and all keys below it` : `Reset ${name}`;
  $("sure-typed-label").hidden = !subtree;
  $("sure-typed").value = "";
  const check = () => {
    $("sure-yes").disabled = subtree && $("sure-typed").value !== name;
  };
  $("sure-typed").oninput = check;
  check();
  $("sure").returnValue = "";
  $("sure").showModal();
  (subtree ? $("sure-typed") : $("sure-no")).focus();
  await new Promise((closed) => $("sure").addEventListener("close", closed, { once: true }));
  return $("sure").returnValue === "yes";
}

/** The counts of the limits of exactly this key. */
function lost(key, subtree, levels) {
  const own = levels.filter(({ depth }) => depth === key.length);
  const used = ({ limit, remaining }) => `${number(limit - remaining)} of ${number(limit)} used`;
  const lines = own.map((level) => `${level.name}: ${used(level)}`);
  if (!own.length) lines.push(subtree ? "nothing of this key itself" : "nothing: no limit counts exactly this key");
  if (subtree) lines.push("all counts of the keys below it");
  return lines.map((text) => element("li", { text }));
}

// Enter in the text field must not choose the first button, which is "Cancel", nor confirm an incomplete key.
$("sure-typed").onkeydown = (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  if (!$("sure-yes").disabled) $("sure-yes").click();
};
