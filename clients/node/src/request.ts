import { randomUUID } from "node:crypto";
import { duration } from "./duration.js";
import type { CheckRequest } from "./generated/weir/v1/weir.js";
import { limitSpec, type ChargeMode, type Limit } from "./limits.js";

/** A path, root first: `["user", "alex", "trade"]`. 1 to 32 segments of 1 to 1,024 bytes each. */
export type Key = readonly string[];

export interface CheckOptions {
  /** The domain whose policy decides. Default: the default domain. */
  domain?: string;
  /** Units to charge, -2^32 to 2^32. Default 1. 0 is a preview: read-only, charges nothing. A negative cost is a refund. */
  cost?: number;
  /** Replaces the limits of the domain's policy for this check. */
  limits?: readonly Limit[];
  /** The charging rule of `limits` when one of them refuses. */
  charge?: ChargeMode;
  /** The longest wait that the client accepts from limits that shape traffic, up to 1 day. Default 0: they refuse instead. */
  maxWaitMs?: number;
  /**
   * Divides the counts of all limits that the check meets: 0.5 allows twice as much, 2 half as much, 0 lifts the limits. Default 1.
   */
  factor?: number;
  /** Decides as without it, but charges nothing. */
  dryRun?: boolean;
  /**
   * Idempotency key, 1 to 64 random bytes: a check with the same id is charged once, however often it is sent. Default: drawn by
   * the client if it may retry the call.
   */
  requestId?: string;
  /** Requests `levels` and `binding` of the decision. Default false. */
  levels?: boolean;
}

/** One check, for `checkBatch` and `checkAll`. */
export interface Check extends CheckOptions {
  key: Key;
}

/**
 * Returns the segments of a key. JavaScript may call with numbers and other values that have a string form. A string would be a key
 * of its letters, and `undefined` a key that all users without an id share.
 */
export function segmentsOf(key: Key): string[] {
  if (!Array.isArray(key)) throw new TypeError(`a key is an array of segments, as in ["user", "alex"], not ${typeof key}`);
  for (const segment of key as unknown[]) if (typeof segment !== "string") return Array.from(key, segmentOf);
  return key;
}

function segmentOf(segment: unknown): string {
  if (segment === undefined || segment === null) throw new TypeError(`a segment of a key is a string, not ${segment}`);
  return `${segment}`;
}

/** Encodes a check. With `mayRetry` a check that charges or refunds gets an idempotency key. */
export function checkRequest(key: Key, options: CheckOptions, mayRetry: boolean): CheckRequest {
  const { domain = "", cost, limits, charge, maxWaitMs = 0, factor, dryRun = false, levels = false } = options;
  const charges = cost !== 0 && !dryRun;
  return {
    domain,
    key: segmentsOf(key),
    limitSpec: limits && limitSpec(limits, charge),
    cost,
    maxWait: duration(maxWaitMs),
    factor,
    summaryOnly: !levels,
    requestId: options.requestId ?? (mayRetry && charges ? randomUUID() : ""),
    dryRun,
  };
}

/** Returns whether the check is idempotent. */
export function isRepeatable({ cost, dryRun, requestId }: CheckRequest): boolean {
  return requestId !== "" || cost === 0 || dryRun;
}
