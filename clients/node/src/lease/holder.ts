import type { Balance } from "./balance.js";

/** The LeaseTerms of a key. */
export interface Terms {
  /** Identifies the key's limits: different after a policy changes them. A 64-bit number in decimal digits. */
  readonly generation: string;
  /** The time for which granted units are held. */
  readonly ttlUs: number;
  /** The hold-off: after a refusal the client refuses locally for this time. */
  readonly holdOffUs: number;
  /** A grant of less than `want` with at most this many units free counts as a refusal for the hold-off. */
  readonly scarce: number;
}

/** A LeaseRequest: settles the units spent, returns those that are not kept, and asks for more. */
export interface Renewal {
  readonly lease: number;
  /** Rises with each request of the lease. */
  readonly sequence: number;
  /** Units spent since the lease started. */
  readonly spent: number;
  readonly kept: number;
  readonly want: number;
  /** That of the terms; `"0"`: unknown. */
  readonly generation: string;
  /** The cost of the check which the request carries; 0: none. */
  readonly cost: number;
}

/** A LeaseGrant. */
export interface Grant {
  /** Additional units, beyond those kept. */
  readonly units: number;
  /** Free units after this grant. */
  readonly free: number;
  /** Whether the kept units may still be spent. If not, their deadline had passed: they count as spent. */
  readonly isKept: boolean;
  /** A limit was lowered below the units held: return them. */
  readonly isRecalled: boolean;
  /** The time for which a request of at least this cost is refused. */
  readonly refusedForUs: number;
}

/** How to decide a check that the balance cannot pay: refuse it locally, by an ordinary check, or by the request to send. */
export type OnShort = { do: "refuse"; retryAfterUs: number } | { do: "check" } | { do: "ask"; send: Renewal };

/** The largest cost of a check, and the most units that a request may want or keep. */
export const MAX_COST = 2 ** 32;
/** The largest difference in rate between the client's clock and the service's, in parts per million. */
const DRIFT_PPM = 10_000;
/** The averaging time of the demand. */
const AVERAGED_OVER_US = 100_000;

/**
 * One lease of a key: requests units, and applies the answers. It derives the units spent from those left in the {@link Balance}.
 */
export class Holder {
  readonly #number: number;
  readonly #terms: Terms;
  readonly #balance: Balance;
  readonly #horizonUs: number;
  readonly #usableUs: number;
  #sequence = 0;
  #pending: { renewal: Renewal; sentUs: number } | null = null;
  /**
   * Until then the service may hold units that are neither in the balance nor spent: taken back, or granted by a request that was lost.
   * The next request that is answered returns them.
   */
  #unsettledUntilUs = -Infinity;
  /** Units ever put into the balance, less those taken back unspent. */
  #taken = 0;
  /** Spent units that `#rate` includes. */
  #counted = 0;
  /** The demand: a moving average of the requested units per microsecond. */
  #rate = 0;
  #rateAtUs: number;
  #refused: { cost: number; untilUs: number } | null = null;
  /** No units are requested until then, since too many others hold some. */
  #fullUntilUs = -Infinity;
  /** The last refusal of the service: its cost, and when a check of that cost passes. */
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

