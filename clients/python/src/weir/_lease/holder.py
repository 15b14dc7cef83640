"""One lease of a key: requests units, and applies the answers. Times are microseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from weir._lease.balance import Balance

MAX_COST = 2**32
"""The largest cost of a check, and the most units that a request may want or keep."""
_DRIFT_PPM = 10_000
"""The largest difference in rate between the client's clock and the service's, in parts per million."""
_AVERAGED_OVER = 100_000.0
"""The averaging time of the demand."""
_WORTHWHILE = 2
"""Fewer units are not worth a lease."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The LeaseTerms of a key.

    Attributes:
        generation: identifies the key's limits: different after a policy changes them.
        ttl: the time for which granted units are held.
        hold_off: the time for which the client refuses locally after a refusal.
        scarce: a grant of less than `want` with at most this many units free counts as a refusal for `hold_off`.
    """

    generation: int
    ttl: int
    hold_off: int
    scarce: int


class Renewal(NamedTuple):
    """A LeaseRequest: settles the units spent, returns those that are not kept, and asks for more.

    Attributes:
        lease: the number of the lease.
        sequence: rises with each request of the lease.
        spent: units spent since the lease started.
        kept: units that the client holds and keeps.
        want: additional units that the client asks for.
        generation: that of the terms; 0: unknown.
        cost: the cost of the check which the request carries; 0: none.
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
    """A LeaseGrant.

    Attributes:
        units: additional units, beyond those kept.
        free: free units after this grant.
        is_kept: whether the kept units may still be spent. If not, their deadline had passed: they count as spent.
        is_recalled: a limit was lowered below the units held: return them.
        refused_for: the time for which a request of at least this cost is refused.
    """

    units: int
    free: int
    is_kept: bool
    is_recalled: bool
    refused_for: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the check locally: retry after `retry_after` microseconds."""

    retry_after: int


OnShort: TypeAlias = Refuse | Renewal | None
"""How to decide a check that the balance cannot pay: refuse it, send this renewal, or (None) make an ordinary check."""


class Holder:
    """One lease of a key. It derives the units spent from those left in the balance."""

    __slots__ = (
        "_balance",
        "_counted",
        "_full_until",
        "_horizon",
        "_number",
        "_pending",
        "_rate",
        "_rate_at",
        "_refused",
        "_sequence",
        "_taken",
        "_told",
        "_unsettled_until",
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
        # Until then the service may hold units that are neither in the balance nor spent: taken back, or granted by a
        # request that was lost. The next request that is answered returns them.
        self._unsettled_until = -math.inf
        self._taken = 0  # units ever put into the balance, less those taken back unspent
        self._counted = 0  # spent units that the rate includes
        self._rate = 0.0  # the demand: a moving average of the requested units per microsecond
        self._rate_at = now
        self._refused: tuple[int, int] | None = None  # checks of at least this cost, until then
        self._full_until = -math.inf  # no units are requested until then, since too many others hold some
        self._told: tuple[int, int] | None = None  # the last refusal: its cost, and when that passes

    def short(self, cost: int, now: int) -> OnShort:
        """Decides a check that the balance cannot pay."""
        self._count(cost, now)
        is_pending = self._is_pending(now)
        if self._refused and cost >= self._refused[0]:
            until = self._refused[1]
            # While one request asks the service, all other checks wait for its answer, at most one more hold-off.
            if is_pending and now >= until:
                until += self.terms.hold_off
            if now < until:
                passes_at = self._told[1] if self._told and cost >= self._told[0] else until
                return Refuse(max(until, passes_at) - now)
        want = self._demand()
        if is_pending or now < self._full_until or (want < _WORTHWHILE and not self._balance.units):
            return None
        # The request may need the units held, so all of them are returned with it.
        self._take_above(0, now)
        return self._renew(0, want, cost, now)

    def low(self, now: int) -> Renewal | None:
        """Returns a renewal if the balance is low or a renewal is due."""
        if self._is_pending(now):
            return None
        self._count(0, now)
        balance = self._balance
        if balance.is_over(now):
            self._take_above(0, now)
        target = self._demand()
        # A surplus is returned, for other clients.
        if target < _WORTHWHILE:
            self._take_above(0, now)
        elif balance.units > 2 * target:
            self._take_above(target, now)
        if target < _WORTHWHILE and now >= self._unsettled_until:
            balance.unwatch()
            return None
        return self._renew(balance.units, 0 if target < _WORTHWHILE else max(target - balance.units, 0), 0, now)

    def close(self, now: int) -> Renewal | None:
        """Returns a renewal that returns the units held."""
        self._balance.unwatch()
        self._take_above(0, now)
        return self._renew(0, 0, 0, now) if self._pending or now < self._unsettled_until else None

    def answered(self, sequence: int, grant: Grant, is_refused: bool, retry_after: int, now: int) -> None:
        """Applies the answer to a request, with the decision on its check."""
        if not self._pending or self._pending[0].sequence != sequence:
            return
        renewal, sent = self._pending
        self._pending = None
        self._unsettled_until = -math.inf
        balance = self._balance
        if not grant.is_kept:
            # The kept units are burnt, and whatever was spent of them since is charged.
            balance.take_above(0)
            self._counted = min(self._counted, renewal.spent)
            self._taken = renewal.spent
        if grant.is_recalled:
            self._take_above(0, now)
        self._taken += grant.units
        balance.fill(grant.units, sent + self._usable)
        is_full = bool(renewal.want and not grant.units and grant.free and not balance.units)
        is_scarce = not is_full and grant.units < renewal.want and grant.units + grant.free <= self.terms.scarce
        # If units are scarce, an earlier renewal would be granted nothing.
        balance.watch(0 if is_scarce else balance.units // 2, sent + self._usable // 2)
        if is_full:
            self._full_until = now + self.terms.ttl
            balance.unwatch()
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
        """Records that an ordinary check was refused."""
        self._told = cost, now + retry_after
        self._refuse(cost, self._held_off_until(sent, now))

    def lost(self, sequence: int) -> None:
        """Records that a request will not be answered. The next one settles it, whether it was carried out or not."""
        if self._pending and self._pending[0].sequence == sequence:
            renewal, sent = self._pending
            self._give_up(renewal, sent)
            # Back off: a service that cannot be reached fails each request at once.
            self._balance.watch(0, sent + (self.terms.ttl // 4 if _only_returns(renewal) else self.terms.hold_off))

    def is_idle(self, now: int) -> bool:
        """Returns whether the lease may be dropped."""
        self._count(0, now)
        # First, since it gives up a request that was not answered. The next tick settles its units.
        if self._is_pending(now) or self._balance.units or now < self._unsettled_until:
            return False
        return not self._demand()

    def _is_pending(self, now: int) -> bool:
        # A request without an answer is given up after the ttl, when its units could not be spent any more.
        if self._pending and now >= self._pending[1] + self.terms.ttl:
            self._give_up(*self._pending)
            self._balance.watch(0, -math.inf)
        return self._pending is not None

    def _give_up(self, renewal: Renewal, sent: int) -> None:
        """Ends the pending request without an answer.

        The service may have carried it out until now, except that one which only returns units leaves none.
        """
        self._pending = None
        if not _only_returns(renewal):
            self._unsettled_until = max(self._unsettled_until, sent + 2 * self.terms.ttl)

    def _renew(self, kept: int, want: int, cost: int, now: int) -> Renewal:
        self._balance.unwatch()
        self._sequence += 1
        spent = self._taken - kept
        renewal = Renewal(self._number, self._sequence, spent, kept, want, self.terms.generation, cost)
        self._pending = renewal, now
        return renewal

    def _take_above(self, kept: int, now: int) -> None:
        units = self._balance.take_above(kept)
        if units:
            self._taken -= units
            self._unsettled_until = max(self._unsettled_until, now + self.terms.ttl)

    def _refuse(self, cost: int, until: int) -> None:
        if cost > 0 and (self._refused is None or self._refused[1] < until):
            self._refused = cost, until

    def _held_off_until(self, sent: int, now: int) -> int:
        hold_off = self.terms.hold_off
        return min(now + hold_off, sent + 4 * hold_off)

    def _count(self, units: int, now: int) -> None:
        """Adds to the demand the units spent since the last call, and `units` more."""
        spent = max(self._taken - self._balance.units, 0)
        asked = units + max(spent - self._counted, 0)
        self._rate = (self._rate * _AVERAGED_OVER + asked) / (_AVERAGED_OVER + max(now - self._rate_at, 0))
        self._rate_at = now
        self._counted = spent

    def _demand(self) -> int:
        """Returns the expected demand within the horizon: units, rounded down, at most `MAX_COST`."""
        return min(int(self._rate * self._horizon), MAX_COST)


def _only_returns(renewal: Renewal) -> bool:
    """Returns whether the client holds no units once the request is carried out."""
    return not renewal.kept and not renewal.want
