// The policy as a tree, with the rates of each limit.

import { element, number, rate } from "./draw.js";
import { $, ask, calmly, page, problemOf } from "./page.js";
import { correct, route } from "./route.js";

/** Larger trees are collapsed at first. */
const MOST_OPEN = 40;

/** The elements of each limit that change, by the limit's number. */
const rows = new Map();

function setOpen(isOpen) {
  for (const details of $("tree").querySelectorAll("details")) details.open = isOpen;
}

/** Loads the tree for a changed filter, or says why it cannot. */
export async function filterTree() {
  await loadTree().catch(showProblem);
}

function showProblem(error) {
  $("matches").textContent = problemOf(error);
}

/** Loads the policy of the shown domain, or else of the first one, and shows it filtered. */
export async function loadTree() {
  const filter = route().filter ?? "";
  const answer = await ask("ui/api/policy", { domain: page.domain, filter });
  // Another filter has been typed in the meantime.
  if (filter !== (route().filter ?? "")) return;
  page.version = answer.version;
  page.domain = answer.domain.name;
  page.mode = new Map(answer.domain.settings).get("on_store_failure");
  if (document.activeElement !== $("filter")) $("filter").value = filter;
  const named = answer.domains.includes(page.domain) ? answer.domains : [page.domain, ...answer.domains];
  const option = (name) => new Option(name === "" ? "(default)" : name, name, false, name === page.domain);
  $("domain").replaceChildren(...named.map(option));
  showFacts(answer);
  rows.clear();
  const isOpen = filter !== "" || answer.nodes.length <= MOST_OPEN;
  $("tree").replaceChildren(...branch(answer.nodes, null, isOpen, filter), ...others(answer));
}

function showFacts({ domain, domains_hidden, limits, matches, searched_all }) {
  const facts = [
    ["format", domain.format],
    ...domain.settings,
    ["limits in all domains", number(limits)],
  ];
  if (domains_hidden) facts.push(["domains not listed", number(domains_hidden)]);
  $("policy-about").replaceChildren(
    ...facts.map(([name, value]) => element("li", {}, `${name} `, element("b", { text: value }))),
  );
  const partly = searched_all ? "" : " among the first 100,000 nodes";
  if (domain.is_empty) $("matches").textContent = "No limits are configured: every check is allowed.";
  else if (matches === null) $("matches").textContent = "";
  else $("matches").textContent = `${number(matches)} ${matches === 1 ? "node matches" : "nodes match"}${partly}.`;
}

/** The items of a tree's nodes below one. */
function branch(nodes, below, isOpen, filter) {
  const byParent = Map.groupBy(nodes, (node) => node.parent);
  const item = (node) => {
    const children = byParent.get(node.id) ?? [];
    const head = element("span", { className: "segment" }, ...marked(node.segment, filter));
    const marks = node.marks.map((mark) => element("span", { className: "mark", text: mark }));
    const limits = element("div", {}, ...node.limits.map((limit) => limitRow(limit, filter)));
    const list = element("ul", {}, ...children.map(item));
    if (node.hidden) list.append(element("li", {}, moreButton(node, list, children.length > 0)));
    if (!list.children.length) return element("li", {}, element("div", { className: "leaf" }, head, ...marks), limits);
    const below = children.length + node.hidden;
    const count = element("span", { className: "count", text: `${number(below)} below` });
    return element("li", {}, element("details", { open: isOpen }, element("summary", {}, head, ...marks, count), limits, list));
  };
  return (byParent.get(below) ?? []).map(item);
}

/** A text with the filter's matches marked. */
function marked(text, filter) {
  const last = filter.split("/").at(-1).toLowerCase();
  const at = last ? text.toLowerCase().indexOf(last) : -1;
  if (at < 0) return [text];
  return [text.slice(0, at), element("mark", { text: text.slice(at, at + last.length) }), text.slice(at + last.length)];
}

/** Says how many nodes of the highest level are beyond the most that an answer has. */
function others({ hidden }) {
  return hidden ? [element("li", { className: "about", text: `… and ${number(hidden)} more: use the filter` })] : [];
}

function moreButton(node, list, hasOthers) {
  const text = `${number(node.hidden)} ${hasOthers ? "more" : "not shown"}`;
  const button = element("button", { type: "button", className: "link", text });
  button.onclick = async () => {
    try {
      const answer = await ask("ui/api/policy", { domain: page.domain, below: [node.id, page.version] });
      list.replaceChildren(...branch(answer.nodes, null, false, ""), ...others(answer));
    } catch (error) {
      showProblem(error);
    }
  };
  return button;
}

function limitRow(limit, filter) {
  const rates = element("span", { className: "rates", text: "–" });
  const shares = [element("span", { className: "share-good" }), element("span", { className: "share-bad" })];
  const title = `counted as ${limit.counted_as}`;
  const name = element("span", { className: "name", title }, ...marked(limit.name, filter));
  if (limit.shadow) name.append(element("span", { className: "mark", text: "shadow" }));
  if (limit.counts_apart) rows.set(limit.index, { rates, shares });
  else rates.textContent = "counted with others (metrics.max_limit_series)";
  const rule = element("code", { text: `${limit.algorithm} ${limit.parameters}` });
  const shown = element("span", { className: "bar" }, ...shares);
  return element("div", { className: "limit" }, name, rates, rule, shown);
}

/** Shows rates: `perSecond` returns the rates of a limit, allowed and refused. */
export function showRates(perSecond) {
  for (const [index, { rates, shares }] of rows) {
    const [allowed, refused] = perSecond(index);
    rates.replaceChildren(
      element("span", { text: `${rate(allowed)} allowed/s` }),
      " ",
      element("span", { className: refused > 0 ? "bad" : "", text: `${rate(refused)} refused/s` }),
    );
    const all = allowed + refused;
    shares[0].style.width = `${all ? (allowed / all) * 100 : 0}%`;
    shares[1].style.width = `${all ? (refused / all) * 100 : 0}%`;
  }
}

$("filter").oninput = calmly(() => {
  correct({ filter: $("filter").value || null });
  filterTree();
});
$("find").onsubmit = (event) => event.preventDefault();
$("expand").onclick = () => setOpen(true);
$("collapse").onclick = () => setOpen(false);
