// What the explorer is drawn with.

const SVG = "http://www.w3.org/2000/svg";

/** An element with these properties and children. */
export function element(name, { text, title, ...properties } = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  if (text !== undefined) made.textContent = text;
  if (title) made.title = title;
  made.append(...children);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A rate a second, for people. */
export function rate(value) {
  if (value === null) return "–";
  if (value > 0 && value < 0.095) return "<0.1";
  return value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}

/** A length of time in microseconds, for people. */
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

/** A part of the whole as a bar. */
export function bar(part, whole) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  const fill = element("span");
  fill.style.width = `${share * 100}%`;
  return element("span", { className: share < 0.1 ? "bar low" : "bar" }, fill);
}

const sum = (course, name) => course.steps.reduce((total, step) => total + step[name], 0);

/** What was done of all arrivals, in one sentence. */
export function totals(course) {
  const wait = Math.max(...course.steps.map((step) => step.wait_us));
  return `${sum(course, "allowed")} pass, ${sum(course, "refused")} refused${wait ? `, waits of up to ${time(wait)}` : ""}`;
}

/** All arrivals so far, refused above passed, and what the limit that binds has left. */
export function plot(name, course) {
  const [width, height, left, top] = [640, 170, 44, 8];
  const [passed, all] = [
    running(course, (step) => step.allowed),
    running(course, (step) => step.allowed + step.refused),
  ];
  const most = Math.max(1, all.at(-1));
  const x = (index) => (left + (index / course.steps.length) * width).toFixed(1);
  const y = (share) => (top + height * (1 - share)).toFixed(1);
  const area = (upper, lower) =>
    [
      ...upper.map((sum, index) => `${x(index)},${y(sum / most)}`),
      ...lower.map((sum, index) => `${x(index)},${y(sum / most)}`).reverse(),
    ].join(" ");
  const leftOver = course.steps.flatMap((step, index) =>
    step.remaining === null ? [] : [`${x(index + 0.5)},${y(step.remaining / Math.max(1, course.most_remaining))}`],
  );
  const svg = drawn("svg", {
    viewBox: `0 0 ${width + 2 * left} ${height + 34}`,
    role: "img",
    "aria-label": `${name}: ${totals(course)}`,
  });
  svg.append(
    drawn("polygon", {
      class: "plot-allowed",
      points: area(
        passed,
        passed.map(() => 0),
      ),
    }),
  );
  svg.append(drawn("polygon", { class: "plot-refused", points: area(all, passed) }));
  if (leftOver.length) svg.append(drawn("polyline", { class: "plot-left", points: leftOver.join(" ") }));
  svg.append(drawn("line", { class: "plot-axis", x1: left, x2: left + width, y1: y(0), y2: y(0) }));
  const label = (at, up, text, anchor) => svg.append(drawn("text", { x: at, y: up, "text-anchor": anchor }, text));
  label(left - 5, top + 9, most, "end");
  label(left - 5, top + height, 0, "end");
  if (leftOver.length) label(left + width + 5, top + 9, course.most_remaining, "start");
  label(left, height + 26, "0", "middle");
  label(left + width, height + 26, time(course.step_us * course.steps.length), "middle");
  const legend = `Arrivals so far, passed below and refused above${leftOver.length ? "; line, right scale: what is left" : "; no limit applies"}.`;
  return element(
    "figure",
    {},
    element("figcaption", { text: name }),
    svg,
    element("p", { className: "legend", text: legend }),
    ...ofLimits(course),
  );
}

/** The sums of what `count` says of each step and those before it, from 0. */
function running(course, count) {
  const sums = [0];
  for (const step of course.steps) sums.push(sums.at(-1) + count(step));
  return sums;
}

function ofLimits(course) {
  return course.limits.map((limit) => {
    const first =
      limit.first_refusal_us === null
        ? ""
        : `, the first at ${limit.first_refusal_us === 0 ? "0" : time(limit.first_refusal_us)}`;
    return element("p", {
      className: "legend",
      text: `${limit.name}${limit.shadow ? " (shadow)" : ""}: ${limit.allowed} passed, ${limit.refused} refused${first}`,
    });
  });
}
