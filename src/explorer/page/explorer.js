// The explorer: reads /ui/api, draws what it says. Whatever comes from the service is shown as text, never as markup.

import { bar, element, rate } from "./draw.js";
import { $, ask, may, page, report, written } from "./page.js";
import { forgetKey, look } from "./state.js";
import "./simulation.js";

const POLL_MS = 2000;
const OPEN_NODES = 80;

// ---- who calls

async function begin() {
  clearInterval(page.timer);
  try {
    const session = await ask("ui/api/session");
    page.roles = session.roles;
    $("version").textContent = session.weir;
  } catch (error) {
    return error.status === 401 ? signIn(error.message) : report(`the service does not answer: ${error.message}`, true);
  }
  $("forget").hidden = !page.token;
  $("no-reset").hidden = may("reset");
  for (const [id, role] of [
    ["policy", "metrics"],
    ["keys", "metrics"],
    ["simulation", "metrics"],
    ["state", "check"],
  ]) {
    deny($(id), may(role) ? null : role);
  }
  if (may("metrics")) await loadPolicy();
  else withoutPolicy();
  // Another beginning may have come in between.
  clearInterval(page.timer);
  page.timer = setInterval(poll, POLL_MS);
}

/** For who may not read which domains there are: their name is typed. */
function withoutPolicy() {
  if ($("domain").tagName === "SELECT")
    $("domain").replaceWith(element("input", { id: "domain", placeholder: "(default)", onchange: changeDomain }));
  report("");
}

/** Closes a part of the page to who lacks a role for it. */
function deny(section, role) {
  section.querySelector(".denied")?.remove();
  section.querySelectorAll("button, input, textarea").forEach((field) => {
    field.disabled = role !== null;
  });
  if (role)
    section.querySelector("h2").after(element("p", { className: "denied", text: `This takes the role “${role}”.` }));
}

function signIn(why) {
  report("waiting for a token");
  $("sign-in-why").textContent = page.token ? `The service says: ${why}.` : "Its pages need a bearer token.";
  $("token").value = "";
  if (!$("sign-in").open) $("sign-in").showModal();
}

// ---- the policy

async function loadPolicy() {
  let answer;
  try {
    answer = await ask("ui/api/policy", { domain: page.version === null ? null : page.domain });
  } catch (error) {
    if (error.status !== 404 || page.version === null) return failed(error);
    page.version = null;
    return loadPolicy();
  }
  page.version = answer.version;
  page.domain = answer.domain.name;
  page.before = null;
  const options = answer.domains.map(
    (name) => new Option(name === "" ? "(default)" : name, name, false, name === page.domain),
  );
  $("domain").replaceChildren(...options);
  const { format, charge, on_store_failure, limit_spec, anchor, is_empty } = answer.domain;
  const more = answer.domains_hidden ? `; ${answer.domains_hidden} more domains are not listed` : "";
  $("policy-about").textContent = is_empty
    ? "No limits are configured: everything passes."
    : `${format}; charge ${charge}; when the store fails: ${on_store_failure}; limits of requests: ${limit_spec}; anchor ${anchor}${more}`;
  page.rows.clear();
  $("tree").replaceChildren(...branch(answer.nodes, null));
  await poll();
}

/** The items of a tree's nodes below one. */
function branch(nodes, below) {
  const byParent = Map.groupBy(nodes, (node) => node.parent);
  const item = (node, depth) => {
    const children = byParent.get(node.id) ?? [];
    const head = element("span", { className: "segment", text: node.segment });
    const marks = node.marks.map((mark) => element("span", { className: "mark", text: mark }));
    const limits = element("div", {}, ...node.limits.map(limitRow));
    const list = element("ul", {}, ...children.map((child) => item(child, depth + 1)));
    if (node.hidden) list.append(element("li", {}, moreButton(node, list)));
    if (!list.children.length) return element("li", {}, head, ...marks, limits);
    const isOpen = nodes.length <= OPEN_NODES || depth < 1;
    return element(
      "li",
      {},
      element("details", { open: isOpen }, element("summary", {}, head, ...marks), limits, list),
    );
  };
  return (byParent.get(below) ?? []).map((node) => item(node, 0));
}

function moreButton(node, list) {
  const button = element("button", {
    type: "button",
    className: "link",
    text: `${node.hidden.toLocaleString("en")} more`,
  });
  button.onclick = async () => {
    try {
      const answer = await ask("ui/api/policy", { domain: page.domain, below: [node.id, page.version] });
      list.replaceChildren(...branch(answer.nodes, null));
      if (list.children.length < node.hidden) list.append(element("li", { className: "about", text: "… and others" }));
    } catch (error) {
      failed(error);
    }
  };
  return button;
}

