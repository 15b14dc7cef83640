import type { Balance } from "./balance.js";

/** How a key is leased. */
export interface Terms {
  /** Stands for the key's limits: another one when the policy changes them. A 64-bit number in decimal digits. */
  readonly generation: string;
  /** How long units are held. */
  readonly ttlUs: number;
  /** How long a client refuses without asking, after a refusal. */
  readonly holdOffUs: number;
  /** Where less is granted than wanted, and no more than this is free, the limit is exhausted. */
  readonly scarce: number;
}

/** A request to the service: it settles what was spent, gives back what is not kept, and asks for more. */
export interface Renewal {
  readonly lease: number;
  /** Rises with each request of a lease. */
  readonly sequence: number;
  /** Units spent since the lease began. */
  readonly spent: number;
  readonly kept: number;
  readonly want: number;
  /** That of the terms; `"0"`: none are known. */
  readonly generation: string;
  /** The cost of the check that is decided by the same request; 0: there is none. */
  readonly cost: number;
}

/** The service's grant. */
export interface Grant {
  /** In addition to what was kept. */
  readonly units: number;
  /** Units that were free afterwards. */
  readonly free: number;
  /** False: the deadline of what was kept had passed, and it counts as spent. */
  readonly isKept: boolean;
  /** A limit was lowered below what is held: give back. */
  readonly isRecalled: boolean;
  /** For so long a request of at least this cost is refused. */
  readonly refusedForUs: number;
}

/** A check that the balance cannot pay for is refused without asking, decided by an ordinary check, or decided by a request. */
export type OnShort = { do: "refuse"; retryAfterUs: number } | { do: "check" } | { do: "ask"; send: Renewal };

/** The most units that a check may cost, and a request may want or keep. */
export const MAX_COST = 2 ** 32;
/** Margin of the deadline: the clocks of client and service differ in rate. */
const DRIFT_PPM = 10_000;
/** Demand is averaged over this time. */
const AVERAGED_OVER_US = 100_000;

/** One lease of a key: what is asked for, and when. It knows what was spent by what is left in the {@link Balance}. */
export class Holder {
  readonly #number: number;
  readonly #terms: Terms;
  readonly #balance: Balance;
  readonly #horizonUs: number;
  readonly #usableUs: number;
  #sequence = 0;
  #pending: { renewal: Renewal; sentUs: number } | null = null;
  /** The last request was lost, and may have been served. */
  #isUnsettled = false;
  /** Units ever put in the balance, less those taken back unspent. */
  #taken = 0;
  /** Units spent that `#rate` includes. */
  #counted = 0;
  /** Units asked for in a microsecond, on average. */
  #rate = 0;
  #rateAtUs: number;
  #refused: { cost: number; untilUs: number } | null = null;
  /** The service refused this cost, which passes then. */
  #told: { cost: number; passesAtUs: number } | null = null;

  constructor(number: number, terms: Terms, balance: Balance, nowUs: number) {
    this.#number = number;
    this.#terms = terms;
    this.#balance = balance;
    this.#horizonUs = Math.floor((2 * terms.ttlUs) / 5);
    this.#usableUs = terms.ttlUs - Math.ceil((terms.ttlUs * DRIFT_PPM) / 1_000_000);
    this.#rateAtUs = nowUs;
  }

  get terms(): Terms {
    return this.#terms;
  }

