import { Balance } from "./balance.js";
import { Holder, type Grant, type OnShort, type Renewal, type Terms } from "./holder.js";

export type { Grant, OnShort, Renewal, Terms } from "./holder.js";

/** The answer to a {@link Renewal}. */
export interface Answer {
  readonly lease: number;
  readonly sequence: number;
  /** The request had a check, which is refused. */
  readonly isRefused: boolean;
  /** Of a refused check, where the service says so. */
  readonly retryAfterUs?: number;
  /** Null: nothing is settled or granted. */
  readonly grant: Grant | null;
  /** Null: the key cannot be leased. */
  readonly terms: Terms | null;
}

/** Checks of a key without terms are counted in slots of this length. */
const SLOT_US = 100_000;
/** From so many checks in a slot on, a lease is worth its renewals. */
const HOT = 3;
/** A key that cannot be leased, or whose terms were not answered, is not asked for again in this time. */
const ASK_AGAIN_AFTER_US = 1_000_000;
const HOLD_OFF_AFTER_LOSS_US = 10_000;

/**
 * The lease of one key: when to ask for it, by which request, and what an answer changes. Without I/O and clock: times are
 * parameters, microseconds of a monotonic clock. The same in all languages, by the traces in clients/traces.
 *
 * A check first tries {@link Balance.spend} of `balance`. `low` is passed on to {@link low}, `short` to {@link short}.
 */
export class LeaseMachine {
  readonly balance = new Balance();
  #holder: Holder | null = null;
  /** The terms are asked for. */
  #requested: { sentUs: number; cost: number } | null = null;
  #slot = -Infinity;
  #checks = 0;
  /** The number of the newest lease, or of the request for terms. */
  #lease: number;
  #quietUntilUs = -Infinity;

  /** `lastLease`: numbers up to this one are used up. */
  constructor(lastLease = 0) {
    this.#lease = lastLease;
  }

  get lastLease(): number {
    return this.#lease;
  }

  /** How long units are held; null: not known. */
  get ttlUs(): number | null {
    return this.#holder?.terms.ttlUs ?? null;
  }

  /** A check that the balance cannot pay for. `cost` is above 0. */
  short(cost: number, nowUs: number): OnShort {
    if (this.#holder) return this.#holder.short(cost, nowUs);
    if (this.#requested && nowUs < this.#requested.sentUs + ASK_AGAIN_AFTER_US) return { do: "check" };
    if (!this.#isHot(nowUs)) return { do: "check" };
    this.#requested = { sentUs: nowUs, cost };
    return { do: "ask", send: { lease: ++this.#lease, sequence: 1, spent: 0, kept: 0, want: 0, generation: "0", cost } };
  }

  /** The balance is low. */
  low(nowUs: number): Renewal | null {
    return this.#holder?.low(nowUs) ?? null;
  }

  /** Time has passed: to be called at least four times in the ttl. */
  tick(nowUs: number): Renewal | null {
    return this.balance.isDue(nowUs) ? this.low(nowUs) : null;
  }

  /** An ordinary check was answered. */
  checked(cost: number, isRefused: boolean, sentUs: number, nowUs: number, retryAfterUs = 0): void {
    if (isRefused) this.#holder?.refused(cost, retryAfterUs, sentUs, nowUs);
  }

  /** Returns the request that gives back what was held under other terms. */
  answered({ lease, sequence, isRefused, retryAfterUs = 0, grant, terms }: Answer, nowUs: number): Renewal | null {
    const [holder, requested] = [this.#holder, this.#requested];
    if (lease !== this.#lease || (!holder && !requested)) return null;
    let givenBack: Renewal | null = null;
    if (holder) {
      if (terms && terms.generation !== holder.terms.generation) {
        givenBack = holder.close(nowUs);
      } else if (grant) {
        holder.answered(sequence, grant, isRefused, retryAfterUs, nowUs);
        return null;
      } else if (terms) {
        holder.lost(sequence);
        return null;
      } else {
        // It is not renewed any more: what was held counts as spent.
        holder.close(nowUs);
      }
    }
    if (!terms) {
      this.#forget(nowUs + ASK_AGAIN_AFTER_US);
      return null;
    }
    this.#holder = new Holder(++this.#lease, terms, this.balance, nowUs);
    this.#requested = null;
    if (requested && isRefused) this.#holder.refused(requested.cost, retryAfterUs, requested.sentUs, nowUs);
    return givenBack;
  }

  /** A request was answered by an error, or will not be answered. */
  lost(lease: number, sequence: number, nowUs: number): void {
    if (lease !== this.#lease) return;
    if (this.#holder) this.#holder.lost(sequence);
    else if (this.#requested) this.#forget(nowUs + HOLD_OFF_AFTER_LOSS_US);
  }

  /** Gives back what is held. It may be used on. */
  close(nowUs: number): Renewal | null {
    const givenBack = this.#holder?.close(nowUs) ?? null;
    this.#forget(-Infinity);
    return givenBack;
  }

  /** Whether it may be forgotten, but for `lastLease`. */
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
