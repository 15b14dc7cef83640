import type { BreakerState } from "./breaker.js";
import type { Decision } from "./decision.js";
import type { WeirError } from "./errors.js";

/** A call that decides. */
export type Operation = "check" | "check_all" | "check_batch" | "reserve";

/**
 * Observes a client: `openTelemetry()` of `weir-client/opentelemetry`, or your own implementation. No method gets the key.
 */
export interface Telemetry {
  /** Called when a call starts. `domain` is the domain of its first check. */
  begin(operation: Operation, domain: string): Observation;
  /** Called when a lease has decided a check, without a call. */
  leased(domain: string, decision: Decision): void;
  /** Called when a client is created. The function that this returns is called when the client is closed. */
  watchBreaker(target: string, state: () => BreakerState): () => void;
}

/** The observation of a call. */
export interface Observation {
  /**
   * Metadata that is sent with a unary call, but not over the stream of coalesced checks: the trace context, for the service's
   * spans.
   */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Called when the call has ended, with a result for each check, and the checks' domains. If it has failed, all results are the
   * same.
   */
  end(results: readonly (Decision | WeirError)[], domains: readonly string[]): void;
}
