import type { BreakerState } from "./breaker.js";
import type { Decision } from "./decision.js";
import type { WeirError } from "./errors.js";

/** A call that decides. */
export type Operation = "check" | "check_all" | "check_batch" | "reserve";

/** Watches a client: `openTelemetry()` of `weir-client/opentelemetry`, or your own. Keys are never shown to it. */
export interface Telemetry {
  /** A call begins. `domain` is that of its first check. */
  begin(operation: Operation, domain: string): Observation;
  /** A lease has decided a check, without a call. */
  leased(domain: string, decision: Decision): void;
  /** A client is made. What it returns is called when the client is closed. */
  watchBreaker(target: string, state: () => BreakerState): () => void;
}

/** A call that is watched. */
export interface Observation {
  /** Sent along with a call, but not over the stream of coalesced checks: the trace, in which the service goes on. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The call has ended, with a result for each check in it, and the check's domain. Where the call has failed, all are the same. */
  end(results: readonly (Decision | WeirError)[], domains: readonly string[]): void;
}
