/** The outcome of {@link Balance.spend}. `low`: spent, and a renewal may be due. `short`: not spent, since too little is held. */
export type Spend = "spent" | "low" | "short";

/** Units of one key that this process may spend until a deadline. Times are microseconds of a monotonic clock. */
export class Balance {
  #units = 0;
  #deadlineUs = -Infinity;
  /** Below so many units a renewal is due. */
  #low = -Infinity;
  /** And from this time on. */
  #renewAtUs = Infinity;

  get units(): number {
    return this.#units;
  }

  /** `cost` is above 0. */
  spend(cost: number, nowUs: number): Spend {
    if (nowUs >= this.#deadlineUs || this.#units < cost) return "short";
    this.#units -= cost;
    return this.#units < this.#low || nowUs >= this.#renewAtUs ? "low" : "spent";
  }

  isOver(nowUs: number): boolean {
    return nowUs >= this.#deadlineUs;
  }

  isDue(nowUs: number): boolean {
    return nowUs >= this.#renewAtUs;
  }

  /** Takes out all units above `kept`. Returns how many. */
  takeAbove(kept: number): number {
    const taken = Math.max(this.#units - kept, 0);
    this.#units -= taken;
    return taken;
  }

  /** Adds units, and sets until when all of them may be spent. */
  fill(units: number, deadlineUs: number): void {
    this.#units += units;
    this.#deadlineUs = deadlineUs;
  }

  /** Sets when a renewal is due. */
  watch(low: number, renewAtUs: number): void {
    this.#low = low;
    this.#renewAtUs = renewAtUs;
  }

  /** No renewal is due. */
  unwatch(): void {
    this.watch(-Infinity, Infinity);
  }
}
