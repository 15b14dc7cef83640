// The last 15 minutes, which the page keeps itself, and their charts.

import { Chart } from "./chart.js";
import { $ } from "./page.js";

const KEPT_MS = 15 * 60_000;

const CHARTS = [
  {
    title: "Decisions",
    unit: "rate",
    lines: [
      { name: "all", field: "decisions", className: "accent" },
      { name: "unmatched", field: "unmatched", className: "warn dashed" },
    ],
  },
  { title: "Refusals", unit: "rate", lines: [{ name: "refused", field: "refused", className: "bad" }] },
  {
    title: "Degraded",
    unit: "rate",
    lines: [
      { name: "degraded", field: "degraded", className: "bad" },
      { name: "failed", field: "failed", className: "warn dashed" },
    ],
  },
  { title: "Check latency", unit: "time", lines: quantiles("latency") },
  { title: "Store round trips", unit: "rate", isStore: true, lines: [{ name: "", field: "trips", className: "accent" }] },
  { title: "Store round-trip time", unit: "time", isStore: true, lines: quantiles("trip") },
];

function quantiles(of) {
  return [
    { name: "p50", field: `${of}50`, className: "accent" },
    { name: "p99", field: `${of}99`, className: "warn dashed" },
  ];
}

let samples = [];
const charts = CHARTS.map((spec) => {
  const chart = new Chart(spec, KEPT_MS, (moment) => charts.forEach((other) => other.point(moment)));
  chart.isStore = spec.isStore === true;
  return chart;
});
$("charts").append(...charts.map((chart) => chart.figure));
new ResizeObserver(() => draw()).observe($("charts"));

function draw() {
  const end = samples.at(-1)?.at ?? Date.now();
  if ($("charts").clientWidth) charts.forEach((chart) => chart.figure.hidden || chart.draw(samples, end));
}

/** Adds a sample. */
export function keep(sample) {
  samples.push(sample);
  samples = samples.filter(({ at }) => at > sample.at - KEPT_MS);
  draw();
}

/** The page has missed something: lines are interrupted here. */
export function interrupt() {
  if (samples.length && !samples.at(-1).gap) samples.push({ at: samples.at(-1).at, gap: true });
}

/** Deletes the samples: another domain is shown. */
export function forgetHistory() {
  samples = [];
  draw();
}

/** Shows the charts of a shared store only where there is one. */
export function showStoreCharts(isShared) {
  for (const chart of charts) if (chart.isStore) chart.figure.hidden = !isShared;
}

/** The quantile `q` of a histogram's counts between two polls, in seconds; as Prometheus does, linear within a bucket. */
export function quantile(q, { bounds, counts }, before) {
  const counted = counts.map((count, at) => count - (before?.counts[at] ?? 0));
  const all = counted.reduce((sum, count) => sum + count, 0);
  if (!before || all <= 0) return null;
  let below = 0;
  for (const [at, count] of counted.entries()) {
    if (count && below + count >= q * all) {
      const from = at ? bounds[at - 1] : 0;
      return at < bounds.length ? from + (bounds[at] - from) * ((q * all - below) / count) : bounds.at(-1);
    }
    below += count;
  }
  return null;
}
