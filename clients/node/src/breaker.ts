/** The state of the circuit breaker. `half-open`: one call at a time probes whether the service is available again. */
export type BreakerState = "closed" | "open" | "half-open";

export interface BreakerOptions {
  /** Outages in a row after which the circuit breaker opens; 0: never. Default 5. */
  failures?: number;
  /** The time for which an open circuit breaker fails calls immediately, before it probes. Default 1,000. */
  openMs?: number;
}

/** The permit of {@link CircuitBreaker.admit} for one call. */
export interface Permit {
  readonly isProbe: boolean;
  /** The number of answers until the call started. */
  readonly answers: number;
}

/** How a call ended. `unknown`: it says nothing about the service. */
export type Outcome = "answer" | "outage" | "unknown";

/**
 * The circuit breaker: during an outage calls fail immediately, instead of each waiting for its deadline.
 *
 * An outage does not count if its call started before the last answer: calls that were sent concurrently to one frozen replica
 * miss their deadlines together, while other replicas answer.
 */
export class CircuitBreaker {
  readonly #maxFailures: number;
  readonly #openMs: number;
  #failures = 0;
  #answers = 0;
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
    const isProbe = state !== "closed";
    if (isProbe) {
      if (state === "open" || this.#isProbing) return null;
      this.#isProbing = true;
    }
    return { isProbe, answers: this.#answers };
  }

  settle({ isProbe, answers }: Permit, outcome: Outcome): void {
    // An answer frees the place of the probe, which may belong to another one by the time that the probe ends.
    const isCurrent = answers === this.#answers;
    if (isProbe && isCurrent) this.#isProbing = false;
    if (outcome === "answer") {
      this.#failures = 0;
      this.#answers += 1;
      this.#isProbing = false;
    } else if (outcome === "unknown" || !isCurrent) {
      return;
    } else if (isProbe) {
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