function limitRow(limit) {
  const rates = element("span", { className: "rates", text: "–" });
  const shares = [element("span", { className: "share-good" }), element("span", { className: "share-bad" })];
  const name = element("span", { className: "name", text: limit.name, title: `counted as ${limit.counted_as}` });
  if (limit.shadow) name.append(element("span", { className: "mark", text: "shadow" }));
  if (limit.counts_apart) page.rows.set(limit.index, { rates, shares });
  else rates.textContent = "counted with others (metrics.max_limit_series)";
  const rule = element("code", { text: `${limit.algorithm} ${limit.parameters}` });
  return element(
    "div",
    { className: "limit" },
    name,
    rates,
    rule,
    element("span"),
    element("span", { className: "bar" }, ...shares),
  );
}

// ---- what changes

async function poll() {
  if (document.hidden || page.polling) return;
  page.polling = true;
  try {
    if (page.version !== null) await pollLive();
    if (page.looked) await look(page.looked);
  } catch (error) {
    failed(error);
  }
  page.polling = false;
}

async function pollLive() {
  const now = await ask("ui/api/live", { domain: page.domain }).catch((error) => {
    // A domain that is gone is told by the policy.
    if (error.status !== 404) throw error;
    return { version: null };
  });
  if (now.version !== page.version) return loadPolicy();
  showLive(now);
  report(`live, every ${POLL_MS / 1000} s`);
}

function failed(error) {
  if (error.status === 401) return begin();
  report(error.status ? error.message : "the service does not answer", true);
}

function showLive(now) {
  const counts = new Map(now.limits.map(([index, ...row]) => [index, row]));
  const { before } = page;
  page.before = { at: now.at_ms, counts, checks: now.checks };
  const seconds = before ? (now.at_ms - before.at) / 1000 : 0;
  const since = (value, earlier) => (seconds > 0 ? (value - (earlier ?? 0)) / seconds : null);
  for (const [index, row] of page.rows) {
    const count = counts.get(index) ?? [0, 0, 0];
    const earlier = before?.counts.get(index);
    showRates(row, since(count[0], earlier?.[0]), since(count[1] + count[2], earlier && earlier[1] + earlier[2]));
  }
  ["passed", "refused", "failed"].forEach((id, at) => {
    const value = now.checks ? since(now.checks[at], before?.checks?.[at]) : null;
    $(id).textContent = rate(value);
    $(id).className = value > 0 ? (at ? "bad" : "good") : "";
  });
  $("states").textContent = now.states.toLocaleString("en");
  $("states-title").textContent = now.shared_store
    ? "states in memory (the rest is in the shared store)"
    : "states in memory";
  showKeys("near", now.near);
  showKeys("busy", now.busy);
}

function showRates({ rates, shares }, allowed, refused) {
  const parts = [
    element("span", { text: `${rate(allowed)} passed/s` }),
    element("span", { className: refused > 0 ? "bad" : "", text: `${rate(refused)} refused/s` }),
  ];
  rates.replaceChildren(parts[0], " ", parts[1]);
  const all = allowed + refused;
  shares[0].style.width = `${all ? (allowed / all) * 100 : 0}%`;
  shares[1].style.width = `${all ? (refused / all) * 100 : 0}%`;
}

function showKeys(id, keys) {
  // What has the focus keeps it, though the rows are made anew.
  const focused = $(id).contains(document.activeElement) ? document.activeElement.textContent : null;
  $(id).replaceChildren(...keys.map(keyRow));
  if (!keys.length)
    $(id).append(element("tr", {}, element("td", { className: "about", colSpan: 5, text: "none of late" })));
  if (focused !== null) [...$(id).querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
}

function keyRow(key) {
  const button = element("button", {
    type: "button",
    className: "link",
    text: written(key.key),
    disabled: !may("check"),
  });
  button.onclick = () => {
    $("key").value = $("sim-key").value = written(key.key);
    $("look").requestSubmit();
    $("state").scrollIntoView({ behavior: "smooth", block: "nearest" });
  };
  const left = element("td", { text: `${key.remaining} of ${key.of}` }, bar(key.remaining, key.of));
  const asked = element("td", { className: "number", text: rate(key.per_second) });
  if (key.error_per_second > key.per_second / 10) {
    Object.assign(asked, {
      textContent: `≤ ${rate(key.per_second)}`,
      title: `at least ${rate(key.per_second - key.error_per_second)}`,
    });
  }
  const refused = element("td", {
    className: key.refused_per_second > 0 ? "number bad" : "number",
    text: rate(key.refused_per_second),
  });
  return element(
    "tr",
    {},
    element("td", {}, button),
    element("td", { text: key.limit + (key.shadow ? " (shadow)" : "") }),
    asked,
    refused,
    left,
  );
}

// ---- wiring

function changeDomain() {
  page.domain = $("domain").value;
  forgetKey();
  if (page.version !== null) loadPolicy();
}

$("domain").onchange = changeDomain;
$("token-form").onsubmit = () => {
  page.token = $("token").value.trim();
  begin();
};
$("sign-in").oncancel = (event) => event.preventDefault();
$("forget").onclick = () => {
  page.token = "";
  page.version = null;
  forgetKey();
  location.reload();
};
document.addEventListener("visibilitychange", poll);
begin();
