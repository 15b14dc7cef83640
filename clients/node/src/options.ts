import type { BreakerOptions } from "./breaker.js";
import type { TlsOptions } from "./channel.js";
import type { Logger } from "./failure-log.js";
import type { CoalesceOptions } from "./stream.js";
import type { Telemetry } from "./telemetry.js";

/** The outcome of a check during an outage: the error (the default), or a decision that allows or refuses. */
export type OnFailure = "error" | "allow" | "deny";

export interface ClientOptions {
  /** TLS, by the CA certificates of Node.js (`true`) or by files. Default: none. */
  tls?: TlsOptions | boolean;
  /** A bearer token. Send it over TLS only, except on loopback. */
  token?: string;
  /** A file with the token, read again when it changes. */
  tokenFile?: string;
  /** For a whole call with its retries. Default 50. */
  deadlineMs?: number;
  /** The outcome of checks during an outage. Errors of the call or its configuration are always errors. Default `"error"`. */
  onFailure?: OnFailure;
  /** How often a call that ended with UNAVAILABLE is repeated, if it may be. Default 1; 0 sends no request ids. */
  retries?: number;
  /** The circuit breaker, or `false` for none. */
  breaker?: BreakerOptions | false;
  /** Send concurrent checks over one stream. Default false. */
  coalesce?: CoalesceOptions | boolean;
  /** Decide checks of hot keys in this process, where the policy leases them. Default false. */
  lease?: boolean;
  /** Metrics and spans: `openTelemetry()` of `weir-client/opentelemetry`. Default: none. */
  telemetry?: Telemetry;
  /** Where `guard` reports failures. Default: the console. */
  logger?: Logger;
}

export interface CallOptions {
  /** Instead of the client's. */
  deadlineMs?: number;
  /** Instead of the client's. */
  onFailure?: OnFailure;
}

export interface CheckCallOptions extends CallOptions {
  /** Instead of the client's. */
  lease?: boolean;
}
