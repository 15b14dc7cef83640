import { randomBytes } from "node:crypto";
import { leased, type Decision } from "../decision.js";
import { microseconds } from "../duration.js";
import { WeirError } from "../errors.js";
import type { CheckRequest, CheckResponse, LeaseResponse } from "../generated/weir/v1/weir.js";
import { checkRequest, segmentsOf, type CheckOptions, type Key } from "../request.js";
import type { CallContext, Rpc } from "../rpc.js";
import { MAX_COST } from "./holder.js";
import { LeaseMachine, type Renewal } from "./machine.js";
import { fromMessage, isRefusedForNow, toMessage } from "./message.js";

const MAX_KEYS = 10_000;
const TICK_MS = 20;
/** The deadline of a request for which no check waits, if the ttl is unknown; else half of the ttl. */
const RENEWAL_DEADLINE_MS = 100;

/** Has the service decide a check. */
export type Ask = (request: CheckRequest, context: CallContext) => Promise<CheckResponse>;

interface Entry {
  readonly domain: string;
  readonly key: Key;
  readonly machine: LeaseMachine;
}

/** The leases of a client, by key. Decides checks of hot keys in this process. */
export class Leases {
  readonly #rpc: Rpc;
  readonly #holder = randomBytes(16);
  readonly #entries = new Map<string, Entry>();
  /** Decides by an ordinary check, without a lease. */
  readonly ordinary: Ask = (request, context) => this.#rpc.check(request, context);
  #ticker: NodeJS.Timeout | undefined;
  /** The highest lease number among dropped entries: a key must not use a number twice. */
  #lastLease = 0;
  #isClosed = false;

  constructor(rpc: Rpc) {
    this.#rpc = rpc;
  }

  /** Returns the decision if the lease has one, else a function that has the service decide. */
  check(key: Key, options: CheckOptions): Decision | Ask {
    const { cost = 1 } = options;
    const entry = mayBeLeased(options, cost) ? this.#entry(options.domain ?? "", segmentsOf(key)) : null;
    if (!entry) return this.ordinary;
    const { machine } = entry;
    const nowUs = monotonicUs();
    const spend = machine.balance.spend(cost, nowUs);
    if (spend === "low" && !this.#rpc.isLeaseStreamFull) void this.#renew(entry, machine.low(nowUs));
    if (spend !== "short") return leased(true, machine.balance.units, null);
    if (this.#rpc.isLeaseStreamFull) return this.ordinary;
    const what = machine.short(cost, nowUs);
    switch (what.do) {
      case "refuse":
        return leased(false, machine.balance.units, what.retryAfterUs / 1_000);
      case "ask":
        return (request, context) => this.#ask(entry, what.send, request, context);
      case "check":
        return (request, context) => this.#checkAndTell(entry, cost, request, context, nowUs);
    }
  }

  /** Returns all leased units to the service. Resolves when it has answered, or failed to. Later checks are ordinary checks. */
  async close(deadlineMs: number): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#ticker);
    const nowUs = monotonicUs();
    const entries = [...this.#entries.values()];
    this.#entries.clear();
    await Promise.all(entries.map((entry) => this.#renew(entry, entry.machine.close(nowUs), deadlineMs)));
  }

  #entry(domain: string, key: Key): Entry | null {
    let name = domain;
    for (const segment of key) name += `\0${segment}`;
    const entry = this.#entries.get(name);
    if (!entry) return this.#add(name, domain, key);
    // Segments that contain a NUL may give another key the same name: that key is not leased.
    return entry.domain === domain && isSame(entry.key, key) ? entry : null;
  }

  #add(name: string, domain: string, key: Key): Entry | null {
    // Strings that are not well-formed are encoded with U+FFFD, so two such keys may be the same for the service.
    if (this.#isClosed || this.#entries.size >= MAX_KEYS || !name.isWellFormed()) return null;
    const entry = { domain, key: [...key], machine: new LeaseMachine(this.#lastLease) };
    this.#entries.set(name, entry);
    this.#ticker ??= setInterval(() => this.#tick(), TICK_MS).unref();
    return entry;
  }

  async #checkAndTell(
    { machine }: Entry,
    cost: number,
    request: CheckRequest,
    context: CallContext,
    sentUs: number,
  ): Promise<CheckResponse> {
    const response = await this.ordinary(request, context);
    machine.checked(cost, isRefusedForNow(response), sentUs, monotonicUs(), microseconds(response.retryAfter));
    return response;
  }

  async #ask(entry: Entry, renewal: Renewal, request: CheckRequest, context: CallContext): Promise<CheckResponse> {
    const startedMs = performance.now();
    const response = await this.#send(entry, renewal, request, context.deadlineMs);
    if (!response) {
      const leftMs = context.deadlineMs - (performance.now() - startedMs);
      return this.ordinary(request, { ...context, deadlineMs: Math.max(leftMs, 0) });
    }
    if (!response.decision) throw new WeirError("INTERNAL", "an answer to Lease without a decision");
    return response.decision;
  }

  /** Sends a request for which no check waits. Resolves even if it fails. */
  async #renew(entry: Entry, renewal: Renewal | null, deadlineMs?: number): Promise<void> {
    if (!renewal) return;
    const { ttlUs } = entry.machine;
    const check = checkRequest(entry.key, { domain: entry.domain }, false);
    const ms = deadlineMs ?? (ttlUs === null ? RENEWAL_DEADLINE_MS : ttlUs / 2_000);
    await this.#send(entry, renewal, check, ms).catch((error: unknown) => {
      if (!(error instanceof WeirError)) throw error;
    });
  }

