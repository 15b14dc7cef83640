import { connectivityState, type Client as Channel } from "@grpc/grpc-js";
import { CircuitBreaker, type BreakerState } from "./breaker.js";
import { openChannel } from "./channel.js";
import { fallback, fromResponse, type Decision } from "./decision.js";
import { duration } from "./duration.js";
import { fromEntry, WeirError } from "./errors.js";
import { FailureLog, type Logger } from "./failure-log.js";
import { OnExpiry, RateLimiterService, type CheckRequest } from "./generated/weir/v1/weir.js";
import { guard, type GuardOptions, type Verdict } from "./guard.js";
import { Leases } from "./lease/leases.js";
import { verifyNumbers, type CallOptions, type CheckCallOptions, type ClientOptions, type OnFailure } from "./options.js";
import { checkRequest, isRepeatable, segmentsOf, type Check, type CheckOptions, type Key } from "./request.js";
import { Reservation, withReservation, type Outcome, type ReserveOptions } from "./reservation.js";
import { deadlineAfter, encode, Rpc, type CallContext } from "./rpc.js";
import { Slot, withSlot, type SlotOptions } from "./slot.js";
import { Coalescer } from "./stream.js";
import type { Operation, Telemetry } from "./telemetry.js";
import { credentialsOf } from "./token.js";

/** The answer to `checkAll`: the checks pass together or not at all. */
export interface AllDecision {
  readonly allowed: boolean;
  /** The decision on each check, in their order. In a refused call some may be allowed; they are not charged either. */
  readonly decisions: readonly Decision[];
}

/**
 * A client of Weir: one for the whole process. `target` is `host:port`, `unix:PATH`, `dns:///host:port` or
 * `ipv4:10.0.0.1:8081,10.0.0.2:8081`; calls are balanced over all its addresses.
 */
export class Client implements Disposable, AsyncDisposable {
  readonly #channel: Channel;
  readonly #breaker: CircuitBreaker;
  readonly #rpc: Rpc;
  readonly #telemetry: Telemetry | undefined;
  readonly #unwatch: (() => void) | undefined;
  readonly #deadlineMs: number;
  readonly #onFailure: OnFailure;
  readonly #mayRetry: boolean;
  readonly #leases: Leases;
  readonly #isLeasing: boolean;
  readonly #logger: Logger;
  readonly #log: FailureLog;

