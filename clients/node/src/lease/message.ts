import { microseconds } from "../duration.js";
import type { CheckRequest, CheckResponse, LeaseRequest, LeaseResponse } from "../generated/weir/v1/weir.js";
import type { Answer, Renewal } from "./machine.js";

/** Encodes a LeaseRequest, with the check that it carries; without one, `check` has only the key. */
export function toMessage(holder: Buffer, { cost, ...renewal }: Renewal, check: CheckRequest): LeaseRequest {
  // The sequence number makes it idempotent, so the check needs no id.
  return { ...renewal, holder, check: { ...check, cost, requestId: "" } };
}

/** Returns whether a check is refused, but may pass later. The service refuses one that can never pass, each time. */
export function isRefusedForNow({ allowed, never }: CheckResponse): boolean {
  return !allowed && !never;
}

export function fromMessage({ lease, sequence, decision, grant, terms }: LeaseResponse): Answer {
  return {
    lease,
    sequence,
    isRefused: decision !== undefined && isRefusedForNow(decision),
    retryAfterUs: microseconds(decision?.retryAfter),
    grant: grant ? { ...grant, refusedForUs: microseconds(grant.refusedFor) } : null,
    terms: terms
      ? {
          generation: terms.generation,
          ttlUs: microseconds(terms.ttl),
          holdOffUs: microseconds(terms.holdOff),
          scarce: terms.scarce,
        }
      : null,
  };
}