  /** Sends a request, and passes its answer to the machine. Resolves with null if the service rejects the stream of leases. */
  async #send(entry: Entry, renewal: Renewal, check: CheckRequest, deadlineMs: number): Promise<LeaseResponse | null> {
    const { machine } = entry;
    const { lease, sequence } = renewal;
    try {
      const response = await this.#rpc.lease(toMessage(this.#holder, renewal, check), deadlineMs);
      if (!response && machine.ttlUs !== null) {
        // The units held may still be spent.
        machine.lost(lease, sequence, monotonicUs());
        return null;
      }
      // Without terms the key counts as not leasable: its terms are not requested again for a second.
      const answer = response ? fromMessage(response) : { lease, sequence, isRefused: false, grant: null, terms: null };
      const returned = machine.answered(answer, monotonicUs());
      if (returned) void this.#renew(entry, returned);
      return response;
    } catch (error) {
      machine.lost(lease, sequence, monotonicUs());
      throw error;
    }
  }

  #tick(): void {
    const nowUs = monotonicUs();
    for (const [name, entry] of this.#entries) {
      const { machine } = entry;
      if (!this.#rpc.isLeaseStreamFull) void this.#renew(entry, machine.tick(nowUs));
      if (!machine.isIdle(nowUs)) continue;
      this.#lastLease = Math.max(this.#lastLease, machine.lastLease);
      this.#entries.delete(name);
    }
    if (this.#entries.size > 0) return;
    // An open stream would keep the process alive.
    clearInterval(this.#ticker);
    this.#ticker = undefined;
    this.#rpc.endLeaseStream();
  }
}

/** Returns whether the policy alone decides the check, and it charges. */
function mayBeLeased({ limits, factor, dryRun, requestId, maxWaitMs }: CheckOptions, cost: number): boolean {
  const isPlain = !limits && factor === undefined && !dryRun && requestId === undefined && !maxWaitMs;
  return isPlain && cost > 0 && cost <= MAX_COST && Number.isInteger(cost);
}

function isSame(one: Key, other: Key): boolean {
  if (one.length !== other.length) return false;
  for (let i = 0; i < one.length; i++) if (one[i] !== other[i]) return false;
  return true;
}

function monotonicUs(): number {
  return Math.floor(performance.now() * 1_000);
}
