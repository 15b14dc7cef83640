import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type * as Machine from "../node_modules/weir-client/dist/lease/machine.js";

// Not exported by the package.
const MACHINE = new URL("../../node_modules/weir-client/dist/lease/machine.js", import.meta.url).href;
const { LeaseMachine } = (await import(MACHINE)) as typeof Machine;

/** A line of clients/traces/holder.jsonl. */
interface Line {
  trace?: string;
  at: number;
  check?: number;
  tick?: true;
  answer?: { lease: number; sequence: number; refused: boolean; grant?: Grant; terms?: Terms };
  lost?: { lease: number; sequence: number };
  checked?: { cost: number; refused: boolean; sent: number };
  close?: true;
  do?: string;
  retry_after?: number;
  send?: unknown;
  held: number;
}

interface Grant {
  units: number;
  free: number;
  is_kept: boolean;
  is_recalled: boolean;
  refused_for: number;
}

interface Terms {
  generation: number;
  ttl: number;
  hold_off: number;
  scarce: number;
}

type Done = Pick<Line, "do" | "retry_after"> & { send?: Machine.Renewal | null };

/** Passes an event to the machine, and returns the outcome. */
function replay(machine: Machine.LeaseMachine, { at, check, tick, answer, lost, checked, close }: Line): Done {
  if (check !== undefined) return spend(machine, check, at);
  if (tick) return { send: machine.tick(at) };
  if (close) return { send: machine.close(at) };
  if (answer) return { send: machine.answered(read(answer), at) };
  if (lost) machine.lost(lost.lease, lost.sequence, at);
  if (checked) machine.checked(checked.cost, checked.refused, checked.sent, at);
  return {};
}

function spend(machine: Machine.LeaseMachine, cost: number, at: number): Done {
  const spent = machine.balance.spend(cost, at);
  if (spent !== "short") return { do: "spend", send: spent === "low" ? machine.low(at) : null };
  const what = machine.short(cost, at);
  return { do: what.do, ...(what.do === "refuse" && { retry_after: what.retryAfterUs }), ...(what.do === "ask" && { send: what.send }) };
}

function read({ lease, sequence, refused, grant, terms }: NonNullable<Line["answer"]>): Machine.Answer {
  return {
    lease,
    sequence,
    isRefused: refused,
    grant: grant
      ? { units: grant.units, free: grant.free, isKept: grant.is_kept, isRecalled: grant.is_recalled, refusedForUs: grant.refused_for }
      : null,
    terms: terms
      ? { generation: `${terms.generation}`, ttlUs: terms.ttl, holdOffUs: terms.hold_off, scarce: terms.scarce }
      : null,
  };
}

test("a refusal says when the service would allow the check", () => {
  const [MS, DAY] = [1_000, 86_400_000_000];
  const machine = new LeaseMachine();
  const terms = { generation: "1", ttlUs: 250 * MS, holdOffUs: 10 * MS, scarce: 1 };
  const answer = (nowUs: number, more: Partial<Machine.Answer>) => {
    const what = Array.from({ length: 100 }, () => machine.short(1, nowUs)).find((what) => what.do === "ask");
    assert.ok(what?.do === "ask");
    machine.answered({ ...what.send, isRefused: false, grant: null, terms, ...more }, nowUs + MS);
  };
  answer(MS, { isRefused: true, retryAfterUs: DAY });
  assert.deepEqual(machine.short(1, 3 * MS), { do: "refuse", retryAfterUs: DAY - MS });
  // After the hold-off the service is asked again, as it would be without that time.
  const grant = { free: 0, isKept: true, isRecalled: false, refusedForUs: 0 };
  answer(13 * MS, { grant: { ...grant, units: 0 } });
  assert.deepEqual(machine.short(1, 14 * MS), { do: "refuse", retryAfterUs: DAY - 12 * MS });
  // Units have come back: that time is unknown again.
  answer(25 * MS, { grant: { ...grant, units: 1 } });
  assert.notEqual(machine.balance.spend(1, 26 * MS), "short");
  assert.deepEqual(machine.short(1, 26 * MS), { do: "refuse", retryAfterUs: 10 * MS });
});

test("a request without an answer is given up while units are held", () => {
  const MS = 1_000;
  const machine = new LeaseMachine();
  const terms = { generation: "1", ttlUs: 250 * MS, holdOffUs: 10 * MS, scarce: 1 };
  const grant = { units: 9, free: 99, isKept: true, isRecalled: false, refusedForUs: 0 };
  for (const [nowUs, granted] of [[0, null], [MS, grant]] as const) {
    const what = Array.from({ length: 100 }, () => machine.short(1, nowUs)).find((what) => what.do === "ask");
    assert.ok(what?.do === "ask");
    machine.answered({ ...what.send, isRefused: false, grant: granted, terms }, nowUs + MS);
  }
  const [sentUs, overUs] = [200 * MS, 450 * MS];
  assert.ok(machine.tick(sentUs));
  assert.ok(machine.balance.units > 0);
  for (const [nowUs, isDue] of [[overUs - 1, false], [overUs, true]] as const) {
    assert.equal(machine.isIdle(nowUs), false);
    assert.equal(machine.tick(nowUs) !== null, isDue);
  }
});

test("the machine does what the traces of all clients say", () => {
  let machine = new LeaseMachine();
  let events = 0;
  for (const [index, text] of readFileSync("traces/holder.jsonl", "utf8").trimEnd().split("\n").entries()) {
    const line = JSON.parse(text) as Line;
    if (line.trace !== undefined) {
      machine = new LeaseMachine();
      continue;
    }
    const { send, ...done } = replay(machine, line);
    const sent = send ? { send: { ...send, generation: Number(send.generation) } } : {};
    const wanted = Object.fromEntries(Object.entries(line).filter(([name]) => ["do", "retry_after", "send", "held"].includes(name)));
    assert.deepEqual({ ...done, ...sent, held: machine.balance.units }, wanted, `line ${index + 1}: ${text}`);
    events += 1;
  }
  assert.ok(events > 1_000);
});
