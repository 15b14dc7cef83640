// Shared by all parts of the page: its state, requests to the service, formatting of keys.

export const $ = (id) => document.getElementById(id);

/** Longest wait for an answer. */
const TIMEOUT_MS = 10_000;

/** The state of the page. The token is nowhere else. */
export const page = { token: "", roles: [], domain: "", mode: "local", version: null };

class Rejected extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Sends a request to the service: a GET without a body, else a POST. */
export async function ask(path, body) {
  const headers = page.token ? { authorization: `Bearer ${page.token}` } : {};
  const how = { headers, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
    Object.assign(how, { method: "POST", body: JSON.stringify(body) });
  }
  const response = await fetch(path, how);
  const answer = await response.json();
  if (!response.ok) throw new Rejected(response.status, answer.error?.message || answer.detail || response.statusText);
  return answer;
}

/** Why a request has failed. */
export const problemOf = (error) => (error.status ? error.message : "the service does not answer");

export const may = (role) => page.roles.includes(role);

/** A key as it is typed: segments with `/` between, `\` before a slash or backslash within one. */
export const written = (segments) => segments.map((segment) => segment.replace(/[\\/]/g, "\\$&")).join("/");

/** The segments of a key that was typed. */
export function segmentsOf(text) {
  const segments = [""];
  for (const [part] of text.matchAll(/\\[\\/]|[^]/gu)) {
    if (part === "/") segments.push("");
    else segments[segments.length - 1] += part.length === 2 && part[0] === "\\" ? part[1] : part;
  }
  return segments;
}

/** Shows the outcome of a request. */
export function say(id, text, kind = "") {
  $(id).textContent = text;
  $(id).className = `verdict ${kind}`;
}

/** Debounces `work`: runs it after `millis` without a call. */
export function calmly(work, millis = 200) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), millis);
  };
}
