import { randomUUID } from "node:crypto";
import { duration } from "./duration.js";
import type { CheckRequest } from "./generated/weir/v1/weir.js";
import { limitSpec, type ChargeMode, type Limit } from "./limits.js";

/** The path of a key, root first: `["user", "alex", "trade"]`. */
export type Key = readonly string[];

export interface CheckOptions {
  /** The domain whose policy decides. Default: the default domain. */
  domain?: string;
  /** Units. Default 1. 0 is a preview, which charges nothing; a negative cost is a refund. */
  cost?: number;
  /** Limits of the caller's own, instead of those of the policy. */
  limits?: readonly Limit[];
  /** Which of `limits` a refused check charges. */
  charge?: ChargeMode;
  /** The longest wait to accept from limits that shape traffic. Default 0: they refuse instead. */
  maxWaitMs?: number;
  /** Divides the counts of all limits: 0.5 allows twice as much, 0 lifts them. Default 1. */
  factor?: number;
  /** Would it pass, and when? Charges nothing. */
  dryRun?: boolean;
  /** The id under which the check may be repeated, and is charged once. Default: made by the client where it may retry. */
  requestId?: string;
  /** Have every limit on the path in the decision. Default false. */
  levels?: boolean;
}

/** A check of several. */
export interface Check extends CheckOptions {
  key: Key;
}

/** A check for the wire. With `mayRetry` one that charges gets an id of its own. */
export function checkRequest(key: Key, options: CheckOptions, mayRetry: boolean): CheckRequest {
  const { domain = "", cost, limits, charge, maxWaitMs = 0, factor, dryRun = false, levels = false } = options;
  const charges = cost !== 0 && !dryRun;
  return {
    domain,
    key: key as string[],
    limitSpec: limits && limitSpec(limits, charge),
    cost,
    maxWait: duration(maxWaitMs),
    factor,
    summaryOnly: !levels,
    requestId: options.requestId ?? (mayRetry && charges ? randomUUID() : ""),
    dryRun,
  };
}

/** Sent twice, it is charged once at most. */
export function isRepeatable({ cost, dryRun, requestId }: CheckRequest): boolean {
  return requestId !== "" || cost === 0 || dryRun;
}
