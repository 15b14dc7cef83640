// Elements, numbers and times for people.

const SVG = "http://www.w3.org/2000/svg";

/** An element with these properties and children. */
export function element(name, { text, title, data, ...properties } = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  if (text !== undefined) made.textContent = text;
  if (title) made.title = title;
  Object.assign(made.dataset, data);
  made.append(...children);
  return made;
}

/** An SVG element with these attributes. */
export function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export const number = (value) => value.toLocaleString("en");

/** A rate per second. */
export function rate(value) {
  if (value === null || Number.isNaN(value)) return "–";
  if (value > 0 && value < 0.095) return "<0.1";
  return value < 10 ? value.toFixed(1) : number(Math.round(value));
}

/** A duration in microseconds, rounded up. */
export function time(micros) {
  if (micros === 0) return "now";
  if (micros < 1e6) return `${Math.ceil(micros / 1e3)} ms`;
  if (micros < 6e7) return `${Math.ceil(micros / 1e5) / 10} s`;
  let rest = Math.ceil(micros / 1e6);
  const parts = [];
  for (const [unit, length] of [
    ["d", 86400],
    ["h", 3600],
    ["m", 60],
    ["s", 1],
  ]) {
    if (rest >= length) parts.push(`${Math.floor(rest / length)} ${unit}`);
    rest %= length;
  }
  return parts.slice(0, 2).join(" ");
}

/** A measured time in seconds, to two digits. */
export function seconds(value) {
  if (value === null) return "–";
  const [scale, unit] = value < 1e-3 ? [1e6, "µs"] : value < 1 ? [1e3, "ms"] : [1, "s"];
  return `${Number((value * scale).toPrecision(2))} ${unit}`;
}

/** A moment by the wall clock. */
export const clock = (moment) => new Date(moment).toLocaleTimeString("en-GB");

/** A part of the whole as a bar. */
export function bar(part, whole) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  const fill = element("span");
  fill.style.width = `${share * 100}%`;
  return element("span", { className: share < 0.1 ? "bar low" : "bar" }, fill);
}
