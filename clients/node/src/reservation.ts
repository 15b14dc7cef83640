import type { Decision } from "./decision.js";
import { duration, milliseconds } from "./duration.js";
import { WeirError } from "./errors.js";
import { RateLimiterService, type ReserveResponse } from "./generated/weir/v1/weir.js";
import type { CallOptions } from "./options.js";
import type { CheckOptions } from "./request.js";
import type { Rpc } from "./rpc.js";

export interface ReserveOptions extends Omit<CheckOptions, "dryRun">, CallOptions {
  /** How long to hold the units, 10 ms to 24 hours. Required without a concurrency limit on the path, whose `ttl` is the default. */
  ttlMs?: number;
  /** Units that are not settled in time count as spent (`keep`, the default), or are given back. */
  onExpiry?: "keep" | "release";
}

/** How a reservation was settled; also when asked again. */
export interface Settlement {
  /** The units that it cost. */
  readonly charged: number;
  /** The reserved units that were given back. */
  readonly refunded: number;
  /** The units charged beyond what was reserved. */
  readonly overage: number;
  /** Nothing was held, so that this changed nothing: the service did not decide, or did without the shared store. */
  readonly degraded: boolean;
}

/** The outcome of work that needed a decision to run. */
export type Outcome<Value> =
  | { readonly allowed: true; readonly decision: Decision; readonly value: Value }
  | { readonly allowed: false; readonly decision: Decision };

const NOTHING_HELD: Settlement = { charged: 0, refunded: 0, overage: 0, degraded: true };

/**
 * Units that are held until their real cost is known. Settled by the end of an `await using` block: in full, unless `commit` or
 * `cancel` was called. JavaScript does not tell that end whether the block has failed; `Client.withReservation` cancels then. What
 * cannot be settled at that end settles itself after its ttl.
 */
export class Reservation implements AsyncDisposable {
  /** Refused: nothing is held, and settling does nothing. */
  readonly decision: Decision;
  /** How long the units were held when the reservation was made. 0: nothing is held. */
  readonly heldMs: number;
  readonly #hold: string;
  readonly #rpc: Rpc;
  readonly #deadlineMs: number;
  #isSettled = false;

  constructor(decision: Decision, response: ReserveResponse | null, rpc: Rpc, deadlineMs: number) {
    this.decision = decision;
    this.heldMs = response?.expiresAfter ? milliseconds(response.expiresAfter) : 0;
    this.#hold = response?.hold ?? "";
    this.#rpc = rpc;
    this.#deadlineMs = deadlineMs;
  }

  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** Whether `commit` or `cancel` was called. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Settles by what it really cost; by default what was reserved. It may be repeated, and the first settlement counts. */
  async commit(actual?: number): Promise<Settlement> {
    this.#isSettled = true;
    if (!this.#hold) return NOTHING_HELD;
    return this.#rpc.call(RateLimiterService.commit, { hold: this.#hold, actual }, this.#plan());
  }

  /** Gives back all that was reserved. It may be repeated, and the first settlement counts. */
  async cancel(): Promise<Settlement> {
    this.#isSettled = true;
    if (!this.#hold) return NOTHING_HELD;
    return { overage: 0, ...(await this.#rpc.call(RateLimiterService.cancel, { hold: this.#hold }, this.#plan())) };
  }

  /** Holds the units for longer, or shorter, from now on. Resolves with for how long: 15/16 of `ttlMs` at least. */
  async extend(ttlMs?: number, options: { deadlineMs?: number } = {}): Promise<number> {
    if (!this.#hold) return 0;
    const request = { hold: this.#hold, ttl: ttlMs === undefined ? undefined : duration(ttlMs) };
    const { expiresAfter } = await this.#rpc.call(RateLimiterService.extend, request, this.#plan(options.deadlineMs));
    return expiresAfter ? milliseconds(expiresAfter) : 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isSettled) await endsByItself(this.commit());
  }

  #plan(deadlineMs = this.#deadlineMs): { deadlineMs: number; isRepeatable: true } {
    return { deadlineMs, isRepeatable: true };
  }
}

/** Runs work under a reservation: settled in full after it, unless it has settled, and cancelled where it fails. */
export async function withReservation<Value>(
  reservation: Reservation,
  work: (reservation: Reservation) => Promise<Value>,
): Promise<Outcome<Value>> {
  const { decision } = reservation;
  if (!decision.allowed) return { allowed: false, decision };
  await using settled = reservation;
  try {
    return { allowed: true, decision, value: await work(settled) };
  } catch (error) {
    if (!settled.isSettled) await endsByItself(settled.cancel());
    throw error;
  }
}

/** A settlement that no caller waits for: what is not settled ends by itself, after its ttl. */
async function endsByItself(settlement: Promise<Settlement>): Promise<void> {
  await settlement.catch((error: unknown) => {
    if (!(error instanceof WeirError)) throw error;
  });
}
