import type { BreakerOptions } from "./breaker.js";
import type { TlsOptions } from "./channel.js";
import type { Logger } from "./failure-log.js";
import type { CoalesceOptions } from "./stream.js";
import type { Telemetry } from "./telemetry.js";

/**
 * The result of a check that the service does not decide, in an outage: the error is thrown (`error`, the default), or the check
 * is allowed (`allow`, fail open) or refused (`deny`, fail closed).
 */
export type OnFailure = "error" | "allow" | "deny";

export interface ClientOptions {
  /** TLS, with the CA certificates of Node.js (`true`) or with files. Default: none. */
  tls?: TlsOptions | boolean;
  /** A bearer token. Send it over TLS only, except on loopback. */
  token?: string;
  /**
   * A file with the bearer token. A call looks for a changed file at most once a second, so a new token is used without a restart.
   * While the file holds none, the last token is used.
   */
  tokenFile?: string;
  /** The deadline of a call, retries included. Default 50. */
  deadlineMs?: number;
  /** The result of checks during an outage. All other errors are always thrown. Default `"error"`. */
  onFailure?: OnFailure;
  /** How often an idempotent call is retried after UNAVAILABLE. Default 1; 0 turns retries off, and checks carry no request ids. */
  retries?: number;
  /** The circuit breaker, or `false` for none. */
  breaker?: BreakerOptions | false;
  /** Sends concurrent checks over one stream. Default false. */
  coalesce?: CoalesceOptions | boolean;
  /** Decides checks of hot keys in this process, with leased units, if the policy leases them. Default false. */
  lease?: boolean;
  /** Metrics and traces: `openTelemetry()` of `weir-client/opentelemetry`. Default: none. */
  telemetry?: Telemetry;
  /** The logger for failures of `guard`, and for a `tokenFile` without a token. Default: the console. */
  logger?: Logger;
}

export interface CallOptions {
  /** Overrides the client's deadline. */
  deadlineMs?: number;
  /** Overrides the client's `onFailure`. */
  onFailure?: OnFailure;
}

export interface CheckCallOptions extends CallOptions {
  /** Overrides the client's `lease`. */
  lease?: boolean;
}

/** Throws if a numeric option is NaN, as `Number` makes of an environment variable that is not set. */
export function verifyNumbers({ deadlineMs, retries, breaker, coalesce }: ClientOptions): void {
  for (const [name, value] of Object.entries({ deadlineMs, retries, ...numbersOf(breaker), ...numbersOf(coalesce) })) {
    if (Number.isNaN(value)) throw new RangeError(`${name} must be a number, not NaN`);
  }
}

function numbersOf(options: BreakerOptions | CoalesceOptions | boolean | undefined): BreakerOptions & CoalesceOptions {
  return typeof options === "object" ? options : {};
}
