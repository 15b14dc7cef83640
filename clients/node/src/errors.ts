import { status, type ServiceError } from "@grpc/grpc-js";
import { milliseconds } from "./duration.js";
import { BadRequest, RetryInfo, Status } from "./generated/google/rpc/status.js";
import type { Error as EntryError } from "./generated/weir/v1/weir.js";

/** A gRPC status, or `CIRCUIT_OPEN`: the call was not sent, since the circuit breaker is open after earlier outages. */
export type ErrorCode = keyof typeof status | "CIRCUIT_OPEN";

const OUTAGES: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "UNAVAILABLE",
  "DEADLINE_EXCEEDED",
  "RESOURCE_EXHAUSTED",
  "INTERNAL",
  "CIRCUIT_OPEN",
]);

/** The service did not decide. A refusal is a decision, not an error. */
export class WeirError extends Error {
  override readonly name = "WeirError";
  readonly code: ErrorCode;
  /** The invalid field, as in `limit_spec.limits[0].gcra.count`. `null`: the service names none. */
  readonly field: string | null;
  /** When to retry. `null`: the service does not say. */
  readonly retryAfterMs: number | null;

  constructor(code: ErrorCode, message: string, details: { field?: string; retryAfterMs?: number; cause?: unknown } = {}) {
    super(message, "cause" in details ? { cause: details.cause } : {});
    this.code = code;
    this.field = details.field || null;
    this.retryAfterMs = details.retryAfterMs ?? null;
  }

  /**
   * Whether the error is temporary: UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL, CIRCUIT_OPEN. `onFailure` applies
   * only to these errors. All others repeat until the configuration or the code is corrected.
   */
  get isOutage(): boolean {
    return OUTAGES.has(this.code);
  }
}

/** Returns the error of a failed call, with the details that the service attaches. */
export function fromServiceError(error: ServiceError): WeirError {
  const [details] = error.metadata?.get("grpc-status-details-bin") ?? [];
  return new WeirError(codeOf(error.code), error.details, {
    cause: error,
    ...(details instanceof Buffer ? decodeDetails(details) : {}),
  });
}

/** Returns the error of one check of a batch or a stream. */
export function fromEntry({ code, message, field }: EntryError): WeirError {
  return new WeirError(codeOf(code), message, { field });
}

function codeOf(code: number): ErrorCode {
  const name: string | undefined = status[code];
  return (name as ErrorCode | undefined) ?? "UNKNOWN";
}

function decodeDetails(bytes: Buffer): { field?: string; retryAfterMs?: number } {
  const found: { field?: string; retryAfterMs?: number } = {};
  try {
    for (const { typeUrl, value } of Status.decode(bytes).details) {
      if (typeUrl.endsWith("/google.rpc.BadRequest")) {
        const [violation] = BadRequest.decode(value).fieldViolations;
        if (violation) found.field = violation.field;
      } else if (typeUrl.endsWith("/google.rpc.RetryInfo")) {
        const { retryDelay } = RetryInfo.decode(value);
        if (retryDelay) found.retryAfterMs = milliseconds(retryDelay);
      }
    }
  } catch {
    // Malformed, perhaps by a proxy. gRPC calls this from an event: an error would end the process.
  }
  return found;
}
