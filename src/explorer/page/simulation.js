// What a policy would do.

import { plot, totals } from "./draw.js";
import { $, ask, page, say, segmentsOf } from "./page.js";

async function onSimulate(event) {
  event.preventDefault();
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
    const courses = [...drafted, inForce];
    $("plots").replaceChildren(...courses.map(([name, course]) => plot(name, course)));
    say("simulated", courses.map(([name, course]) => `${name}: ${totals(course)}`).join("\n"));
  } catch (error) {
    $("plots").replaceChildren();
    say("simulated", error.message, "bad");
  }
}

$("simulate").onsubmit = onSimulate;
