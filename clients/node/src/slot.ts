import type { Decision } from "./decision.js";
import { WeirError } from "./errors.js";
import type { Outcome, Reservation, ReserveOptions } from "./reservation.js";

/** `ttlMs` is how long the slot is held without an extension; the default is that of the limit. */
export type SlotOptions = Omit<ReserveOptions, "onExpiry">;

/**
 * A slot of a concurrency limit: extended in the background until it is released, by `release` or by the end of an `await using` block.
 * Should this process die, the slot is free after its ttl.
 */
export class Slot implements AsyncDisposable {
  readonly #reservation: Reservation;
  readonly #ttlMs: number | undefined;
  readonly #lost = new AbortController();
  #expiresAtMs = Infinity;
  #timer: NodeJS.Timeout | undefined;

  constructor(reservation: Reservation, ttlMs: number | undefined) {
    this.#reservation = reservation;
    this.#ttlMs = ttlMs;
    if (reservation.heldMs > 0) this.#heldFor(reservation.heldMs);
  }

  /** Refused: all slots are taken, and there is none to release. */
  get decision(): Decision {
    return this.#reservation.decision;
  }

  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** Aborts when the slot is lost: it could not be extended in time, so that another may have it. Stop the work then. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Gives the slot back. It may be repeated. A slot that was lost needs no release. */
  async release(): Promise<void> {
    this.#stop();
    if (!this.#lost.signal.aborted) await this.#reservation.commit();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #heldFor(heldMs: number): void {
    this.#expiresAtMs = performance.now() + heldMs;
    // At a third, each attempt bounded by a sixth: after one that hangs there is time for two more.
    this.#extendAfter(heldMs / 3, heldMs / 6);
  }

  #extendAfter(waitMs: number, retryMs: number): void {
    const timer = setTimeout(async () => {
      const extended = await this.#reservation.extend(this.#ttlMs, { deadlineMs: retryMs }).catch((error: unknown) => error);
      // Released meanwhile.
      if (this.#timer !== timer) return;
      const leftMs = this.#expiresAtMs - performance.now();
      if (typeof extended === "number" && extended > 0) this.#heldFor(extended);
      else if (extended instanceof WeirError && !extended.isOutage) this.#lose(extended);
      else if (leftMs > 0) this.#extendAfter(Math.min(retryMs, leftMs), retryMs);
      else this.#lose(new WeirError("NOT_FOUND", "the slot has expired, since it could not be extended", { cause: extended }));
    }, waitMs);
    this.#timer = timer.unref();
  }

  #lose(why: WeirError): void {
    this.#stop();
    this.#lost.abort(why);
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

/** Runs work with a slot, which is released after it, also where it fails. */
export async function withSlot<Value>(slot: Slot, work: (slot: Slot) => Promise<Value>): Promise<Outcome<Value>> {
  const { decision } = slot;
  if (!decision.allowed) return { allowed: false, decision };
  try {
    return { allowed: true, decision, value: await work(slot) };
  } finally {
    // Where this fails, the slot is free after its ttl.
    await slot.release().catch(() => {});
  }
}
