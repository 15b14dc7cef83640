"""The leases of a client, by key. Threads and tasks share it: it does no I/O, and each key has its own lock."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple, Protocol

from weir import _fork
from weir._breaker import Breaker
from weir._decision import Decision
from weir._lease.holder import MAX_COST, Refuse, Renewal
from weir._lease.machine import Answer, LeaseMachine
from weir._lease.messages import answer_of, is_refused_for_now, request_of
from weir._lease.requests import Outcome, Rejected, Request, Requests
from weir.errors import CircuitOpen, WeirError
from weir.v1 import weir_pb2 as pb

TICK_SECONDS = 0.02
_SWEEPS = 5
"""The ticks in which all entries are swept: the event loop must not wait for all of them in each."""
_MAX_KEYS = 10_000
_HOLDER_BYTES = 16
_RENEWAL_DEADLINE_SECONDS = 0.1
"""The deadline of a request for which no check waits, if the ttl is unknown; else half of the ttl."""


class Entry:
    """The lease of one key."""

    __slots__ = ("domain", "is_dropped", "key", "lock", "machine", "sweep")

    def __init__(self, domain: str, key: Sequence[str], last_lease: int, sweep: int) -> None:
        self.domain = domain
        self.key = key
        self.lock = Lock()
        self.machine = LeaseMachine(last_lease)
        self.is_dropped = False
        self.sweep = sweep  # in which of `_SWEEPS` ticks it is dropped if it is idle


class ToAsk(NamedTuple):
    """A check of a leased key that the service decides: by this renewal, or without one by an ordinary check."""

    entry: Entry
    renewal: Renewal | None
    cost: int
    sent: int


class Ticker(Protocol):
    """Calls a function every `TICK_SECONDS`, until it returns False."""

    def start(self, tick: Callable[[], bool]) -> None:
        """Starts, or starts again."""

    def stop(self) -> None:
        """Stops."""

    def forget(self) -> None:
        """In a forked child: the ticker runs only in the parent."""


class Leases:
    """Decides checks of hot keys with leased units."""

    def __init__(self, requests: Requests, ticker: Ticker, breaker: Breaker) -> None:
        self._requests = requests
        self._ticker = ticker
        self._breaker = breaker
        self._is_closed = False
        self._holder = secrets.token_bytes(_HOLDER_BYTES)
        self._begin()
        _fork.register(self)

    def _begin(self) -> None:
        self._lock = Lock()
        self._entries: dict[tuple[str, ...], Entry] = {}
        # The highest lease number among dropped entries: a key must not use a number twice.
        self._last_lease = 0
        self._is_ticking = False
        self._ticks = 0
        self._added = 0

    def check(self, domain: str, key: Sequence[str], cost: int) -> Decision | ToAsk | None:
        """Returns the decision of the lease, or how the service decides. None: an ordinary check, without a lease."""
        # The ordinary check raises the error of a wrong type. A bool is an int in Python, but not a cost.
        if isinstance(key, str) or isinstance(cost, bool) or not isinstance(cost, int) or not 0 < cost <= MAX_COST:
            return None
        name = (domain, *key)
        entry = self._entries.get(name) or self._add(name)
        if entry is None:
            return None
        with entry.lock:
            decision, renewal = self._decide(entry, cost, _now())
        if renewal:
            self._renew(entry, renewal)
        return decision

    def _decide(self, entry: Entry, cost: int, now: int) -> tuple[Decision | ToAsk | None, Renewal | None]:
        """Returns the decision, and a renewal to send for which it does not wait."""
        machine, balance = entry.machine, entry.machine.balance
        spend = balance.spend(cost, now)
        if spend == "spent":
            return Decision.by_lease(True, balance.units), None
        if spend == "low":
            decision = Decision.by_lease(True, balance.units)
            return decision, None if self._requests.is_full else machine.low(now)
        if entry.is_dropped or self._requests.is_full:
            return None, None
        what = machine.short(cost, now)
        if isinstance(what, Refuse):
            return Decision.by_lease(False, balance.units, what.retry_after), None
        return ToAsk(entry, what, cost, now), None

    def checked(self, asked: ToAsk, reply: pb.CheckResponse) -> None:
        """Passes the answer to an ordinary check to the lease."""
        with asked.entry.lock:
            is_refused, retry_after = is_refused_for_now(reply), reply.retry_after.ToMicroseconds()
            asked.entry.machine.checked(asked.cost, is_refused, asked.sent, _now(), retry_after)

    def ask(
        self, entry: Entry, renewal: Renewal, ends_at: float, waiter: Callable[[Outcome], None], *, levels: bool
    ) -> None:
        """Sends a renewal with a check, and passes the outcome to the waiter."""
        message = request_of(self._holder, renewal, entry.domain, entry.key, levels=levels)

        def done(outcome: Outcome) -> None:
            self._tell(entry, renewal, outcome)
            waiter(outcome)

        self._requests.send(Request(renewal, message, ends_at, done))

    def lost(self, entry: Entry, renewal: Renewal) -> None:
        """To be called if the caller no longer waits for the answer to a renewal."""
        with entry.lock:
            entry.machine.lost(renewal.lease, renewal.sequence, _now())
        self._requests.replace_late()

    def close(self, deadline_seconds: float, waiter: Callable[[Outcome], None]) -> int:
        """Returns all leased units to the service. Later checks are ordinary checks.

        Returns:
            The number of outcomes that the waiter will get.
        """
        with self._lock:
            self._is_closed = True
            entries = list(self._entries.values())
            self._entries.clear()
        sent, now = 0, _now()
        for entry in entries:
            with entry.lock:
                entry.is_dropped = True
                renewal = entry.machine.close(now)
            if renewal:
                sent += 1
                self._renew(entry, renewal, deadline_seconds, waiter)
        return sent

    def stop(self) -> None:
        """Stops the background work."""
        self._ticker.stop()
        self._requests.close()

    def tick(self) -> bool:
        """Sends renewals that are due, and drops idle leases, a part of them in each tick.

        Returns:
            Whether it must be called again.
        """
        self._requests.replace_late()
        self._ticks += 1
        now, sweep = _now(), self._ticks % _SWEEPS
        for name, entry in list(self._entries.items()):
            if entry.sweep != sweep and not entry.machine.balance.is_due(now):
                continue
            with entry.lock:
                renewal = None if self._requests.is_full else entry.machine.tick(now)
                entry.is_dropped = entry.machine.is_idle(now)
            if renewal:
                self._renew(entry, renewal)
            if entry.is_dropped:
                self._drop(name, entry)
        with self._lock:
            self._is_ticking = bool(self._entries)
        if not self._is_ticking:
            self._requests.end()
        return self._is_ticking

    def after_fork(self) -> None:
        """In a forked child: the leases belong to the parent, and gRPC's streams do not work here."""
        self._is_closed = True
        self._requests.forget()
        self._ticker.forget()
        self._begin()

    def _add(self, name: tuple[str, ...]) -> Entry | None:
        # Bytes are the same key for the service, but would be another lease here, with the same holder and numbers.
        if not all(isinstance(part, str) for part in name):
            return None
        with self._lock:
            if self._is_closed or len(self._entries) >= _MAX_KEYS:
                return None
            domain, *key = name
            # By a counter: the number of entries is the same for each one that replaces another.
            self._added += 1
            sweep = self._added % _SWEEPS
            entry = self._entries.setdefault(name, Entry(domain, key, self._last_lease, sweep))
            starts, self._is_ticking = not self._is_ticking, True
        if starts:
            self._ticker.start(self.tick)
        return entry

    def _drop(self, name: tuple[str, ...], entry: Entry) -> None:
        with self._lock:
            self._last_lease = max(self._last_lease, entry.machine.last_lease)
            self._entries.pop(name, None)

    def _renew(
        self,
        entry: Entry,
        renewal: Renewal,
        deadline_seconds: float | None = None,
        waiter: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        """Sends a renewal for which no check waits."""
        ttl = entry.machine.ttl
        seconds = deadline_seconds or (_RENEWAL_DEADLINE_SECONDS if ttl is None else ttl / 2_000_000)
        message = request_of(self._holder, renewal, entry.domain, entry.key, levels=False)

        def done(outcome: Outcome) -> None:
            self._breaker.ended(outcome if isinstance(outcome, Exception) else None, permit)
            self._tell(entry, renewal, outcome)
            waiter(outcome)

        try:
            permit = self._breaker.enter()
        except CircuitOpen as error:
            self._tell(entry, renewal, error)
            waiter(error)
            return
        self._requests.send(Request(renewal, message, time.monotonic() + seconds, done))

    def _tell(self, entry: Entry, renewal: Renewal, outcome: Outcome) -> None:
        """Passes an outcome to the state machine."""
        now, returned = _now(), None
        with entry.lock:
            if isinstance(outcome, Rejected) and entry.machine.ttl is None:
                # Without terms the key counts as not leasable: its terms are not requested again for a second.
                entry.machine.answered(Answer(renewal.lease, renewal.sequence), now)
            elif isinstance(outcome, (WeirError, Rejected)):
                entry.machine.lost(renewal.lease, renewal.sequence, now)
            else:
                returned = entry.machine.answered(answer_of(outcome), now)
        if returned:
            self._renew(entry, returned)


def _now() -> int:
    return time.monotonic_ns() // 1000
