// Extension and loss of a slot, in virtual time.
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { WeirError, type ErrorCode } from "weir-client";
import type * as SlotModule from "../node_modules/weir-client/dist/slot.js";

// Not exported by the package.
const SLOT = new URL("../../node_modules/weir-client/dist/slot.js", import.meta.url).href;
const { Slot } = (await import(SLOT)) as typeof SlotModule;

const HELD_MS = 6_000;
const STEP_MS = 50;

class Clock {
  nowMs = 0;
  readonly #t: TestContext;

  constructor(t: TestContext) {
    this.#t = t;
    t.mock.timers.enable({ apis: ["setTimeout"] });
    t.mock.method(performance, "now", () => this.nowMs);
  }

  /** In steps, so that the callbacks of a timer finish before the next one. */
  async until(ms: number): Promise<void> {
    while (this.nowMs < ms) {
      this.nowMs += STEP_MS;
      this.#t.mock.timers.tick(STEP_MS);
      await new Promise(setImmediate);
    }
  }
}

/** Returns a slot that was requested at 0, and the deadlines of the attempts to extend it. */
function hold(extend: (deadlineMs: number) => Promise<number>): { slot: SlotModule.Slot; deadlines: number[] } {
  const deadlines: number[] = [];
  const reservation = {
    heldMs: HELD_MS,
    extend: (_: number, { deadlineMs }: { deadlineMs: number }) => (deadlines.push(deadlineMs), extend(deadlineMs)),
  };
  type Held = ConstructorParameters<typeof SlotModule.Slot>[0];
  return { slot: new Slot(reservation as unknown as Held, HELD_MS, 0, console), deadlines };
}

/** A call that is not answered. */
function hangs(deadlineMs: number): Promise<never> {
  return new Promise((_, reject) => setTimeout(() => reject(new WeirError("DEADLINE_EXCEEDED", "no answer")), deadlineMs));
}

test("a slot is lost when its time is over, counted from when it was asked for", async (t) => {
  const clock = new Clock(t);
  // The answer took half a second.
  clock.nowMs = 500;
  const { slot, deadlines } = hold(hangs);
  await clock.until(HELD_MS - STEP_MS);
  assert.equal(slot.lost.aborted, false);
  await clock.until(HELD_MS);
  assert.equal(slot.lost.aborted, true);
  assert.deepEqual([slot.lost.reason.code, slot.lost.reason.cause.code], ["NOT_FOUND", "DEADLINE_EXCEEDED"]);
  // After a third, with a sixth between two attempts.
  assert.deepEqual(deadlines, [1_000, 1_000]);
});

test("no attempt to extend a slot lasts longer than the slot", async (t) => {
  const clock = new Clock(t);
  const { slot, deadlines } = hold(async (deadlineMs) => {
    if (deadlines.length === 4) return hangs(deadlineMs);
    // The attempts are at 2,000, 3,500 and 4,500, so the next one is at 5,500.
    if (deadlines.length === 1) await hangs(500);
    throw new WeirError("UNAVAILABLE", "no connection");
  });
  await clock.until(HELD_MS);
  assert.equal(slot.lost.aborted, true);
  assert.deepEqual(deadlines, [1_000, 1_000, 1_000, 500]);
});

test("only NOT_FOUND loses a slot at once", async (t) => {
  const clock = new Clock(t);
  const codes = ["UNAUTHENTICATED", "CANCELLED", "NOT_FOUND"] as const;
  const { slot, deadlines } = hold(async () => {
    throw new WeirError(codes[deadlines.length - 1] as ErrorCode, "why");
  });
  // The attempts are at 2,000, 3,000 and 4,000.
  await clock.until(4_000 - STEP_MS);
  assert.deepEqual([slot.lost.aborted, deadlines.length], [false, 2]);
  await clock.until(4_000);
  assert.deepEqual([slot.lost.aborted, slot.lost.reason?.code], [true, "NOT_FOUND"]);
});

test("an extension counts from when it was sent", async (t) => {
  const clock = new Clock(t);
  const { slot, deadlines } = hold(async (deadlineMs) => {
    if (deadlines.length > 1) return hangs(deadlineMs);
    await new Promise<void>((resolve) => setTimeout(resolve, 900));
    return HELD_MS;
  });
  const endsMs = HELD_MS / 3 + HELD_MS;
  await clock.until(endsMs - STEP_MS);
  assert.equal(slot.lost.aborted, false);
  await clock.until(endsMs);
  assert.equal(slot.lost.aborted, true);
});
