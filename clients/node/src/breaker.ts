/** The state of the circuit breaker. `half-open`: one call at a time probes whether the service is available again. */
export type BreakerState = "closed" | "open" | "half-open";

export interface BreakerOptions {
  /** Outages in a row after which the circuit breaker opens; 0: never. Default 5. */
  failures?: number;
  /** The time for which an open circuit breaker fails calls at once, before it probes. Default 1,000. */
  openMs?: number;
}

/** The permit of {@link CircuitBreaker.admit} for one call. */
export type Permit = "call" | "probe";

/** How a call ended. `unknown`: it says nothing about the service. */
export type Outcome = "answer" | "outage" | "unknown";

/** The circuit breaker: during an outage calls fail at once, instead of each waiting for its deadline. */
export class CircuitBreaker {
  readonly #maxFailures: number;
  readonly #openMs: number;
  #failures = 0;
  #openUntilMs = 0;
  #isProbing = false;

  constructor({ failures = 5, openMs = 1_000 }: BreakerOptions = {}) {
    this.#maxFailures = failures > 0 ? failures : Infinity;
    this.#openMs = openMs;
  }

  get state(): BreakerState {
    if (this.#failures < this.#maxFailures) return "closed";
    return performance.now() < this.#openUntilMs ? "open" : "half-open";
  }

  /** Returns whether a call may be sent. Each permit must be passed to {@link settle}. */
  admit(): Permit | null {
    const state = this.state;
    if (state === "closed") return "call";
    if (state === "open" || this.#isProbing) return null;
    this.#isProbing = true;
    return "probe";
  }

  settle(permit: Permit, outcome: Outcome): void {
    if (permit === "probe") this.#isProbing = false;
    if (outcome === "unknown") return;
    if (outcome === "answer") {
      this.#failures = 0;
    } else if (permit === "probe") {
      this.#open();
    } else if (this.#failures < this.#maxFailures && ++this.#failures === this.#maxFailures) {
      // Calls that were sent before the circuit breaker opened, and fail after it, do not keep it open.
      this.#open();
    }
  }

  #open(): void {
    this.#openUntilMs = performance.now() + this.#openMs;
  }
}