  /** Decides a check that the balance cannot pay. */
  short(cost: number, nowUs: number): OnShort {
    this.#count(cost, nowUs);
    const isPending = this.#isPending(nowUs);
    if (this.#refused && cost >= this.#refused.cost) {
      // While one request asks the service, all other checks wait for its answer, at most one more hold-off.
      const isAsked = isPending && nowUs >= this.#refused.untilUs;
      const untilUs = this.#refused.untilUs + (isAsked ? this.#terms.holdOffUs : 0);
      if (nowUs < untilUs) {
        const passesAtUs = this.#told && cost >= this.#told.cost ? this.#told.passesAtUs : untilUs;
        return { do: "refuse", retryAfterUs: Math.max(untilUs, passesAtUs) - nowUs };
      }
    }
    const want = this.#demand();
    if (isPending || nowUs < this.#fullUntilUs || (want < 2 && this.#balance.units === 0)) return { do: "check" };
    // The request may need the units held, so all of them are returned with it.
    this.#takeAbove(0, nowUs);
    return { do: "ask", send: this.#renew(0, want, cost, nowUs) };
  }

  /** Returns a renewal if the balance is low or a renewal is due. */
  low(nowUs: number): Renewal | null {
    if (this.#isPending(nowUs)) return null;
    this.#count(0, nowUs);
    const balance = this.#balance;
    if (balance.isOver(nowUs)) this.#takeAbove(0, nowUs);
    const target = this.#demand();
    // Fewer than two units are not worth a lease. A surplus is returned, for other clients.
    if (target < 2) this.#takeAbove(0, nowUs);
    else if (balance.units > 2 * target) this.#takeAbove(target, nowUs);
    if (target < 2 && nowUs >= this.#unsettledUntilUs) {
      balance.unwatch();
      return null;
    }
    return this.#renew(balance.units, target < 2 ? 0 : Math.max(target - balance.units, 0), 0, nowUs);
  }

  /** Returns a renewal that returns the units held. */
  close(nowUs: number): Renewal | null {
    this.#balance.unwatch();
    this.#takeAbove(0, nowUs);
    return this.#pending || nowUs < this.#unsettledUntilUs ? this.#renew(0, 0, 0, nowUs) : null;
  }

  answered(sequence: number, grant: Grant, isRefused: boolean, retryAfterUs: number, nowUs: number): void {
    if (this.#pending?.renewal.sequence !== sequence) return;
    const { renewal, sentUs } = this.#pending;
    this.#pending = null;
    this.#unsettledUntilUs = -Infinity;
    const balance = this.#balance;
    if (!grant.isKept) {
      // The kept units are burnt, and whatever was spent of them since is charged.
      balance.takeAbove(0);
      this.#counted = Math.min(this.#counted, renewal.spent);
      this.#taken = renewal.spent;
    }
    if (grant.isRecalled) this.#takeAbove(0, nowUs);
    this.#taken += grant.units;
    balance.fill(grant.units, sentUs + this.#usableUs);
    const isFull = renewal.want > 0 && grant.units === 0 && grant.free > 0 && balance.units === 0;
    const isScarce = !isFull && grant.units < renewal.want && grant.units + grant.free <= this.#terms.scarce;
    // If units are scarce, an earlier renewal would be granted nothing.
    balance.watch(isScarce ? 0 : Math.floor(balance.units / 2), sentUs + Math.floor(this.#usableUs / 2));
    if (isFull) {
      this.#fullUntilUs = nowUs + this.#terms.ttlUs;
      balance.unwatch();
    }
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

  /** Records that an ordinary check, sent at `sentUs`, was refused. */
  refused(cost: number, retryAfterUs: number, sentUs: number, nowUs: number): void {
    this.#told = { cost, passesAtUs: nowUs + retryAfterUs };
    this.#refuse(cost, this.#heldOffUntil(sentUs, nowUs));
  }

  /** Records that a request will not be answered. The next one settles it, whether it was carried out or not. */
  lost(sequence: number): void {
    if (this.#pending?.renewal.sequence !== sequence) return;
    const { sentUs, renewal } = this.#pending;
    this.#giveUp();
    const { holdOffUs, ttlUs } = this.#terms;
    // Back off: a service that cannot be reached fails each request at once.
    this.#balance.watch(0, sentUs + (onlyReturns(renewal) ? Math.floor(ttlUs / 4) : holdOffUs));
  }

  isIdle(nowUs: number): boolean {
    this.#count(0, nowUs);
    // First, since it gives up a request that was not answered. The next tick settles its units.
    if (this.#isPending(nowUs) || this.#balance.units > 0 || nowUs < this.#unsettledUntilUs) return false;
    return this.#demand() === 0;
  }

  /** Returns whether a request is pending. It is given up after the ttl, when its units could not be spent any more. */
  #isPending(nowUs: number): boolean {
    if (this.#pending && nowUs >= this.#pending.sentUs + this.#terms.ttlUs) {
      this.#giveUp();
      this.#balance.watch(0, -Infinity);
    }
    return this.#pending !== null;
  }

  /**
   * Ends the pending request without an answer. The service may have carried it out until now, except that one which only returns units
   * leaves none.
   */
  #giveUp(): void {
    if (this.#pending && !onlyReturns(this.#pending.renewal)) {
      this.#unsettledUntilUs = Math.max(this.#unsettledUntilUs, this.#pending.sentUs + 2 * this.#terms.ttlUs);
    }
    this.#pending = null;
  }

  #renew(kept: number, want: number, cost: number, nowUs: number): Renewal {
    this.#balance.unwatch();
    const { generation } = this.#terms;
    const renewal = { lease: this.#number, sequence: ++this.#sequence, spent: this.#taken - kept, kept, want, generation, cost };
    this.#pending = { renewal, sentUs: nowUs };
    return renewal;
  }

  #takeAbove(kept: number, nowUs: number): void {
    const units = this.#balance.takeAbove(kept);
    if (units === 0) return;
    this.#taken -= units;
    this.#unsettledUntilUs = Math.max(this.#unsettledUntilUs, nowUs + this.#terms.ttlUs);
  }

  #refuse(cost: number, untilUs: number): void {
    if (cost > 0 && (!this.#refused || this.#refused.untilUs < untilUs)) this.#refused = { cost, untilUs };
  }

  #heldOffUntil(sentUs: number, nowUs: number): number {
    const { holdOffUs } = this.#terms;
    return Math.min(nowUs + holdOffUs, sentUs + 4 * holdOffUs);
  }

  /** Adds to the demand the units spent since the last call, and `units` more. */
  #count(units: number, nowUs: number): void {
    const spent = Math.max(this.#taken - this.#balance.units, 0);
    const asked = units + Math.max(spent - this.#counted, 0);
    this.#rate = (this.#rate * AVERAGED_OVER_US + asked) / (AVERAGED_OVER_US + Math.max(nowUs - this.#rateAtUs, 0));
    this.#rateAtUs = nowUs;
    this.#counted = spent;
  }

  /** Returns the expected demand within the horizon: units, rounded down, at most `MAX_COST`. */
  #demand(): number {
    return Math.min(Math.floor(this.#rate * this.#horizonUs), MAX_COST);
  }
}

/** Returns whether the client holds no units once the request is carried out. */
function onlyReturns(renewal: Renewal): boolean {
  return renewal.kept === 0 && renewal.want === 0;
}