  constructor(target: string, options: ClientOptions = {}) {
    verifyNumbers(options);
    const { tls = false, deadlineMs = 50, onFailure = "error", retries = 1, breaker = {}, coalesce = false, logger = console } = options;
    const credentials = credentialsOf(options, logger);
    this.#channel = openChannel(target, tls);
    this.#breaker = new CircuitBreaker(breaker === false ? { failures: 0 } : breaker);
    const coalescer =
      coalesce === false ? null : new Coalescer(this.#channel, credentials, deadlineMs / 2, coalesce === true ? {} : coalesce);
    this.#rpc = new Rpc({ channel: this.#channel, credentials, breaker: this.#breaker, coalescer, retries });
    this.#telemetry = options.telemetry;
    this.#unwatch = options.telemetry?.watchBreaker(target, () => this.breakerState);
    this.#deadlineMs = deadlineMs;
    this.#onFailure = onFailure;
    this.#mayRetry = retries > 0;
    this.#leases = new Leases(this.#rpc);
    this.#isLeasing = options.lease ?? false;
    this.#logger = logger;
    this.#log = new FailureLog(logger);
  }

  /** The state of the circuit breaker. `open`: calls fail immediately after several outages in a row. */
  get breakerState(): BreakerState {
    return this.#breaker.state;
  }

  /** Waits for a connection, for instance at start. Calls do not need it. */
  async ready(timeoutMs = 5_000): Promise<void> {
    const deadline = deadlineAfter(timeoutMs);
    const channel = this.#channel.getChannel();
    for (;;) {
      // gRPC's own waitForReady would connect again after `close`.
      this.#rpc.verifyOpen();
      const state = channel.getConnectivityState(true);
      if (state === connectivityState.READY) return;
      await new Promise<void>((resolve, reject) => {
        channel.watchConnectivityState(state, deadline, (error) => {
          if (error) reject(new WeirError("UNAVAILABLE", `no connection within ${timeoutMs} ms`, { cause: error }));
          else resolve();
        });
      });
    }
  }

  /** Decides one key: every limit on its path, in one atomic step. */
  async check(key: Key, options: CheckOptions & CheckCallOptions = {}): Promise<Decision> {
    const ask = (options.lease ?? this.#isLeasing) ? this.#leases.check(key, options) : this.#leases.ordinary;
    if (typeof ask !== "function") {
      this.#telemetry?.leased(options.domain ?? "", ask);
      return ask;
    }
    return this.#decide({
      operation: "check",
      domains: [options.domain],
      options,
      run: async (context) => fromResponse(await ask(checkRequest(key, options, this.#mayRetry), context)),
      fallback: (decision) => decision,
      results: (decision) => [decision],
    });
  }

  /** Decides up to 1,000 checks in order, independently, in one call. A check that fails has its error in its place. */
  async checkBatch(checks: readonly Check[], options: CallOptions = {}): Promise<(Decision | WeirError)[]> {
    const onFailure = options.onFailure ?? this.#onFailure;
    const requests = checks.map((check) => checkRequest(check.key, check, this.#mayRetry));
    const invalid = requests.map(encodingError);
    const valid = requests.filter((_, index) => !invalid[index]);
    return this.#decide({
      operation: "check_batch",
      domains: checks.map(({ domain }) => domain),
      options,
      run: async (context) => {
        const plan = { ...context, isRepeatable: valid.every(isRepeatable) };
        const isEmpty = valid.length === 0 && checks.length > 0;
        const { results } = isEmpty ? { results: [] } : await this.#rpc.call(RateLimiterService.checkBatch, { checks: valid }, plan);
        const decided = results.map((result) =>
          result.error ? withFallback(fromEntry(result.error), onFailure) : fromResponse(result),
        );
        return inPlace(invalid, decided);
      },
      fallback: (decision) => inPlace(invalid, valid.map(() => decision)),
      results: (results) => results,
    });
  }

  /**
   * Decides 1 to 32 checks of one domain together: either all are charged or none. Retried only if none of the checks charges
   * anything.
   */
  checkAll(checks: readonly Check[], options: CallOptions = {}): Promise<AllDecision> {
    return this.#decide({
      operation: "check_all",
      domains: checks.map(({ domain }) => domain),
      options,
      run: async (context) => {
        const request = { checks: checks.map((check) => checkRequest(check.key, check, false)) };
        const plan = { ...context, isRepeatable: request.checks.every(isRepeatable) };
        const { allowed, results } = await this.#rpc.call(RateLimiterService.checkAll, request, plan);
        return { allowed, decisions: results.map(fromResponse) };
      },
      fallback: (decision) => ({ allowed: decision.allowed, decisions: checks.map(() => decision) }),
      results: ({ decisions }) => decisions,
    });
  }

  /** Decides as `check` does. If the check is allowed, its cost is charged and held, until `commit` or `cancel` settles it. */
  async reserve(key: Key, options: ReserveOptions = {}): Promise<Reservation> {
    const deadlineMs = options.deadlineMs ?? this.#deadlineMs;
    return this.#decide({
      operation: "reserve",
      domains: [options.domain],
      options,
      run: async (context) => {
        const check = checkRequest(key, options, this.#mayRetry);
        const request = {
          check,
          ttl: options.ttlMs === undefined ? undefined : duration(options.ttlMs),
          onExpiry: options.onExpiry === "release" ? OnExpiry.RELEASE : OnExpiry.KEEP,
        };
        const response = await this.#rpc.call(RateLimiterService.reserve, request, { ...context, isRepeatable: isRepeatable(check) });
        if (!response.decision) throw new WeirError("INTERNAL", "an answer to Reserve without a decision");
        return new Reservation(fromResponse(response.decision), response, this.#rpc, deadlineMs, this.#logger);
      },
      fallback: (decision) => new Reservation(decision, null, this.#rpc, deadlineMs, this.#logger),
      results: ({ decision }) => [decision],
    });
  }

  /**
   * Reserves, and runs the work if that is allowed. Afterwards the reservation is settled in full, unless the work has settled it;
   * if the work fails, it is cancelled.
   */
  async withReservation<Value>(
    key: Key,
    options: ReserveOptions,
    work: (reservation: Reservation) => Promise<Value>,
  ): Promise<Outcome<Value>> {
    return withReservation(await this.reserve(key, options), work, this.#logger);
  }

  /** Takes a slot of each concurrency limit on the path, and holds it until it is released. */
  async slot(key: Key, options: SlotOptions = {}): Promise<Slot> {
    const sentAtMs = performance.now();
    return new Slot(await this.reserve(key, options), options.ttlMs, sentAtMs, this.#logger);
  }

  /** Takes a slot, runs the work if there is one, and releases the slot. */
  async withSlot<Value>(key: Key, options: SlotOptions, work: (slot: Slot) => Promise<Value>): Promise<Outcome<Value>> {
    return withSlot(await this.slot(key, options), work);
  }

  /**
   * Checks an HTTP request of a server: whether it passes, the headers of the response, and its status and body if it does not
   * pass. If the service does not decide, the request passes (fail open), unless `failClosed` is set; failures are logged. Empty
   * and overlong segments of the key are repaired.
   */
  guard(key: Key, options: GuardOptions = {}): Promise<Verdict> {
    return guard(this, this.#log, key, { ...options, failClosed: options.failClosed ?? this.#onFailure === "deny" });
  }

  /**
   * Removes the state of a key, and with `subtree` of all keys below it: their next checks find them full, as if never used.
   * Resolves with whether there was any.
   */
  async reset(key: Key, options: { domain?: string; subtree?: boolean; deadlineMs?: number } = {}): Promise<boolean> {
    const { domain = "", subtree = false, deadlineMs = this.#deadlineMs } = options;
    const request = { domain, key: segmentsOf(key), subtree };
    const { existed, removed } = await this.#rpc.call(RateLimiterService.reset, request, { deadlineMs, isRepeatable: true });
    return removed ?? existed;
  }

  /**
   * Returns leased units to the service, waiting at most for the deadline, and closes all connections. Calls in flight end by their
   * answer or their deadline, without another attempt; coalesced checks fail.
   */
  async close(): Promise<void> {
    this.#unwatch?.();
    const returned = this.#leases.close(this.#deadlineMs);
    this.#rpc.stop();
    await returned;
    this.#rpc.close();
  }

  [Symbol.dispose](): void {
    void this.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Runs a call that decides, with telemetry. During an outage `onFailure` decides. */
  async #decide<Result>(call: Deciding<Result>): Promise<Result> {
    const domains = call.domains.map((domain) => domain ?? "");
    const observation = this.#telemetry?.begin(call.operation, domains[0] ?? "");
    try {
      const result = await call.run({ deadlineMs: call.options.deadlineMs ?? this.#deadlineMs, headers: observation?.headers });
      observation?.end(call.results(result), domains);
      return result;
    } catch (error) {
      if (!(error instanceof WeirError)) throw error;
      const instead = withFallback(error, call.options.onFailure ?? this.#onFailure);
      if (instead instanceof WeirError) {
        observation?.end(domains.map(() => instead), domains);
        throw instead;
      }
      const result = call.fallback(instead);
      observation?.end(call.results(result), domains);
      return result;
    }
  }
}

interface Deciding<Result> {
  operation: Operation;
  /** The domain of each check. */
  domains: readonly (string | undefined)[];
  options: CallOptions;
  run(context: CallContext): Promise<Result>;
  fallback(decision: Decision): Result;
  results(result: Result): readonly (Decision | WeirError)[];
}

/** Returns the error of a check that cannot be encoded. */
function encodingError(check: CheckRequest): WeirError | null {
  try {
    encode(RateLimiterService.check, check);
    return null;
  } catch (error) {
    if (error instanceof WeirError) return error;
    throw error;
  }
}

/** Returns the errors in their places, and the results in the others. */
function inPlace<Result>(errors: readonly (WeirError | null)[], results: readonly Result[]): (Result | WeirError)[] {
  const all: (Result | WeirError)[] = [...results];
  for (const [index, error] of errors.entries()) if (error) all.splice(index, 0, error);
  return all;
}

function withFallback(error: WeirError, onFailure: OnFailure): Decision | WeirError {
  return error.isOutage && onFailure !== "error" ? fallback(onFailure === "allow", error) : error;
}
