"""The circuit breaker: during an outage calls fail immediately, instead of each waiting for its deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import Enum
from threading import Lock
from typing import NamedTuple

import grpc

from weir import _fork
from weir._times import Time, seconds
from weir.errors import CircuitOpen, Outage, WeirError

log = logging.getLogger("weir")


class State(Enum):
    """The state of a circuit breaker."""

    CLOSED = "closed"
    """All calls are sent."""
    OPEN = "open"
    """All calls fail immediately, without being sent."""
    HALF_OPEN = "half_open"
    """One call probes whether the service is available again; all others fail immediately."""


class Permit(NamedTuple):
    """Lets one call be sent.

    Attributes:
        is_probe: whether the call probes the service.
        answers: the number of answers until the call started.
    """

    is_probe: bool
    answers: int


class Breaker:
    """Opens after `failures` outages in a row (0: never). After `open_for` it lets one call probe the service.

    An outage does not count if its call started before the last answer: calls that were sent concurrently to one frozen
    replica miss their deadlines together, while other replicas answer.

    Safe to share between threads, and between clients of the same service.
    """

    def __init__(self, *, failures: int = 5, open_for: Time = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        if failures < 0:
            raise ValueError("a circuit breaker opens after 1 failure or more, or never (0)")
        self._failures_to_open = failures
        self._open_seconds = seconds(open_for)
        self._clock = clock
        self._lock = Lock()
        self._state = State.CLOSED
        self._failures = 0
        self._answers = 0
        self._probe_at = 0.0
        self._listeners: list[Callable[[State], None]] = []
        _fork.register(self)

    def after_fork(self) -> None:
        """In the child: a thread of the parent may hold the lock, and a probe in flight ends only in the parent."""
        self._lock = Lock()
        if self._state is State.HALF_OPEN:
            # Without the listeners: a thread of the parent may hold a lock of theirs. They learn of the next change.
            self._state = State.OPEN

    @property
    def state(self) -> State:
        """The state now."""
        return self._state

    def on_change(self, listener: Callable[[State], None]) -> None:
        """Calls the listener with each new state. The listener must not call the circuit breaker."""
        self._listeners.append(listener)

    def enter(self) -> Permit:
        """To be called before a call is sent. One of `succeeded`, `failed` and `abandoned` must follow.

        Returns:
            The permit of the call, for `failed` and `abandoned`.

        Raises:
            CircuitOpen: the call must not be sent.
        """
        with self._lock:
            if self._state is State.CLOSED:
                return Permit(False, self._answers)
            if self._state is State.OPEN and self._clock() >= self._probe_at:
                self._become(State.HALF_OPEN)
                return Permit(True, self._answers)
        raise CircuitOpen(f"the circuit breaker is open after {self._failures_to_open} failures")

    def succeeded(self) -> None:
        """Records an answer of the service."""
        with self._lock:
            self._answers += 1
            self._failures = 0
            self._become(State.CLOSED)

    def failed(self, permit: Permit) -> None:
        """Records an outage."""
        with self._lock:
            if permit.answers != self._answers:
                return
            self._failures += 1
            # A call that was sent before the circuit breaker opened must not delay the next probe.
            may_open = self._state is State.CLOSED or (self._state is State.HALF_OPEN and permit.is_probe)
            if may_open and 0 < self._failures_to_open <= self._failures:
                self._probe_at = self._clock() + self._open_seconds
                self._become(State.OPEN)

    def abandoned(self, permit: Permit) -> None:
        """Records a call that says nothing about the service. If it was the probe, the next call probes."""
        with self._lock:
            # After an answer another call may be the probe.
            is_current = permit.answers == self._answers
            if permit.is_probe and is_current and self._state is State.HALF_OPEN:
                self._become(State.OPEN)

    def ended(self, error: BaseException | None, permit: Permit) -> None:
        """Records the outcome of a call by its error, or None for an answer."""
        if isinstance(error, Outage):
            self.failed(permit)
        elif error is None or (isinstance(error, WeirError) and error.code is not grpc.StatusCode.CANCELLED):
            self.succeeded()
        else:
            self.abandoned(permit)

    def _become(self, state: State) -> None:
        if state is not self._state:
            self._state = state
            for listener in self._listeners:
                try:
                    listener(state)
                except Exception:
                    # The permit of a probe must not be lost with it: no later call would probe.
                    log.exception("a listener of the circuit breaker has failed")
