// Envoy's quotas: the buckets of a domain with the largest demand, and the assignments, usage and denials of this replica's
// Envoys.

import { element, number, rate } from "./draw.js";
import { $, ask, page } from "./page.js";

/** Shows the buckets of the domain as they are now, where its limits are divided. */
export async function showQuotas() {
  const found = await ask("ui/api/quotas", { domain: page.domain ?? "" });
  $("quotas").hidden = !found.divided;
  if (!found.divided) return;
  const more = found.count > found.buckets.length ? `; those with the largest demand here: ${number(found.buckets.length)}` : "";
  $("quotas-read").textContent = `${number(found.streams)} streams of Envoys, ${number(found.count)} buckets${more}.`;
  $("quota-rows").replaceChildren(...found.buckets.flatMap(rows));
  $("quota-table").hidden = !found.buckets.length;
}

/** A bucket, then its Envoys. */
function rows(bucket) {
  const sum = (name) => bucket.envoys.reduce((all, envoy) => all + (envoy[name] ?? 0), 0);
  const limit = bucket.limit === null ? "no limit" : `${rate(bucket.limit)}/s`;
  const about = `${limit}, ${number(bucket.streams)} ${bucket.streams === 1 ? "stream" : "streams"}`;
  const text = bucket.entries.map(([key, value]) => `${key}=${value}`).join(", ");
  const name = element("td", {}, element("span", { className: "key", text }), element("div", { className: "about", text: about }));
  // Without shares every Envoy gets the same assignment, and the service knows nothing of each.
  if (!bucket.envoys.length) return [element("tr", {}, name, ...cells(null, null, null))];
  return [element("tr", {}, name, ...cells(sum("assigned"), sum("used"), sum("denied"))), ...bucket.envoys.map(envoy)];
}

function envoy(found) {
  const name = found.has_left ? "gone; its share is free when it is over" : (found.peer ?? "unix socket");
  const cell = element("td", { className: "about", text: name });
  return element("tr", {}, cell, ...cells(found.assigned, found.used, found.denied));
}

function cells(assigned, used, denied) {
  const cell = (label, value, className = "number") => element("td", { className, data: { label }, text: rate(value) });
  return [cell("Assigned/s", assigned), cell("Used/s", used), cell("Denied/s", denied, denied > 0 ? "number bad" : "number")];
}
