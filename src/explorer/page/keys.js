// Hot keys, one row each.

import { bar, element, rate } from "./draw.js";
import { $, written } from "./page.js";
import { keyLink } from "./route.js";

/** Shows the lists, and suggests their keys in input fields. */
export function showKeys({ near, busy }) {
  showList("near", near);
  showList("busy", busy);
  const known = new Set([...near, ...busy].map(({ key }) => written(key)));
  $("known").replaceChildren(...[...known].map((key) => element("option", { value: key })));
}

function showList(id, keys) {
  // The focused element keeps the focus, though the rows are created again.
  const focused = $(id).contains(document.activeElement) ? document.activeElement.textContent : null;
  $(id).replaceChildren(...keys.map(row));
  if (!keys.length) {
    const text = $("search").value ? "no hot key contains this text" : "none of late";
    $(id).append(element("tr", {}, element("td", { className: "about", colSpan: 3, text })));
  }
  if (focused !== null) [...$(id).querySelectorAll("a")].find((anchor) => anchor.textContent === focused)?.focus();
}

function row({ key, limits }) {
  const most = (field) => limits.reduce((one, other) => (other[field] > one[field] ? other : one));
  const asked = most("per_second");
  const refused = most("refused_per_second").refused_per_second;
  const cell = element("td", { className: "number", text: rate(asked.per_second) });
  if (asked.error_per_second > asked.per_second / 10) {
    cell.textContent = `≤ ${rate(asked.per_second)}`;
    cell.title = `at least ${rate(asked.per_second - asked.error_per_second)}`;
  }
  const refusals = element("td", { className: refused > 0 ? "number bad" : "number", text: rate(refused) });
  return element("tr", {}, element("td", {}, keyLink(key), ...limits.map(left)), cell, refusals);
}

function left(limit) {
  const name = limit.name + (limit.shadow ? " (shadow)" : "");
  const text = `${limit.remaining.toLocaleString("en")} of ${limit.of.toLocaleString("en")}`;
  const title = `${Math.round(limit.seconds_ago)} s ago`;
  return element(
    "div",
    { className: "left", title },
    element("span", { className: "name", text: name }),
    bar(limit.remaining, limit.of),
    element("span", { className: "of", text }),
  );
}
