import { milliseconds, millisecondsOrNull } from "./duration.js";
import type { WeirError } from "./errors.js";
import type { CheckResponse, LevelResult } from "./generated/weir/v1/weir.js";

/** The decision of one limit. */
export interface Level {
  readonly name: string;
  /** The number of key segments that it covers. */
  readonly depth: number;
  /** A shadow limit (dry run): it never refuses. */
  readonly shadow: boolean;
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** Refused only: the time after which it would allow the check. `null`: allowed, or no wait helps. */
  readonly retryAfterMs: number | null;
  readonly resetAfterMs: number;
  /** Allowed, but to be started this much later. */
  readonly waitMs: number;
  /** Refused, and no wait helps. */
  readonly never: boolean;
  /** Nothing left: the time after which a unit is left. `null`: something is left, or no wait helps. */
  readonly nextAfterMs: number | null;
}

/**
 * The answer to a check. The summary is taken over all limits on the key's path, each field independently, so its numbers may
 * come from different limits. `binding` has the numbers of the limit that decided.
 */
export interface Decision {
  /** Whether the request may pass. */
  readonly allowed: boolean;
  /** The lowest limit on the path. 0: nothing is limited, or `source` is not `service`. */
  readonly limit: number;
  /** The largest cost that would still pass now. If `source` is `lease`: the units that the client holds. */
  readonly remaining: number;
  /**
   * Refused only: the time after which the same check passes, if no other check charges the key. `null`: allowed, or no wait helps.
   * If `source` is `lease` and the service has not sent that time: the time after which the client asks the service again.
   */
  readonly retryAfterMs: number | null;
  /** The time until every limit is full again. */
  readonly resetAfterMs: number;
  /** Allowed, but to be started this much later (traffic shaping). Above 0 only with `maxWaitMs`. */
  readonly waitMs: number;
  /** Refused, and no wait helps: the cost is above what a limit can ever allow. */
  readonly never: boolean;
  /** Nothing left, allowed or refused: the time after which a unit is left. `null`: something is left, or no wait helps. */
  readonly nextAfterMs: number | null;
  /** The id of the operator's override that applies, or of the ban that refused the check. `null`: none. */
  readonly override: string | null;
  /** The operator's reason for the ban that refused the check. `null`: none. A ban without an end is `never`. */
  readonly banReason: string | null;
  /** The service decided without its shared store. */
  readonly degraded: boolean;
  /** A replica or the client decided with units that it leases, without a call of the shared store. */
  readonly leased: boolean;
  /** This is the answer to an earlier request with the same `requestId`. This one charged nothing. */
  readonly repeated: boolean;
  /** The limit that decided. `null` without `levels: true`, and if nothing is limited. */
  readonly binding: Level | null;
  /** All limits on the path, root first. Empty without `levels: true`. */
  readonly levels: readonly Level[];
  /** Who decided. `service`: Weir. `lease`: the client, with units that it leases. `fallback`: `onFailure`, during an outage. */
  readonly source: "service" | "lease" | "fallback";
  /** Fallback only: the reason why the service did not decide. */
  readonly error: WeirError | null;
}

export function fromResponse(response: CheckResponse): Decision {
  const levels = response.levels.map(levelOf);
  return {
    allowed: response.allowed,
    limit: response.limit,
    remaining: response.remaining,
    retryAfterMs: millisecondsOrNull(response.retryAfter),
    resetAfterMs: response.resetAfter ? milliseconds(response.resetAfter) : 0,
    waitMs: response.wait ? milliseconds(response.wait) : 0,
    never: response.never,
    nextAfterMs: millisecondsOrNull(response.nextAfter),
    override: response.override || null,
    banReason: response.banReason || null,
    degraded: response.degraded,
    leased: response.leased,
    repeated: response.repeatedRequest,
    binding: (response.binding !== undefined && levels[response.binding]) || null,
    levels,
    source: "service",
    error: null,
  };
}

/** Returns the decision of `onFailure`, during an outage. */
export function fallback(allowed: boolean, error: WeirError): Decision {
  return local(allowed, 0, null, error);
}

/** Returns a decision of the client, with units that it leases. */
export function leased(allowed: boolean, remaining: number, retryAfterMs: number | null): Decision {
  return local(allowed, remaining, retryAfterMs, null);
}

/** Returns a decision without the service. */
function local(allowed: boolean, remaining: number, retryAfterMs: number | null, error: WeirError | null): Decision {
  return {
    allowed,
    limit: 0,
    remaining,
    retryAfterMs,
    resetAfterMs: 0,
    waitMs: 0,
    never: false,
    nextAfterMs: null,
    override: null,
    banReason: null,
    degraded: false,
    leased: error === null,
    repeated: false,
    binding: null,
    levels: [],
    source: error ? "fallback" : "lease",
    error,
  };
}

function levelOf(level: LevelResult): Level {
  return {
    name: level.name,
    depth: level.depth,
    shadow: level.shadow,
    allowed: level.allowed,
    limit: level.limit,
    remaining: level.remaining,
    retryAfterMs: millisecondsOrNull(level.retryAfter),
    resetAfterMs: level.resetAfter ? milliseconds(level.resetAfter) : 0,
    waitMs: level.wait ? milliseconds(level.wait) : 0,
    never: level.never,
    nextAfterMs: millisecondsOrNull(level.nextAfter),
  };
}
