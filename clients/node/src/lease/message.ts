import { microseconds } from "../duration.js";
import type { CheckRequest, CheckResponse, LeaseRequest, LeaseResponse } from "../generated/weir/v1/weir.js";
import type { Answer, Renewal } from "./machine.js";

/** A renewal for the wire, with the check that is decided by it; where there is none, `check` has the key alone. */
export function toMessage(holder: Buffer, { cost, ...renewal }: Renewal, check: CheckRequest): LeaseRequest {
  // It is repeated under its own number.
  return { ...renewal, holder, check: { ...check, cost, requestId: "" } };
}

/** A check that is never admitted is told so by the service, each time. */
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
