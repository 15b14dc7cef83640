// A middleware for Express, Connect and plain node:http: checks each request with Weir, answers refusals with 429,
// and returns rate-limit headers. Without a decision requests pass (fail open).
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Answer, Weir } from "./weir.js";

type Duration = { seconds: number; nanos: number };

/**
 * Guards a route. `key` is what a request counts for, root first. A route with `failClosed` is refused while there is no
 * decision, since to try it without end would be worse.
 */
export function guard<R extends IncomingMessage>(weir: Weir, key: (request: R) => string[], { failClosed = false } = {}) {
  return async (request: R, response: ServerResponse, next: () => void): Promise<void> => {
    const answer = await weir.check(...key(request));
    if (!answer && failClosed) {
      response.setHeader("Retry-After", "1");
      return refuse(response, 503, "Service Unavailable");
    }
    for (const [name, value] of headersOf(answer)) response.setHeader(name, value);
    if (answer && !answer.allowed) return refuse(response, 429, "Too Many Requests");
    next();
  };
}

function refuse(response: ServerResponse, status: number, title: string): void {
  response.writeHead(status, { "Content-Type": "application/problem+json" }).end(JSON.stringify({ title, status }));
}

/** What the limit that binds tells, as draft-ietf-httpapi-ratelimit-headers-11 has it. Nothing where nothing is limited. */
function headersOf(answer: Answer | undefined): [string, string][] {
  const level = answer?.levels[answer.binding ?? -1];
  if (!level) return [];
  const name = structuredString(level.name);
  const retry = level.retryAfter && Math.max(1, wholeSeconds(level.retryAfter));
  const next = level.nextAfter && Math.max(1, wholeSeconds(level.nextAfter));
  const headers: [string, string][] = [
    ["RateLimit-Policy", `${name};q=${level.limit}`],
    ["RateLimit", `${name};r=${level.remaining}${next ? `;t=${next}` : ""}`],
  ];
  return retry ? [...headers, ["Retry-After", `${retry}`]] : headers;
}

/** Rounded up: who comes back then is not early. */
function wholeSeconds(duration: Duration | null): number {
  return duration ? duration.seconds + Math.sign(duration.nanos) : 0;
}

/** A string of RFC 9651, which holds printable ASCII alone; the rest is percent-encoded. */
function structuredString(text: string): string {
  const ascii = text.replace(/[^ -~]|%/gu, (letter) => encodeURIComponent(letter));
  return `"${ascii.replace(/["\\]/g, "\\$&")}"`;
}
