"""The state machine of a lease of one key: decides when to request units, and applies the answers.

It has no I/O, no clock and no locks: times are parameters, microseconds of a monotonic clock. All languages behave
alike: clients/traces has the specification and the traces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weir._lease.balance import Balance
from weir._lease.holder import Grant, Holder, OnShort, Renewal, Terms

_SLOT = 100_000
"""The time slot in which checks of a key without terms are counted."""
_HOT = 3
"""The checks within a slot that make a key hot: worth a lease."""
_ASK_AGAIN_AFTER = 1_000_000
"""The pause before the terms are requested again, of a key that cannot be leased, or whose request was not answered."""
_HOLD_OFF_AFTER_LOSS = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a `Renewal`.

    Attributes:
        lease: as in the request.
        sequence: as in the request.
        is_refused: whether the request's check was refused.
        retry_after: of a refused check, if the service sends it; else 0.
        grant: None: nothing was settled or granted.
        terms: None: the key cannot be leased.
    """

    lease: int
    sequence: int
    is_refused: bool = False
    grant: Grant | None = None
    terms: Terms | None = None
    retry_after: int = 0


class LeaseMachine:
    """The state machine. A check first tries `balance.spend`; after `low` call `low`, after `short` call `short`.

    Args:
        last_lease: the numbers up to this one have been used.

    Attributes:
        balance: the units that may be spent.
        last_lease: the number of the newest lease, or of the request for terms.
    """

    __slots__ = ("_checks", "_holder", "_quiet_until", "_requested", "_slot", "balance", "last_lease")

    def __init__(self, last_lease: int = 0) -> None:
        self.balance = Balance()
        self.last_lease = last_lease
        self._holder: Holder | None = None
        self._requested: tuple[int, int] | None = None  # when, and the cost of its check
        self._slot = -1
        self._checks = 0
        self._quiet_until: float = -math.inf

    @property
    def ttl(self) -> int | None:
        """The time for which units are held; None: unknown."""
        return self._holder.terms.ttl if self._holder else None

    @property
    def is_cold(self) -> bool:
        """Whether nothing is held or requested."""
        return self._holder is None and self._requested is None

    def short(self, cost: int, now: int) -> OnShort:
        """Decides a check that the balance cannot pay. `cost` must be above 0."""
        if self._holder:
            return self._holder.short(cost, now)
        if self._requested and now < self._requested[0] + _ASK_AGAIN_AFTER:
            return None
        if not self._is_hot(now):
            return None
        self._requested = now, cost
        self.last_lease += 1
        return Renewal(self.last_lease, sequence=1, spent=0, kept=0, want=0, generation=0, cost=cost)

    def low(self, now: int) -> Renewal | None:
        """To be called after a spend that was `low`. Returns a renewal to send, for which no check waits."""
        return self._holder.low(now) if self._holder else None

    def tick(self, now: int) -> Renewal | None:
        """To be called at least four times per ttl. Returns a renewal to send, for which no check waits."""
        return self.low(now) if self.balance.is_due(now) else None

    def checked(self, cost: int, is_refused: bool, sent: int, now: int, retry_after: int = 0) -> None:
        """To be called after an ordinary check."""
        if is_refused and self._holder:
            self._holder.refused(cost, retry_after, sent, now)

    def answered(self, answer: Answer, now: int) -> Renewal | None:
        """Applies an answer.

        Returns:
            A request to send, which returns the units of a lease that is not renewed any more.
        """
        if answer.lease != self.last_lease or self.is_cold:
            return None
        holder, requested, terms = self._holder, self._requested, answer.terms
        returned = None
        if holder:
            if terms.generation != holder.terms.generation if terms else not answer.grant:
                returned = holder.close(now)
            elif answer.grant:
                holder.answered(answer.sequence, answer.grant, answer.is_refused, answer.retry_after, now)
                return None
            else:
                holder.lost(answer.sequence)
                return None
        if terms is None:
            self._forget(now + _ASK_AGAIN_AFTER)
            return returned
        self.last_lease += 1
        self._holder = Holder(self.last_lease, terms, self.balance, now)
        self._requested = None
        if requested and answer.is_refused:
            self._holder.refused(requested[1], answer.retry_after, requested[0], now)
        return returned

    def lost(self, lease: int, sequence: int, now: int) -> None:
        """To be called for a request that failed or will not be answered."""
        if lease != self.last_lease:
            return
        if self._holder:
            self._holder.lost(sequence)
        elif self._requested:
            self._forget(now + _HOLD_OFF_AFTER_LOSS)

    def close(self, now: int) -> Renewal | None:
        """Ends the lease. Returns a renewal to send, which returns the units held. The machine may be used again."""
        returned = self._holder.close(now) if self._holder else None
        self._forget(-math.inf)
        return returned

    def is_idle(self, now: int) -> bool:
        """Returns whether the lease may be dropped, except for `last_lease`."""
        if self._holder:
            return self._holder.is_idle(now)
        if self._requested:
            return now >= self._requested[0] + _ASK_AGAIN_AFTER
        return self._slot != now // _SLOT and now >= self._quiet_until

    def _is_hot(self, now: int) -> bool:
        slot = now // _SLOT
        self._checks = self._checks + 1 if self._slot == slot and not self._requested else 1
        self._slot = slot
        self._requested = None
        return self._checks >= _HOT and now >= self._quiet_until

    def _forget(self, quiet_until: float) -> None:
        self._holder = None
        self._requested = None
        self._slot = -1
        self._quiet_until = quiet_until
