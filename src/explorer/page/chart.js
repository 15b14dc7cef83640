// One chart over time: lines, axes, and a cursor that all charts share.

import { clock, drawn, element, rate, seconds } from "./draw.js";

const HEIGHT = 132;
const MARGIN = { left: 46, right: 10, top: 8, bottom: 20 };
const TICK_MS = 5 * 60_000;

/** The least round number that is at least as large. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => value <= step * power * 1.0001);
}

const UNITS = {
  rate: { value: (value) => (value === null ? "–" : `${rate(value)}/s`), tick: compact, least: 1 },
  time: { value: seconds, tick: seconds, least: 1e-5 },
};

function compact(value) {
  if (value >= 1e6) return `${value / 1e6}M`;
  return value >= 1e3 ? `${value / 1e3}k` : String(Number(value.toPrecision(2)));
}

export class Chart {
  /** `lines`: names with the sample's field and a class each. `span`: the length of the time axis. `onCursor` gets a moment. */
  constructor({ title, unit, lines }, span, onCursor) {
    Object.assign(this, { title, unit: UNITS[unit], lines, span, samples: [], cursor: null });
    this.values = lines.map(() => element("b"));
    const legend = lines.map((line, at) =>
      element("span", {}, element("i", { className: `swatch ${line.className}` }), `${line.name} `, this.values[at]),
    );
    const caption = element("figcaption", {}, element("h3", { text: title }), ...legend);
    this.svg = drawn("svg", { role: "img", tabindex: 0, height: HEIGHT });
    this.figure = element("figure", {}, caption, this.svg);
    this.svg.addEventListener("pointermove", (event) => onCursor(this.momentAt(event.offsetX)));
    this.svg.addEventListener("pointerleave", () => onCursor(null));
    this.svg.addEventListener("blur", () => onCursor(null));
    this.svg.addEventListener("keydown", (event) => this.onKey(event, onCursor));
  }

  onKey(event, onCursor) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -15, PageDown: 15, Home: -1e6, End: 1e6 }[event.key];
    if (event.key === "Escape") onCursor(null);
    if (!step || !this.samples.length) return;
    event.preventDefault();
    const last = this.samples.length - 1;
    const from = this.cursor === null ? last + 1 : this.samples.indexOf(this.nearest());
    onCursor(this.samples[Math.max(0, Math.min(last, from + step))].at);
  }

  get inner() {
    return Math.max(60, this.width - MARGIN.left - MARGIN.right);
  }

  x(at) {
    return MARGIN.left + (1 - (this.end - at) / this.span) * this.inner;
  }

  y(value) {
    return MARGIN.top + (HEIGHT - MARGIN.top - MARGIN.bottom) * (1 - value / this.most);
  }

  momentAt(x) {
    return this.end - (1 - (x - MARGIN.left) / this.inner) * this.span;
  }

  nearest() {
    const distance = (sample) => Math.abs(sample.at - this.cursor);
    return this.samples.reduce((one, other) => (distance(other) < distance(one) ? other : one));
  }

  /** Draws samples up to `end`; where one has no value of a line, the line is interrupted. */
  draw(samples, end) {
    this.width = this.svg.clientWidth || 320;
    this.samples = samples.filter((sample) => !sample.gap);
    this.end = end;
    const most = Math.max(0, ...this.lines.flatMap(({ field }) => this.samples.map((sample) => sample[field] ?? 0)));
    this.most = roundUp(Math.max(most, this.unit.least));
    this.svg.replaceChildren(...this.outages(samples), ...this.axes(), ...this.paths(samples));
    this.mark = drawn("g", {});
    this.svg.append(this.mark);
    this.point(this.cursor);
    const now = this.samples.at(-1);
    const told = this.lines.map(({ name, field }) => `${name} ${this.unit.value(now?.[field] ?? null)}`);
    this.svg.setAttribute("aria-label", `${this.title}: ${told.join(", ")}; at most ${this.unit.value(most)} in the chart`);
  }

  axes() {
    const [left, right, bottom] = [MARGIN.left, MARGIN.left + this.inner, this.y(0)];
    const made = [0, 0.5, 1].flatMap((share) => {
      const y = this.y(this.most * share);
      const text = this.unit.tick(this.most * share);
      return [
        drawn("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
        drawn("text", { x: left - 6, y: y + 4, "text-anchor": "end" }, share === 0 ? "0" : text),
      ];
    });
    const begin = this.end - this.span;
    this.ticks = [];
    for (let at = Math.ceil(begin / TICK_MS) * TICK_MS; at <= this.end; at += TICK_MS) {
      const x = this.x(at);
      made.push(drawn("line", { class: "grid", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
      if (x < left + 14 || x > right - 14) continue;
      const text = drawn("text", { x, y: bottom + 16, "text-anchor": "middle" }, clock(at).slice(0, 5));
      this.ticks.push([x, text]);
      made.push(text);
    }
    return made;
  }

  paths(samples) {
    return this.lines.map(({ field, className }) => {
      let path = "";
      let pen = "M";
      for (const sample of samples) {
        const value = sample.gap ? null : sample[field];
        if (value === null || value === undefined) pen = "M";
        else {
          path += `${pen}${this.x(sample.at).toFixed(1)},${this.y(value).toFixed(1)}`;
          pen = "L";
        }
      }
      return drawn("path", { class: `line ${className}`, d: path || "M0,0" });
    });
  }

  /** The degraded periods, behind the lines. */
  outages(samples) {
    const made = [];
    samples.forEach((sample, index) => {
      if (!sample.isDegraded) return;
      const x = this.x(samples[index - 1]?.at ?? sample.at - 2000);
      made.push(
        drawn("rect", {
          class: "outage",
          x: Math.max(x, MARGIN.left),
          y: MARGIN.top,
          width: Math.max(0, this.x(sample.at) - Math.max(x, MARGIN.left)),
          height: this.y(0) - MARGIN.top,
        }),
      );
    });
    return made;
  }

  /** Shows the values at a moment; without one, the latest. */
  point(moment) {
    this.cursor = moment;
    const seen = this.samples.length ? (moment === null ? this.samples.at(-1) : this.nearest()) : null;
    this.lines.forEach(({ field }, at) => {
      this.values[at].textContent = this.unit.value(seen?.[field] ?? null);
    });
    if (!this.mark) return;
    this.mark.replaceChildren();
    for (const [, text] of this.ticks) text.removeAttribute("visibility");
    if (!seen || moment === null) return;
    const x = this.x(seen.at);
    this.mark.append(drawn("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: this.y(0) }));
    const center = Math.min(Math.max(x, MARGIN.left + 24), MARGIN.left + this.inner - 20);
    // The moment takes the place of the hours that it would touch.
    for (const [tick, text] of this.ticks) if (Math.abs(tick - center) < 46) text.setAttribute("visibility", "hidden");
    this.mark.append(drawn("text", { class: "moment", x: center, y: this.y(0) + 16, "text-anchor": "middle" }, clock(seen.at)));
    for (const { field, className } of this.lines) {
      const value = seen[field] ?? null;
      if (value !== null) this.mark.append(drawn("circle", { class: `dot ${className}`, cx: x, cy: this.y(value), r: 3.5 }));
    }
  }
}
