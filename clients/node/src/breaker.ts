/** `half-open`: one call at a time probes whether the service answers again. */
export type BreakerState = "closed" | "open" | "half-open";

export interface BreakerOptions {
  /** Opens after this many outages in a row; 0: never. Default 5. */
  failures?: number;
  /** Fails calls at once for this long, then probes. Default 1,000. */
  openMs?: number;
}

/** The permit of {@link CircuitBreaker.admit} for one call. */
export type Permit = "call" | "probe";

/** How a call ended. `unknown`: it says nothing about the service. */
export type Outcome = "answer" | "outage" | "unknown";

/** The circuit breaker: while the service is down, calls fail at once instead of each waiting for its deadline. */
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

  /** Whether a call may be sent. Every permit is ended by {@link settle}. */
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
      // Calls that were sent before it opened, and fail after it, do not keep it open.
      this.#open();
    }
  }

  #open(): void {
    this.#openUntilMs = performance.now() + this.#openMs;
  }
}
