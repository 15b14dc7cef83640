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
    """How a check is answered during an outage."""

    ERROR = "error"
    """It raises."""
    ALLOW = "allow"
    """The request passes (fail open)."""
    DENY = "deny"
    """The request is refused (fail closed)."""


class Source(Enum):
    """The origin of a decision."""

    SERVICE = "service"
    """The service."""
    LEASE = "lease"
    """A lease, in this process."""
    FALLBACK = "fallback"
    """`on_failure`, since the service has not answered."""


@dataclass(frozen=True, slots=True)
class Level:
    """The decision of one limit.

    Attributes:
        name: the limit's name.
        depth: the number of key segments that it covers.
        shadow: it is evaluated, but never refuses (dry run).
        allowed: whether this limit alone allows the check.
        limit: the most units that it allows at once.
        remaining: the largest cost that it would still allow now.
        reset_after: when it is full again.
        wait: allowed, but to be started this much later.
        never: refused, and no wait helps.
        retry_after: refused: when it would allow the check.
        next_after: nothing left: when a unit is.
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
        """The service's answer."""
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
    """Whether a request may pass. True if it may.

    The numbers are a summary over all limits on the key's path, each by itself; those of one limit are in `binding`.

    Attributes:
        allowed: whether the request may pass.
        limit: the lowest limit; 0 without any, and where `source` is not the service.
        remaining: the largest cost that would still pass now; by a lease, the units that this process holds.
        retry_after: refused: when the same check passes, if no other one charges the key.
        reset_after: when every limit is full again.
        wait: allowed, but to be started this much later (limits that shape traffic; see `max_wait`).
        never: refused, and no wait helps: the cost is above a limit.
        degraded: decided without the service's shared store.
        leased: decided from units that were leased in advance, by a replica or by this process.
        next_after: nothing left: when a unit is.
        repeated: the answer to an earlier request of the same `request_id`; this one has charged nothing.
        override: the id of the operator's override or ban that acted; empty without one.
        levels: every limit on the path, root first; empty unless asked for.
        binding: the limit that decided; None without limits, or unless levels are asked for.
        source: who has decided.
        error: why the service has not, of a fallback.
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
    levels: tuple[Level, ...] = ()
    binding: Level | None = None
    source: Source = Source.SERVICE
    error: WeirError | None = None

    def __bool__(self) -> bool:
        return self.allowed

    @classmethod
    def of_message(cls, answer: pb.CheckResponse) -> Decision:
        """The service's answer.

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
            levels=levels,
            binding=levels[answer.binding] if levels and answer.HasField("binding") else None,
        )

    @classmethod
    def by_lease(cls, allowed: bool, remaining: int, retry_after_us: int | None = None) -> Decision:
        """The decision of this process, which holds `remaining` units."""
        retry_after = None if retry_after_us is None else timedelta(microseconds=retry_after_us)
        return cls(allowed, 0, remaining, retry_after, leased=True, source=Source.LEASE)

    @classmethod
    def fallback(cls, error: WeirError, on_failure: OnFailure) -> Decision:
        """The decision without the service.

        Raises:
            WeirError: the error itself, unless it is an outage and `on_failure` decides instead.
        """
        if on_failure is OnFailure.ERROR or not isinstance(error, errors.Outage):
            raise error
        return cls(allowed=on_failure is OnFailure.ALLOW, source=Source.FALLBACK, error=error)


@dataclass(frozen=True, slots=True)
class JointDecision:
    """Whether several requests may pass together. True if they may.

    Attributes:
        allowed: all may pass, and are charged; else none is.
        results: for each, what its own limits say.
        source: who has decided.
        error: why the service has not, of a fallback.
    """

    allowed: bool
    results: tuple[Decision, ...] = ()
    source: Source = Source.SERVICE
    error: WeirError | None = None

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def retry_after(self) -> timedelta | None:
        """Refused: when the same checks pass together; None if no wait helps."""
        if any(result.never for result in self.results):
            return None
        return max((result.retry_after for result in self.results if result.retry_after is not None), default=None)
