import type { Decision } from "./decision.js";
import { WeirError } from "./errors.js";
import type { Logger } from "./failure-log.js";
import { endsByItself, type Outcome, type Reservation, type ReserveOptions } from "./reservation.js";

/** `ttlMs`: the time for which the slot is held without an extension. Default: the limit's ttl. */
export type SlotOptions = Omit<ReserveOptions, "onExpiry">;

/**
 * A slot of a concurrency limit. It is extended in the background until it is released, by `release` or by the end of an
 * `await using` block. If the process dies, the slot is free after its ttl.
 */
export class Slot implements AsyncDisposable {
  readonly #reservation: Reservation;
  readonly #ttlMs: number | undefined;
  readonly #logger: Logger;
  readonly #lost = new AbortController();
  #expiresAtMs = Infinity;
  #timer: NodeJS.Timeout | undefined;
  #expiry: NodeJS.Timeout | undefined;
  /** The error of the last attempt to extend the slot. */
  #failure: unknown;

  /** `sentAtMs`: when the reservation was requested. The ttl starts after this moment. */
  constructor(reservation: Reservation, ttlMs: number | undefined, sentAtMs: number, logger: Logger) {
    this.#reservation = reservation;
    this.#ttlMs = ttlMs;
    this.#logger = logger;
    if (reservation.heldMs > 0) this.#heldFor(reservation.heldMs, sentAtMs);
  }

  /** If refused, all slots are taken, and none has to be released. */
  get decision(): Decision {
    return this.#reservation.decision;
  }

  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** Aborts when the slot is lost: it could not be extended in time, and another client may hold it. Stop the work then. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Releases the slot. It may be repeated. A lost slot needs no release. */
  async release(): Promise<void> {
    this.#stop();
    if (!this.#lost.signal.aborted) await this.#reservation.commit();
  }

  /** Releases the slot. A failure is logged, and the slot is free after its ttl. */
  async [Symbol.asyncDispose](): Promise<void> {
    await endsByItself(this.release(), this.#logger);
  }

  #heldFor(heldMs: number, sentAtMs: number): void {
    this.#failure = undefined;
    this.#expiresAtMs = sentAtMs + heldMs;
    clearTimeout(this.#expiry);
    this.#expiry = setTimeout(() => this.#expire(), Math.ceil(this.#leftMs)).unref();
    // After a third of its time, each attempt bounded by a sixth, so that after an attempt that hangs two more are possible.
    this.#extendAfter(sentAtMs + heldMs / 3 - performance.now(), heldMs / 6);
  }

  get #leftMs(): number {
    return this.#expiresAtMs - performance.now();
  }

  #extendAfter(waitMs: number, retryMs: number): void {
    const timer = setTimeout(async () => {
      const [sentAtMs, leftMs] = [performance.now(), this.#leftMs];
      // The process was suspended.
      if (leftMs <= 0) return this.#expire();
      const options = { deadlineMs: Math.min(retryMs, leftMs) };
      const extended = await this.#reservation.extend(this.#ttlMs, options).catch((error: unknown) => error);
      // The slot was released or lost meanwhile.
      if (this.#timer !== timer) return;
      this.#failure = extended;
      if (typeof extended === "number" && extended > 0) this.#heldFor(extended, sentAtMs);
      else if (extended instanceof WeirError && extended.code === "NOT_FOUND") this.#lose(extended);
      else this.#extendAfter(retryMs, retryMs);
    }, waitMs);
    this.#timer = timer.unref();
  }

  #expire(): void {
    this.#lose(new WeirError("NOT_FOUND", "the slot has expired, since it could not be extended", { cause: this.#failure }));
  }

  #lose(why: WeirError): void {
    this.#stop();
    this.#lost.abort(why);
  }

  #stop(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#expiry);
    this.#timer = undefined;
  }
}

/** Runs work with a slot, and releases the slot afterwards, even if the work fails. */
export async function withSlot<Value>(slot: Slot, work: (slot: Slot) => Promise<Value>): Promise<Outcome<Value>> {
  const { decision } = slot;
  if (!decision.allowed) return { allowed: false, decision };
  await using held = slot;
  return { allowed: true, decision, value: await work(held) };
}
