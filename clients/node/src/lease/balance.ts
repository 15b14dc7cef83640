/** The outcome of {@link Balance.spend}. `low`: spent, and a renewal may be due. `short`: not spent, the balance cannot pay. */
export type Spend = "spent" | "low" | "short";

/** The units of one key that may be spent until a deadline. Times are microseconds of a monotonic clock. */
export class Balance {
  #units = 0;
  #deadlineUs = -Infinity;
  /** A renewal is due if fewer units than this are left. */
  #low = -Infinity;
  /** A renewal is due from this moment on. */
  #renewAtUs = Infinity;

  get units(): number {
    return this.#units;
  }

  /** `cost` must be above 0. */
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

  /** Takes all units above `kept` out and returns them. */
  takeAbove(kept: number): number {
    const taken = Math.max(this.#units - kept, 0);
    this.#units -= taken;
    return taken;
  }

  /** Adds units and sets the deadline of all units. */
  fill(units: number, deadlineUs: number): void {
    this.#units += units;
    this.#deadlineUs = deadlineUs;
  }

  /** Sets when a renewal is due. */
  watch(low: number, renewAtUs: number): void {
    this.#low = low;
    this.#renewAtUs = renewAtUs;
  }

  /** Makes no renewal due. */
  unwatch(): void {
    this.watch(-Infinity, Infinity);
  }
}
