import type { BreakerState } from "./breaker.js";
import type { Decision } from "./decision.js";
import type { WeirError } from "./errors.js";

/** A call that decides. */
export type Operation = "check" | "check_all" | "check_batch" | "reserve";

/** Watches a client: `openTelemetry()` of `weir-client/opentelemetry`, or your own. Keys are never shown to it. */
export interface Telemetry {
  /** A call begins. What it returns is called at its end, with a result for each check in it. */
  begin(operation: Operation, domain: string): (results: readonly (Decision | WeirError)[]) => void;
  /** A client is made. What it returns is called when the client is closed. */
  watchBreaker(target: string, state: () => BreakerState): () => void;
}
