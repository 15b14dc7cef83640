import { Balance } from "./balance.js";
import { Holder, type Grant, type OnShort, type Renewal, type Terms } from "./holder.js";

export type { Grant, OnShort, Renewal, Terms } from "./holder.js";

/** The answer to a {@link Renewal}. */
export interface Answer {
  readonly lease: number;
  readonly sequence: number;
  /** Whether the request's check was refused. */
  readonly isRefused: boolean;
  /** Of a refused check, if the service sends it. */
  readonly retryAfterUs?: number;
  /** Null: nothing was settled or granted. */
  readonly grant: Grant | null;
  /** Null: the key cannot be leased. */
  readonly terms: Terms | null;
}

/** The time slot in which checks of a key without terms are counted. */
const SLOT_US = 100_000;
/** The checks within a slot that make a key hot: worth a lease. */
const HOT = 3;
/** The pause before the terms are requested again, of a key that cannot be leased, or whose request was not answered. */
const ASK_AGAIN_AFTER_US = 1_000_000;
const HOLD_OFF_AFTER_LOSS_US = 10_000;

/**
 * The state machine of a lease of one key: decides when to request units, and applies the answers. It has no I/O and no clock:
 * times are parameters, microseconds of a monotonic clock. All languages behave alike: clients/traces has the specification and the
 * traces.
 *
 * A check first tries {@link Balance.spend} of `balance`. After `low` call {@link low}, after `short` call {@link short}.
 */
export class LeaseMachine {
  readonly balance = new Balance();
  #holder: Holder | null = null;
  /** The terms are requested. */
  #requested: { sentUs: number; cost: number } | null = null;
  #slot = -Infinity;
  #checks = 0;
  /** The number of the newest lease, or of the request for terms. */
  #lease: number;
  #quietUntilUs = -Infinity;

  /** `lastLease`: the numbers up to this one have been used. */
  constructor(lastLease = 0) {
    this.#lease = lastLease;
  }

  get lastLease(): number {
    return this.#lease;
  }

  /** The time for which units are held; null: unknown. */
  get ttlUs(): number | null {
    return this.#holder?.terms.ttlUs ?? null;
  }

  /** Decides a check that the balance cannot pay. `cost` must be above 0. */
  short(cost: number, nowUs: number): OnShort {
    if (this.#holder) return this.#holder.short(cost, nowUs);
    if (this.#requested && nowUs < this.#requested.sentUs + ASK_AGAIN_AFTER_US) return { do: "check" };
    if (!this.#isHot(nowUs)) return { do: "check" };
    this.#requested = { sentUs: nowUs, cost };
    return { do: "ask", send: { lease: ++this.#lease, sequence: 1, spent: 0, kept: 0, want: 0, generation: "0", cost } };
  }

  /** To be called after a spend that was `low`. Returns a request to send, for which no check waits. */
  low(nowUs: number): Renewal | null {
    return this.#holder?.low(nowUs) ?? null;
  }

  /** To be called at least four times per ttl. Returns a request to send, for which no check waits. */
  tick(nowUs: number): Renewal | null {
    return this.balance.isDue(nowUs) ? this.low(nowUs) : null;
  }

  /** To be called after an ordinary check. */
  checked(cost: number, isRefused: boolean, sentUs: number, nowUs: number, retryAfterUs = 0): void {
    if (isRefused) this.#holder?.refused(cost, retryAfterUs, sentUs, nowUs);
  }

  /** Applies an answer. Returns a request to send, which returns the units of a lease that is not renewed any more. */
  answered({ lease, sequence, isRefused, retryAfterUs = 0, grant, terms }: Answer, nowUs: number): Renewal | null {
    const [holder, requested] = [this.#holder, this.#requested];
    if (lease !== this.#lease || (!holder && !requested)) return null;
    let returned: Renewal | null = null;
    if (holder) {
      if (terms ? terms.generation !== holder.terms.generation : !grant) {
        returned = holder.close(nowUs);
      } else if (grant) {
        holder.answered(sequence, grant, isRefused, retryAfterUs, nowUs);
        return null;
      } else {
        holder.lost(sequence);
        return null;
      }
    }
    if (!terms) {
      this.#forget(nowUs + ASK_AGAIN_AFTER_US);
      return returned;
    }
    this.#holder = new Holder(++this.#lease, terms, this.balance, nowUs);
    this.#requested = null;
    if (requested && isRefused) this.#holder.refused(requested.cost, retryAfterUs, requested.sentUs, nowUs);
    return returned;
  }

  /** To be called for a request that failed or will not be answered. */
  lost(lease: number, sequence: number, nowUs: number): void {
    if (lease !== this.#lease) return;
    if (this.#holder) this.#holder.lost(sequence);
    else if (this.#requested) this.#forget(nowUs + HOLD_OFF_AFTER_LOSS_US);
  }

  /** Ends the lease. Returns a request to send, which returns the units held. The machine may be used again. */
  close(nowUs: number): Renewal | null {
    const returned = this.#holder?.close(nowUs) ?? null;
    this.#forget(-Infinity);
    return returned;
  }

  /** Returns whether the lease may be dropped, except for `lastLease`. */
  isIdle(nowUs: number): boolean {
    if (this.#holder) return this.#holder.isIdle(nowUs);
    if (this.#requested) return nowUs >= this.#requested.sentUs + ASK_AGAIN_AFTER_US;
    return this.#slot !== slotOf(nowUs) && nowUs >= this.#quietUntilUs;
  }

  #isHot(nowUs: number): boolean {
    const slot = slotOf(nowUs);
    this.#checks = !this.#requested && this.#slot === slot ? this.#checks + 1 : 1;
    this.#slot = slot;
    this.#requested = null;
    return this.#checks >= HOT && nowUs >= this.#quietUntilUs;
  }

  #forget(quietUntilUs: number): void {
    this.#holder = null;
    this.#requested = null;
    this.#slot = -Infinity;
    this.#quietUntilUs = quietUntilUs;
  }
}

function slotOf(nowUs: number): number {
  return Math.floor(nowUs / SLOT_US);
}