  /** A check that the balance cannot pay for. */
  short(cost: number, nowUs: number): OnShort {
    this.#count(cost, nowUs);
    const isPending = this.#isPending(nowUs);
    if (this.#refused && cost >= this.#refused.cost) {
      // While a request is pending that was sent since, others wait for its answer for as long again at most.
      const isAsked = isPending && nowUs >= this.#refused.untilUs;
      const untilUs = this.#refused.untilUs + (isAsked ? this.#terms.holdOffUs : 0);
      if (nowUs < untilUs) {
        const passesAtUs = this.#told && cost >= this.#told.cost ? this.#told.passesAtUs : untilUs;
        return { do: "refuse", retryAfterUs: Math.max(untilUs, passesAtUs) - nowUs };
      }
    }
    const want = this.#demand();
    if (isPending || (want < 2 && this.#balance.units === 0)) return { do: "check" };
    // The held units go back with the request, whose check may need them.
    this.#takeAbove(0);
    return { do: "ask", send: this.#renew(0, want, cost, nowUs) };
  }

  /** The balance is low, or it is time for a renewal. */
  low(nowUs: number): Renewal | null {
    if (this.#isPending(nowUs)) return null;
    this.#count(0, nowUs);
    const balance = this.#balance;
    if (balance.isOver(nowUs)) this.#takeAbove(0);
    const target = this.#demand();
    const held = balance.units;
    // Less than two units are not worth a lease, and others may need what is far above the demand.
    if (target < 2) this.#takeAbove(0);
    else if (held > 2 * target) this.#takeAbove(target);
    if (target < 2 && held === 0) {
      balance.unwatch();
      return null;
    }
    return this.#renew(balance.units, target < 2 ? 0 : Math.max(target - balance.units, 0), 0, nowUs);
  }

  /** Gives back what is held. */
  close(nowUs: number): Renewal | null {
    this.#balance.unwatch();
    const units = this.#takeAbove(0);
    return units > 0 || this.#pending || this.#isUnsettled ? this.#renew(0, 0, 0, nowUs) : null;
  }

  answered(sequence: number, grant: Grant, isRefused: boolean, retryAfterUs: number, nowUs: number): void {
    if (this.#pending?.renewal.sequence !== sequence) return;
    const { renewal, sentUs } = this.#pending;
    this.#pending = null;
    const balance = this.#balance;
    if (!grant.isKept) {
      // It counts as spent, with whatever was spent of it since.
      balance.takeAbove(0);
      this.#counted = Math.min(this.#counted, renewal.spent);
      this.#taken = renewal.spent;
    }
    if (grant.isRecalled) this.#takeAbove(0);
    this.#isUnsettled = false;
    this.#taken += grant.units;
    balance.fill(grant.units, sentUs + this.#usableUs);
    const isScarce = grant.units < renewal.want && grant.units + grant.free <= this.#terms.scarce;
    // Where nothing is to be had, asking before it is needed brings nothing.
    balance.watch(isScarce ? 0 : Math.floor(balance.units / 2), sentUs + Math.floor(this.#usableUs / 2));
    this.#refused = null;
    if (this.#told && balance.units + grant.free >= this.#told.cost) this.#told = null;
    const offUs = this.#heldOffUntil(sentUs, nowUs);
    if (isRefused) {
      this.#told = { cost: renewal.cost, passesAtUs: nowUs + retryAfterUs };
      this.#refuse(renewal.cost, Math.max(sentUs + grant.refusedForUs, offUs));
    } else if (isScarce) {
      this.#refuse(1, offUs);
    }
  }

  /** An ordinary check was refused, that was sent at `sentUs`. */
  refused(cost: number, retryAfterUs: number, sentUs: number, nowUs: number): void {
    this.#told = { cost, passesAtUs: nowUs + retryAfterUs };
    this.#refuse(cost, this.#heldOffUntil(sentUs, nowUs));
  }

  /** This request will not be answered. Whether it was served is not known: the next one settles it. */
  lost(sequence: number): void {
    if (this.#pending?.renewal.sequence !== sequence) return;
    this.#balance.watch(0, this.#pending.sentUs + this.#terms.holdOffUs);
    this.#pending = null;
    this.#isUnsettled = true;
  }

  isIdle(nowUs: number): boolean {
    if (this.#balance.units > 0 || this.#isPending(nowUs)) return false;
    this.#count(0, nowUs);
    return this.#demand() === 0;
  }

  /** A request that is not answered until what it brings is over is lost. */
  #isPending(nowUs: number): boolean {
    if (this.#pending && nowUs >= this.#pending.sentUs + this.#terms.ttlUs) {
      this.#pending = null;
      this.#balance.watch(0, -Infinity);
    }
    return this.#pending !== null;
  }

  #renew(kept: number, want: number, cost: number, nowUs: number): Renewal {
    this.#balance.unwatch();
    const { generation } = this.#terms;
    const renewal = { lease: this.#number, sequence: ++this.#sequence, spent: this.#taken - kept, kept, want, generation, cost };
    this.#pending = { renewal, sentUs: nowUs };
    return renewal;
  }

  #takeAbove(kept: number): number {
    const units = this.#balance.takeAbove(kept);
    this.#taken -= units;
    return units;
  }

  #refuse(cost: number, untilUs: number): void {
    if (cost > 0 && (!this.#refused || this.#refused.untilUs < untilUs)) this.#refused = { cost, untilUs };
  }

  #heldOffUntil(sentUs: number, nowUs: number): number {
    const { holdOffUs } = this.#terms;
    return Math.min(nowUs + holdOffUs, sentUs + 4 * holdOffUs);
  }

  /** Counts what was spent, and `units` more that were asked for. */
  #count(units: number, nowUs: number): void {
    const spent = Math.max(this.#taken - this.#balance.units, 0);
    const asked = units + Math.max(spent - this.#counted, 0);
    this.#rate = (this.#rate * AVERAGED_OVER_US + asked) / (AVERAGED_OVER_US + Math.max(nowUs - this.#rateAtUs, 0));
    this.#rateAtUs = nowUs;
    this.#counted = spent;
  }

  /** Units that will be asked for within the horizon; at most as many as a request may want. */
  #demand(): number {
    return Math.min(Math.floor(this.#rate * this.#horizonUs), MAX_COST);
  }
}
