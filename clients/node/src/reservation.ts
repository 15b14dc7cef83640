import type { Decision } from "./decision.js";
import { duration, milliseconds } from "./duration.js";
import { WeirError } from "./errors.js";
import type { Logger } from "./failure-log.js";
import { RateLimiterService, type ReserveResponse } from "./generated/weir/v1/weir.js";
import type { CallOptions } from "./options.js";
import type { CheckOptions } from "./request.js";
import type { Rpc } from "./rpc.js";

export interface ReserveOptions extends Omit<CheckOptions, "dryRun">, CallOptions {
  /**
   * The time, 10 ms to 24 hours, after which the reservation expires if it is neither settled nor extended. Required unless a
   * concurrency limit is on the path, whose `ttl` is the default and the maximum.
   */
  ttlMs?: number;
  /** The settlement of an expired reservation: its units count as spent (`keep`, the default), or are refunded (`release`). */
  onExpiry?: "keep" | "release";
}

/** The settlement of a reservation. Repeated calls get the first one. */
export interface Settlement {
  /** The units charged. */
  readonly charged: number;
  /** The reserved units that were refunded. */
  readonly refunded: number;
  /** The units charged beyond the reserved ones. */
  readonly overage: number;
  /** Nothing was held, so nothing was settled: the service did not decide, or decided without its shared store. */
  readonly degraded: boolean;
}

/** The outcome of work that runs only if it is allowed. */
export type Outcome<Value> =
  | { readonly allowed: true; readonly decision: Decision; readonly value: Value }
  | { readonly allowed: false; readonly decision: Decision };

const NOTHING_HELD: Settlement = { charged: 0, refunded: 0, overage: 0, degraded: true };

/**
 * Units that are held until their real cost is known. The end of an `await using` block settles them in full, unless `commit` or
 * `cancel` was called. It cannot know whether the block has failed; use `Client.withReservation` to cancel then. A reservation that
 * cannot be settled ends with its ttl.
 */
export class Reservation implements AsyncDisposable {
  /** If refused, nothing is held, and settling changes nothing. */
  readonly decision: Decision;
  /** The time for which the units are held, from the answer of the service on. 0: nothing is held. */
  readonly heldMs: number;
  readonly #hold: string;
  readonly #rpc: Rpc;
  readonly #deadlineMs: number;
  readonly #logger: Logger;
  #isSettled = false;

  constructor(decision: Decision, response: ReserveResponse | null, rpc: Rpc, deadlineMs: number, logger: Logger) {
    this.decision = decision;
    this.heldMs = response?.expiresAfter ? milliseconds(response.expiresAfter) : 0;
    this.#hold = response?.hold ?? "";
    this.#rpc = rpc;
    this.#deadlineMs = deadlineMs;
    this.#logger = logger;
  }

  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** Whether `commit` or `cancel` was called. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /**
   * Settles the reservation by the real cost (default: the reserved units): unused units are refunded, and units beyond the
   * reserved ones are charged unconditionally. Idempotent: the first settlement counts.
   */
  async commit(actual?: number): Promise<Settlement> {
    this.#isSettled = true;
    if (!this.#hold) return NOTHING_HELD;
    return this.#rpc.call(RateLimiterService.commit, { hold: this.#hold, actual }, this.#plan());
  }

  /** Refunds all reserved units. Idempotent: the first settlement counts. */
  async cancel(): Promise<Settlement> {
    this.#isSettled = true;
    if (!this.#hold) return NOTHING_HELD;
    return { overage: 0, ...(await this.#rpc.call(RateLimiterService.cancel, { hold: this.#hold }, this.#plan())) };
  }

  /** Changes the time for which the units are held, from now on. Resolves with that time: at least 15/16 of `ttlMs`. */
  async extend(ttlMs?: number, options: { deadlineMs?: number } = {}): Promise<number> {
    if (!this.#hold) return 0;
    const request = { hold: this.#hold, ttl: ttlMs === undefined ? undefined : duration(ttlMs) };
    const { expiresAfter } = await this.#rpc.call(RateLimiterService.extend, request, this.#plan(options.deadlineMs));
    return expiresAfter ? milliseconds(expiresAfter) : 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isSettled) await endsByItself(this.commit(), this.#logger);
  }

  #plan(deadlineMs = this.#deadlineMs): { deadlineMs: number; isRepeatable: true } {
    return { deadlineMs, isRepeatable: true };
  }
}

/**
 * Runs work under a reservation. Afterwards it is settled in full, unless the work has settled it; if the work fails, it is
 * cancelled.
 */
export async function withReservation<Value>(
  reservation: Reservation,
  work: (reservation: Reservation) => Promise<Value>,
  logger: Logger,
): Promise<Outcome<Value>> {
  const { decision } = reservation;
  if (!decision.allowed) return { allowed: false, decision };
  await using settled = reservation;
  try {
    return { allowed: true, decision, value: await work(settled) };
  } catch (error) {
    if (!settled.isSettled) await endsByItself(settled.cancel(), logger);
    throw error;
  }
}

/** Logs a failed settlement instead of failing the work that is done: an unsettled reservation ends with its ttl. */
export async function endsByItself(settlement: Promise<unknown>, logger: Logger): Promise<void> {
  await settlement.catch((error: unknown) => {
    if (!(error instanceof WeirError)) throw error;
    const what = error.code === "NOT_FOUND" ? "had ended before it was settled" : "is not settled, and ends with its ttl";
    logger.warn(`a reservation ${what}: ${error.code} (${error.message})`);
  });
}
