"""Encoding and decoding of lease requests and answers."""

from __future__ import annotations

from collections.abc import Sequence

from weir._lease.holder import Grant, Renewal, Terms
from weir._lease.machine import Answer
from weir._lease.requests import Outcome, Rejected
from weir.errors import Internal, WeirError
from weir.v1 import weir_pb2 as pb


def request_of(holder: bytes, renewal: Renewal, domain: str, key: Sequence[str], *, levels: bool) -> pb.LeaseRequest:
    """Encodes a renewal, with its check."""
    return pb.LeaseRequest(
        check=pb.CheckRequest(domain=domain, key=key, cost=renewal.cost, summary_only=not levels),
        holder=holder,
        lease=renewal.lease,
        sequence=renewal.sequence,
        spent=renewal.spent,
        kept=renewal.kept,
        want=renewal.want,
        generation=renewal.generation,
    )


def is_refused_for_now(decision: pb.CheckResponse) -> bool:
    """Returns whether a check is refused, but may pass later. The service refuses one that never passes, each time."""
    return not (decision.allowed or decision.never)


def answer_of(message: pb.LeaseResponse) -> Answer:
    """Decodes an answer."""
    grant = terms = None
    if message.HasField("grant"):
        given = message.grant
        refused_for = given.refused_for.ToMicroseconds()
        grant = Grant(given.units, given.free, given.is_kept, given.is_recalled, refused_for)
    if message.HasField("terms"):
        offered = message.terms
        terms = Terms(
            offered.generation, offered.ttl.ToMicroseconds(), offered.hold_off.ToMicroseconds(), offered.scarce
        )
    is_refused = message.HasField("decision") and is_refused_for_now(message.decision)
    retry_after = message.decision.retry_after.ToMicroseconds()
    return Answer(message.lease, message.sequence, is_refused, grant, terms, retry_after)


def reply_of(outcome: Outcome) -> pb.CheckResponse:
    """Returns the decision on the check of a renewal.

    Raises:
        WeirError: the request failed.
        Rejected: an ordinary check must decide.
    """
    if isinstance(outcome, (WeirError, Rejected)):
        raise outcome
    if not outcome.HasField("decision"):
        raise Internal("an answer to Lease without a decision")
    return outcome.decision
