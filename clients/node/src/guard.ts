import type { Client } from "./client.js";
import type { Decision } from "./decision.js";
import { WeirError } from "./errors.js";
import type { FailureLog } from "./failure-log.js";
import { segmentsOf, type CheckOptions, type Key } from "./request.js";

export interface GuardOptions extends Pick<CheckOptions, "domain" | "cost" | "limits" | "charge" | "factor"> {
  /**
   * Fail closed: refuse with 503 if the service does not decide, as at a login, where unlimited attempts would be worse than an
   * outage. Default: whether the client's `onFailure` is `"deny"`.
   */
  failClosed?: boolean;
  deadlineMs?: number;
  /** Overrides the client's `lease`. */
  lease?: boolean;
}

/** Whether a request passes, and the headers of its response. `decision` is null if the service did not decide. */
export type Verdict =
  | { readonly pass: true; readonly headers: ResponseHeaders; readonly decision: Decision | null }
  | {
      readonly pass: false;
      readonly status: 429 | 503;
      readonly headers: ResponseHeaders;
      /** A problem document (RFC 9457). */
      readonly body: string;
      readonly decision: Decision | null;
    };

export type ResponseHeaders = Readonly<Record<string, string>>;

const MAX_SEGMENTS = 32;
const MAX_SEGMENT_BYTES = 1_024;
const MAX_NAME_LENGTH = 256;

export async function guard(
  client: Pick<Client, "check">,
  log: FailureLog,
  key: Key,
  { failClosed = false, ...options }: GuardOptions,
): Promise<Verdict> {
  try {
    // A guard does not wait. JavaScript may pass options that the type leaves out.
    const decision = await client.check(repairedKey(key), { ...options, maxWaitMs: 0, levels: true, onFailure: "error" });
    const headers = headersOf(decision);
    return decision.allowed ? { pass: true, headers, decision } : refusal(429, headers, decision);
  } catch (error) {
    if (!(error instanceof WeirError)) throw error;
    log.report(error);
    return failClosed ? refusal(503, { "Retry-After": "1" }, null) : { pass: true, headers: {}, decision: null };
  }
}

function refusal(status: 429 | 503, headers: ResponseHeaders, decision: Decision | null): Verdict {
  const problem = decision
    ? {
        type: "https://iana.org/assignments/http-problem-types#quota-exceeded",
        title: "Too Many Requests",
        status,
        "violated-policies": decision.levels.filter(({ allowed, shadow }) => !allowed && !shadow).map(({ name }) => name),
      }
    : { title: "Service Unavailable", status };
  return {
    pass: false,
    status,
    headers: { ...headers, "Content-Type": "application/problem+json" },
    body: JSON.stringify(problem),
    decision,
  };
}

/** Returns the headers of the binding limit (draft-ietf-httpapi-ratelimit-headers-11). A leased decision has no binding limit. */
function headersOf({ binding, retryAfterMs }: Decision): ResponseHeaders {
  if (!binding) return retryAfter(retryAfterMs);
  const name = structuredString(binding.name);
  const next = binding.nextAfterMs === null ? "" : `;t=${wholeSeconds(binding.nextAfterMs)}`;
  return {
    "RateLimit-Policy": `${name};q=${binding.limit}`,
    RateLimit: `${name};r=${binding.remaining}${next}`,
    ...retryAfter(binding.retryAfterMs),
  };
}

function retryAfter(retryAfterMs: number | null): ResponseHeaders {
  return retryAfterMs === null ? {} : { "Retry-After": `${wholeSeconds(retryAfterMs)}` };
}

/** Rounds up, to at least 1, so that a client that waits this long is not early. */
function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1_000));
}

/** Encodes a string of RFC 9651, which allows only printable ASCII; all other characters, and %, are percent-encoded. */
function structuredString(text: string): string {
  const name = Array.from(text).slice(0, MAX_NAME_LENGTH).join("");
  const ascii = name.toWellFormed().replace(/[^ -~]|%/gu, (character) => encodeURIComponent(character));
  return `"${ascii.replace(/["\\]/g, "\\$&")}"`;
}

/** Returns a valid key for any user input: the check of an invalid key would fail, and the request would pass. */
function repairedKey(key: Key): Key {
  const segments = segmentsOf(key).slice(0, MAX_SEGMENTS).map(repaired);
  return segments.length > 0 ? segments : ["-"];
}

function repaired(segment: string): string {
  const text = segment.toWellFormed();
  if (text.length * 3 <= MAX_SEGMENT_BYTES) return text || "-";
  const bytes = Buffer.from(text);
  let end = Math.min(bytes.length, MAX_SEGMENT_BYTES);
  // Not within a character: in UTF-8 all its bytes after the first start with the bits 10.
  while (end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}
