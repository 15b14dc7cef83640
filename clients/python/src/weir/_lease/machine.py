"""The lease of one key: when to ask for it, by which request, and what an answer changes.

Without I/O, clock and locks: times are parameters, microseconds of a monotonic clock. The same in all languages, by the
traces in clients/traces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weir._lease.balance import Balance
from weir._lease.holder import Grant, Holder, OnShort, Renewal, Terms

_SLOT = 100_000
"""Checks of a key without terms are counted in slots of this length."""
_HOT = 3
"""From so many checks in a slot on, a lease is worth its renewals."""
_ASK_AGAIN_AFTER = 1_000_000
"""A key that cannot be leased, or whose terms were not answered, is not asked for again in this time."""
_HOLD_OFF_AFTER_LOSS = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a `Renewal`.

    Attributes:
        lease: as in the request.
        sequence: as in the request.
        is_refused: the request had a check, which is refused.
        retry_after: of a refused check, where the service says so; else 0.
        grant: None: nothing is settled or granted.
        terms: None: the key cannot be leased.
    """

    lease: int
    sequence: int
    is_refused: bool = False
    grant: Grant | None = None
    terms: Terms | None = None
    retry_after: int = 0


class LeaseMachine:
    """A check first tries `balance.spend`; `low` is passed on to `low`, `short` to `short`.

    Args:
        last_lease: numbers up to this one are used up.

    Attributes:
        balance: what may be spent.
        last_lease: the number of the newest lease, or of the request for terms.
    """

    __slots__ = ("_checks", "_holder", "_quiet_until", "_requested", "_slot", "balance", "last_lease")

    def __init__(self, last_lease: int = 0) -> None:
        self.balance = Balance()
        self.last_lease = last_lease
        self._holder: Holder | None = None
        self._requested: tuple[int, int] | None = None  # the terms, by a request sent then with a check of this cost
        self._slot = -1
        self._checks = 0
        self._quiet_until: float = -math.inf

    @property
    def ttl(self) -> int | None:
        """How long units are held; None: not known."""
        return self._holder.terms.ttl if self._holder else None

    @property
    def is_cold(self) -> bool:
        """Nothing is held or asked for."""
        return self._holder is None and self._requested is None

    def short(self, cost: int, now: int) -> OnShort:
        """A check that the balance cannot pay for; `cost` is above 0."""
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
        """The balance is low."""
        return self._holder.low(now) if self._holder else None

    def tick(self, now: int) -> Renewal | None:
        """Time has passed: to be called at least four times in the ttl."""
        return self.low(now) if self.balance.is_due(now) else None

    def checked(self, cost: int, is_refused: bool, sent: int, now: int, retry_after: int = 0) -> None:
        """An ordinary check was answered."""
        if is_refused and self._holder:
            self._holder.refused(cost, retry_after, sent, now)

    def answered(self, answer: Answer, now: int) -> Renewal | None:
        """A request was answered.

        Returns:
            The request that gives back what was held under other terms.
        """
        if answer.lease != self.last_lease or self.is_cold:
            return None
        holder, requested, terms = self._holder, self._requested, answer.terms
        given_back = None
        if holder:
            if terms and terms.generation != holder.terms.generation:
                given_back = holder.close(now)
            elif answer.grant:
                holder.answered(answer.sequence, answer.grant, answer.is_refused, answer.retry_after, now)
                return None
            elif terms:
                holder.lost(answer.sequence)
                return None
            else:
                # It is not renewed any more: what was held counts as spent.
                holder.close(now)
        if terms is None:
            self._forget(now + _ASK_AGAIN_AFTER)
            return None
        self.last_lease += 1
        self._holder = Holder(self.last_lease, terms, self.balance, now)
        self._requested = None
        if requested and answer.is_refused:
            self._holder.refused(requested[1], answer.retry_after, requested[0], now)
        return given_back

    def lost(self, lease: int, sequence: int, now: int) -> None:
        """A request was answered by an error, or will not be answered."""
        if lease != self.last_lease:
            return
        if self._holder:
            self._holder.lost(sequence)
        elif self._requested:
            self._forget(now + _HOLD_OFF_AFTER_LOSS)

    def close(self, now: int) -> Renewal | None:
        """Gives back what is held. It may be used on."""
        given_back = self._holder.close(now) if self._holder else None
        self._forget(-math.inf)
        return given_back

    def is_idle(self, now: int) -> bool:
        """Whether it may be forgotten, but for `last_lease`."""
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
