import { milliseconds, millisecondsOrNull } from "./duration.js";
import type { WeirError } from "./errors.js";
import type { CheckResponse, LevelResult } from "./generated/weir/v1/weir.js";

/** The decision of one limit. */
export interface Level {
  readonly name: string;
  /** How many segments of the key it covers. */
  readonly depth: number;
  /** Never refuses, only counts. */
  readonly shadow: boolean;
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** Refused only: after this time it would allow the check. `null`: allowed, or no wait helps. */
  readonly retryAfterMs: number | null;
  readonly resetAfterMs: number;
  /** Allowed, but to be started this much later. */
  readonly waitMs: number;
  /** Refused, and no wait helps. */
  readonly never: boolean;
  /** Nothing left: the time until a unit is. */
  readonly nextAfterMs: number | null;
}

/** The answer to a check. Its numbers are taken over all limits on the key's path, each by itself. */
export interface Decision {
  /** Whether the request may pass. */
  readonly allowed: boolean;
  /** The lowest limit on the path. 0 where `source` is not `service`. */
  readonly limit: number;
  /** The largest cost that would still pass now; by a lease, the units that this process holds. */
  readonly remaining: number;
  /** Refused only: the same check passes after this time, if no other charges the key. `null`: allowed, or no wait helps. */
  readonly retryAfterMs: number | null;
  /** The time until all limits are full again. */
  readonly resetAfterMs: number;
  /** Allowed, but to be started this much later: above 0 only with a `maxWaitMs` and limits that shape traffic. */
  readonly waitMs: number;
  /** Refused, and no wait helps: the cost is above what a limit can ever allow. */
  readonly never: boolean;
  /** Nothing left, allowed or refused: the time until a unit is. */
  readonly nextAfterMs: number | null;
  /** The id of the operator's override or ban that acted. `null`: none did. */
  readonly override: string | null;
  /** The service decided without its shared store. */
  readonly degraded: boolean;
  /** Decided from units that were leased in advance. */
  readonly leased: boolean;
  /** The limit that decided. Only with `levels: true`, and if there is a limit on the path. */
  readonly binding: Level | null;
  /** All limits on the path, root first. Only with `levels: true`. */
  readonly levels: readonly Level[];
  /** `lease`: decided in this process, by a lease. `fallback`: the service gave no decision, and `onFailure` did. */
  readonly source: "service" | "lease" | "fallback";
  /** Why there is only a fallback. */
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
    degraded: response.degraded,
    leased: response.leased,
    binding: (response.binding !== undefined && levels[response.binding]) || null,
    levels,
    source: "service",
    error: null,
  };
}

/** The decision of `onFailure`. */
export function fallback(allowed: boolean, error: WeirError): Decision {
  return local(allowed, 0, null, error);
}

/** The decision of a lease. */
export function leased(allowed: boolean, remaining: number, retryAfterMs: number | null): Decision {
  return local(allowed, remaining, retryAfterMs, null);
}

/** Without the service. */
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
    degraded: false,
    leased: error === null,
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
