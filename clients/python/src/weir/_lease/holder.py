"""One lease of a key: how much to ask for, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from weir._lease.balance import Balance

MAX_COST = 2**32
"""The most units that a check may cost, and a request may want or keep."""
_DRIFT_PPM = 10_000
"""Margin of the deadline: the clocks of client and service differ in rate."""
_AVERAGED_OVER = 100_000.0
"""Demand is averaged over this time."""
_WORTHWHILE = 2
"""Less is not worth a lease."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a key is leased.

    Attributes:
        generation: stands for the key's limits: another one when the policy changes them.
        ttl: how long units are held.
        hold_off: how long a client refuses without asking, after a refusal.
        scarce: where less is granted than wanted and no more than this is free, the limit is exhausted.
    """

    generation: int
    ttl: int
    hold_off: int
    scarce: int


class Renewal(NamedTuple):
    """A request to the service: settles what was spent, gives back what is not kept, and asks for more.

    Attributes:
        lease: the number of the lease.
        sequence: rises with each request of the lease.
        spent: units spent since the lease began.
        kept: units that are held, and kept.
        want: units wanted in addition.
        generation: that of the terms; 0: none are known.
        cost: that of the check which the same request decides; 0: there is none.
    """

    lease: int
    sequence: int
    spent: int
    kept: int
    want: int
    generation: int
    cost: int


@dataclass(frozen=True, slots=True)
class Grant:
    """The service's grant.

    Attributes:
        units: in addition to what was kept.
        free: units that were free afterwards.
        is_kept: false: the deadline of what was kept had passed, and it counts as spent.
        is_recalled: a limit was lowered below what is held: give back.
        refused_for: for so long a request of at least this cost is refused.
    """

    units: int
    free: int
    is_kept: bool
    is_recalled: bool
    refused_for: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The check is refused, without asking the service: try again after `retry_after` microseconds."""

    retry_after: int


OnShort: TypeAlias = Refuse | Renewal | None
"""How a check is decided that the balance cannot pay for: refused; by this request; or by an ordinary check."""


