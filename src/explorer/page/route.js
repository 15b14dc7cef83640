// The URL's fragment: view, domain, key and filters. A fragment is not sent to the service, so no log has the keys in it.

import { element } from "./draw.js";
import { $, may, written } from "./page.js";

/** The views, which are the ids of their elements. */
const VIEWS = ["overview", "policy", "keys", "usage", "overrides", "simulate"];
const FIELDS = ["domain", "key", "cost", "filter", "search"];

/** The fields of the URL; a missing field is null. */
export function route() {
  const [view, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const fields = new URLSearchParams(query);
  return {
    view: VIEWS.includes(view) ? view : VIEWS[0],
    ...Object.fromEntries(FIELDS.map((name) => [name, fields.get(name)])),
  };
}

/** A link to the current place with these changes. */
export function link(changes) {
  const { view, ...fields } = { ...route(), ...changes };
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== null));
  return `#/${view}?${query.toString().replaceAll("%2F", "/")}`;
}

/** A key's name, as a link to its state if this client may see it. One that is known as a hash has no link. */
export function keyLink(key, hashed = []) {
  const text = written(key);
  if (!may("check") || hashed.length) return element("span", { className: "key", text });
  return element("a", { className: "key", text, href: link({ view: "keys", key: text, cost: null }) });
}

/** Navigates with a new entry of the history. */
export function go(changes) {
  location.hash = link(changes);
}

/** Corrects the URL without a new entry. */
export function correct(changes) {
  history.replaceState(null, "", link(changes));
  showLinks();
}

/** Shows the view of the URL. */
export function showView() {
  const { view, key } = route();
  for (const one of VIEWS) $(one).hidden = one !== view;
  document.body.dataset.view = view;
  showLinks();
  const name = view[0].toUpperCase() + view.slice(1);
  document.title = `${view === "keys" && key ? `${key} · ` : ""}${name} · Weir`;
}

/** The links of the navigation keep domain and key, not the filters of other views. */
function showLinks() {
  const { view } = route();
  for (const anchor of $("views").children) {
    anchor.href = link({ view: anchor.dataset.view, filter: null, search: null });
    if (anchor.dataset.view === view) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
}
