"""The answer to a check."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from weir import errors
from weir.errors import WeirError
from weir.v1 import weir_pb2 as pb

_ZERO = timedelta()


class OnFailure(Enum):
    """The result of a check that the service does not decide, in an outage."""

    ERROR = "error"
    """It raises the error."""
    ALLOW = "allow"
    """The request passes (fail open)."""
    DENY = "deny"
    """The request is refused (fail closed)."""


class Source(Enum):
    """Who decided."""

    SERVICE = "service"
    """Weir."""
    LEASE = "lease"
    """The client, with units that it leases."""
    FALLBACK = "fallback"
    """`on_failure`, during an outage."""


@dataclass(frozen=True, slots=True)
class Level:
    """The decision of one limit.

    Attributes:
        name: the limit's name.
        depth: the number of key segments that it covers.
        shadow: whether it is a shadow limit (dry run), which never refuses.
        allowed: whether this limit alone allows the check.
        limit: the most units that it allows in one burst.
        remaining: the largest cost that it would still allow now; of a concurrency limit, the free slots, of which a
            request takes one.
        reset_after: the time until it is full again.
        wait: how much later an allowed request must start.
        never: whether the check is refused and no wait helps.
        retry_after: refused only: the time after which it would allow the check; None if no wait helps.
        next_after: if nothing is left, the time after which a unit is left.
    """

    name: str
    depth: int
    shadow: bool
    allowed: bool
    limit: int
    remaining: int
    reset_after: timedelta
    wait: timedelta
    never: bool
    retry_after: timedelta | None
    next_after: timedelta | None

    @classmethod
    def of_message(cls, level: pb.LevelResult) -> Level:
        """Decodes the service's answer."""
        return cls(
            name=level.name,
            depth=level.depth,
            shadow=level.shadow,
            allowed=level.allowed,
            limit=level.limit,
            remaining=level.remaining,
            reset_after=level.reset_after.ToTimedelta(),
            wait=level.wait.ToTimedelta(),
            never=level.never,
            retry_after=level.retry_after.ToTimedelta() if level.HasField("retry_after") else None,
            next_after=level.next_after.ToTimedelta() if level.HasField("next_after") else None,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a check. True if the request may pass.

    The summary is taken over all limits on the key's path, each attribute independently, so its numbers may come from
    different limits; `binding` has the numbers of the limit that decided.

    Attributes:
        allowed: whether the request may pass.
        limit: the lowest limit on the path; 0 if nothing is limited, or if `source` is not the service.
        remaining: the largest cost that would still pass now; of a lease, the units that the client holds.
        retry_after: refused only: the time after which the same check passes, if no other check charges the key; None
            if no wait helps. Of a lease, if the service has not sent that time, the time after which the client asks it
            again.
        reset_after: the time until every limit is full again.
        wait: how much later an allowed request must start (traffic shaping; see `max_wait`).
        never: whether the check is refused and no wait helps: the cost is above what a limit can ever allow.
        degraded: whether the service decided without its shared store.
        leased: whether a replica or the client decided with units that it leases, without a call of the shared store.
        next_after: if nothing is left, the time after which a unit is left.
        repeated: whether this is the answer to an earlier request with the same `request_id`. This one charged nothing.
        override: the id of the operator's override that applies, or of the ban that refused the check; else empty.
        ban_reason: the operator's reason for the ban that refused the check; else empty. A ban without an end is
            `never`.
        levels: all limits on the path, root first; empty unless requested.
        binding: the limit that decided; None if nothing is limited, or unless levels are requested.
        source: who decided.
        error: of a fallback, the reason why the service did not decide.
    """

    allowed: bool
    limit: int = 0
    remaining: int = 0
    retry_after: timedelta | None = None
    reset_after: timedelta = _ZERO
    wait: timedelta = _ZERO
    never: bool = False
    degraded: bool = False
    leased: bool = False
    next_after: timedelta | None = None
    repeated: bool = False
    override: str = ""
    ban_reason: str = ""
    levels: tuple[Level, ...] = ()
    binding: Level | None = None
    source: Source = Source.SERVICE
    error: WeirError | None = None

    def __bool__(self) -> bool:
        return self.allowed

    @classmethod
    def of_message(cls, answer: pb.CheckResponse) -> Decision:
        """Decodes the service's answer.

        Raises:
            WeirError: the answer is the error of one check of a batch.
        """
        if answer.HasField("error"):
            raise errors.of_entry(answer.error)
        levels = tuple(map(Level.of_message, answer.levels))
        return cls(
            allowed=answer.allowed,
            limit=answer.limit,
            remaining=answer.remaining,
            retry_after=answer.retry_after.ToTimedelta() if answer.HasField("retry_after") else None,
            reset_after=answer.reset_after.ToTimedelta(),
            wait=answer.wait.ToTimedelta(),
            never=answer.never,
            degraded=answer.degraded,
            leased=answer.leased,
            next_after=answer.next_after.ToTimedelta() if answer.HasField("next_after") else None,
            repeated=answer.repeated_request,
            override=answer.override,
            ban_reason=answer.ban_reason,
            levels=levels,
            binding=levels[answer.binding] if levels and answer.HasField("binding") else None,
        )

    @classmethod
    def by_lease(cls, allowed: bool, remaining: int, retry_after_us: int | None = None) -> Decision:
        """Returns a decision of the client, which holds `remaining` units."""
        retry_after = None if retry_after_us is None else timedelta(microseconds=retry_after_us)
        return cls(allowed, 0, remaining, retry_after, leased=True, source=Source.LEASE)

    @classmethod
    def fallback(cls, error: WeirError, on_failure: OnFailure) -> Decision:
        """Returns the decision of `on_failure`.

        Raises:
            WeirError: the error itself, if it is not an outage or `on_failure` is `ERROR`.
        """
        if on_failure is OnFailure.ERROR or not isinstance(error, errors.Outage):
            raise error
        return cls(allowed=on_failure is OnFailure.ALLOW, source=Source.FALLBACK, error=error)


@dataclass(frozen=True, slots=True)
class JointDecision:
    """The answer to `check_all`: the checks pass together or not at all. True if they may pass.

    Attributes:
        allowed: whether all checks pass and are charged; if not, none is.
        results: the decision of each check's own limits, in their order.
        source: who decided.
        error: of a fallback, the reason why the service did not decide.
    """

    allowed: bool
    results: tuple[Decision, ...] = ()
    source: Source = Source.SERVICE
    error: WeirError | None = None

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def retry_after(self) -> timedelta | None:
        """Refused only: the time after which the same call passes; None if no wait helps."""
        if any(result.never for result in self.results):
            return None
        return max((result.retry_after for result in self.results if result.retry_after is not None), default=None)