class Holder:
    """A lease under way. It knows what was spent by what is left in the balance."""

    __slots__ = (
        "_balance",
        "_counted",
        "_horizon",
        "_is_unsettled",
        "_number",
        "_pending",
        "_rate",
        "_rate_at",
        "_refused",
        "_sequence",
        "_taken",
        "_told",
        "_usable",
        "terms",
    )

    def __init__(self, number: int, terms: Terms, balance: Balance, now: int) -> None:
        self.terms = terms
        self._number = number
        self._balance = balance
        self._horizon = 2 * terms.ttl // 5
        self._usable = terms.ttl - math.ceil(terms.ttl * _DRIFT_PPM / 1_000_000)
        self._sequence = 0
        self._pending: tuple[Renewal, int] | None = None  # and when it was sent
        self._is_unsettled = False  # the last request was lost, and may have been served
        self._taken = 0  # units ever put in the balance, less those taken back unspent
        self._counted = 0  # units spent that the rate includes
        self._rate = 0.0  # units asked for in a microsecond, on average
        self._rate_at = now
        self._refused: tuple[int, int] | None = None  # this cost, until then
        self._told: tuple[int, int] | None = None  # the service refused this cost, which passes then

    def short(self, cost: int, now: int) -> OnShort:
        """A check that the balance cannot pay for."""
        self._count(cost, now)
        is_pending = self._is_pending(now)
        if self._refused and cost >= self._refused[0]:
            until = self._refused[1]
            # While a request is pending that was sent since, others wait for its answer as long again at most.
            if is_pending and now >= until:
                until += self.terms.hold_off
            if now < until:
                passes_at = self._told[1] if self._told and cost >= self._told[0] else until
                return Refuse(max(until, passes_at) - now)
        want = self._demand()
        if is_pending or (want < _WORTHWHILE and not self._balance.units):
            return None
        # The held units go back with the request, whose check may need them.
        self._take_above(0)
        return self._renew(0, want, cost, now)

    def low(self, now: int) -> Renewal | None:
        """The balance is low, or it is time for a renewal."""
        if self._is_pending(now):
            return None
        self._count(0, now)
        balance = self._balance
        if balance.is_over(now):
            self._take_above(0)
        target = self._demand()
        held = balance.units
        # Others may need what is far above the demand.
        if target < _WORTHWHILE:
            self._take_above(0)
        elif held > 2 * target:
            self._take_above(target)
        if target < _WORTHWHILE and not held:
            balance.unwatch()
            return None
        return self._renew(balance.units, 0 if target < _WORTHWHILE else max(target - balance.units, 0), 0, now)

    def close(self, now: int) -> Renewal | None:
        """Gives back what is held."""
        self._balance.unwatch()
        units = self._take_above(0)
        return self._renew(0, 0, 0, now) if units or self._pending or self._is_unsettled else None

    def answered(self, sequence: int, grant: Grant, is_refused: bool, retry_after: int, now: int) -> None:
        """The answer to a request, with the decision on its check."""
        if not self._pending or self._pending[0].sequence != sequence:
            return
        renewal, sent = self._pending
        self._pending = None
        balance = self._balance
        if not grant.is_kept:
            # It counts as spent, with whatever was spent of it since.
            balance.take_above(0)
            self._counted = min(self._counted, renewal.spent)
            self._taken = renewal.spent
        if grant.is_recalled:
            self._take_above(0)
        self._is_unsettled = False
        self._taken += grant.units
        balance.fill(grant.units, sent + self._usable)
        is_scarce = grant.units < renewal.want and grant.units + grant.free <= self.terms.scarce
        # Where nothing is to be had, asking before it is needed brings nothing.
        balance.watch(0 if is_scarce else balance.units // 2, sent + self._usable // 2)
        self._refused = None
        if self._told and balance.units + grant.free >= self._told[0]:
            self._told = None
        off = self._held_off_until(sent, now)
        if is_refused:
            self._told = renewal.cost, now + retry_after
            self._refuse(renewal.cost, max(sent + grant.refused_for, off))
        elif is_scarce:
            self._refuse(1, off)

    def refused(self, cost: int, retry_after: int, sent: int, now: int) -> None:
        """An ordinary check was refused."""
        self._told = cost, now + retry_after
        self._refuse(cost, self._held_off_until(sent, now))

    def lost(self, sequence: int) -> None:
        """This request will not be answered. Whether it was served is not known: the next one settles it."""
        if self._pending and self._pending[0].sequence == sequence:
            self._balance.watch(0, self._pending[1] + self.terms.hold_off)
            self._pending = None
            self._is_unsettled = True

    def is_idle(self, now: int) -> bool:
        """Whether it may be forgotten."""
        if self._balance.units or self._is_pending(now):
            return False
        self._count(0, now)
        return not self._demand()

    def _is_pending(self, now: int) -> bool:
        # A request that is not answered until what it brings is over is lost.
        if self._pending and now >= self._pending[1] + self.terms.ttl:
            self._pending = None
            self._balance.watch(0, -math.inf)
        return self._pending is not None

    def _renew(self, kept: int, want: int, cost: int, now: int) -> Renewal:
        self._balance.unwatch()
        self._sequence += 1
        spent = self._taken - kept
        renewal = Renewal(self._number, self._sequence, spent, kept, want, self.terms.generation, cost)
        self._pending = renewal, now
        return renewal

    def _take_above(self, kept: int) -> int:
        units = self._balance.take_above(kept)
        self._taken -= units
        return units

    def _refuse(self, cost: int, until: int) -> None:
        if cost > 0 and (self._refused is None or self._refused[1] < until):
            self._refused = cost, until

    def _held_off_until(self, sent: int, now: int) -> int:
        hold_off = self.terms.hold_off
        return min(now + hold_off, sent + 4 * hold_off)

    def _count(self, units: int, now: int) -> None:
        """Counts what was spent, and `units` more that were asked for."""
        spent = max(self._taken - self._balance.units, 0)
        asked = units + max(spent - self._counted, 0)
        self._rate = (self._rate * _AVERAGED_OVER + asked) / (_AVERAGED_OVER + max(now - self._rate_at, 0))
        self._rate_at = now
        self._counted = spent

    def _demand(self) -> int:
        """Units that will be asked for within the horizon; at most as many as a request may want."""
        return min(int(self._rate * self._horizon), MAX_COST)
