// Simulation of a policy.

import { drawn, element, number, time } from "./draw.js";
import { $, ask, page, say, segmentsOf } from "./page.js";

const HEIGHT = 170;
const MARGIN = { side: 44, top: 8, bottom: 26 };

/** Increases with each simulation, so that answers to an older one are dropped. */
let simulation = 0;

/** Deletes the result: another domain is shown. */
export function forgetSimulation() {
  simulation += 1;
  $("plots").replaceChildren();
  say("simulated", "");
}

async function onSimulate(event) {
  event.preventDefault();
  forgetSimulation();
  const mine = simulation;
  const draft = $("draft").value.trim() === "" ? "" : $("draft").value;
  const wanted = { domain: page.domain, key: segmentsOf($("sim-key").value), random: $("random").checked };
  for (const [name, id] of [
    ["rate", "rate"],
    ["burst", "burst"],
    ["seconds", "seconds"],
    ["cost", "sim-cost"],
  ]) {
    wanted[name] = Number($(id).value);
  }
  say("simulated", "running …");
  try {
    const inForce = ["Policy in force", await ask("ui/api/simulate", wanted)];
    const drafted = draft ? [["Draft", await ask("ui/api/simulate", { ...wanted, draft })]] : [];
    if (mine !== simulation) return;
    const courses = [...drafted, inForce];
    $("plots").replaceChildren(...courses.map(([name, course]) => plot(name, course, wanted.seconds)));
    say("simulated", courses.map(([name, course]) => `${name}: ${totals(course)}`).join("\n"));
  } catch (error) {
    if (mine === simulation) say("simulated", error.message, "bad");
  }
}

const sum = (course, name) => course.steps.reduce((total, step) => total + step[name], 0);

/** The decisions of all arrivals, in one sentence. */
function totals(course) {
  const wait = Math.max(...course.steps.map((step) => step.wait_us));
  return `${number(sum(course, "allowed"))} allowed, ${number(sum(course, "refused"))} refused${wait ? `, waits of up to ${time(wait)}` : ""}`;
}

/** All arrivals so far, refused above allowed, and the remaining units of the binding limit. */
function plot(name, course, seconds) {
  const width = Math.max(200, $("plots").clientWidth - 2 * MARGIN.side);
  const allowed = running(course, (step) => step.allowed);
  const all = running(course, (step) => step.allowed + step.refused);
  const most = Math.max(1, all.at(-1));
  const x = (index) => (MARGIN.side + (index / course.steps.length) * width).toFixed(1);
  const y = (share) => (MARGIN.top + HEIGHT * (1 - share)).toFixed(1);
  const points = (sums) => sums.map((sum, index) => `${x(index)},${y(sum / most)}`);
  const area = (className, upper, lower) =>
    drawn("polygon", { class: className, points: [...points(upper), ...points(lower).reverse()].join(" ") });
  const left = course.steps.flatMap((step, index) =>
    step.remaining === null ? [] : [`${x(index + 0.5)},${y(step.remaining / Math.max(1, course.most_remaining))}`],
  );
  const svg = drawn("svg", {
    viewBox: `0 0 ${width + 2 * MARGIN.side} ${HEIGHT + MARGIN.top + MARGIN.bottom}`,
    role: "img",
    "aria-label": `${name}: ${totals(course)}`,
  });
  const nothing = allowed.map(() => 0);
  svg.append(area("plot-allowed", allowed, nothing), area("plot-refused", all, allowed));
  if (left.length) svg.append(drawn("polyline", { class: "plot-left", points: left.join(" ") }));
  const right = MARGIN.side + width;
  svg.append(drawn("line", { class: "grid", x1: MARGIN.side, x2: right, y1: y(0), y2: y(0) }));
  const label = (at, up, text, anchor) => svg.append(drawn("text", { x: at, y: up, "text-anchor": anchor }, text));
  label(MARGIN.side - 6, MARGIN.top + 9, number(most), "end");
  label(MARGIN.side - 6, MARGIN.top + HEIGHT, 0, "end");
  if (left.length) label(right + 6, MARGIN.top + 9, number(course.most_remaining), "start");
  label(MARGIN.side, HEIGHT + MARGIN.top + 18, "0", "middle");
  label(right, HEIGHT + MARGIN.top + 18, time(seconds * 1e6), "end");
  const caption = element("figcaption", {}, element("h3", { text: name }), ...legend(left.length > 0));
  return element("figure", {}, caption, svg, ...ofLimits(course));
}

function legend(isLimited) {
  const entry = (className, text) => element("span", {}, element("i", { className: `swatch ${className}` }), text);
  return [
    entry("good", "allowed so far"),
    entry("bad", "refused so far"),
    isLimited ? entry("accent", "left (right scale)") : element("span", { text: "no limit matches" }),
  ];
}

/** The running sums of `count` over the steps, from 0. */
function running(course, count) {
  const sums = [0];
  for (const step of course.steps) sums.push(sums.at(-1) + count(step));
  return sums;
}

function ofLimits(course) {
  return course.limits.map((limit) => {
    const at = limit.first_refusal_us;
    const first = at === null ? "" : `, the first at ${at === 0 ? "0" : time(at)}`;
    const name = `${limit.name}${limit.shadow ? " (shadow)" : ""}`;
    const text = `${name}: ${number(limit.allowed)} allowed, ${number(limit.refused)} refused${first}`;
    return element("p", { className: "about", text });
  });
}

$("simulate-form").onsubmit = onSimulate;
