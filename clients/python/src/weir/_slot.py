"""Slots of concurrency limits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from threading import Event, Thread
from types import TracebackType
from typing import Generic, TypeVar

from weir._decision import Decision
from weir._reservation import AsyncReservation, Reservation
from weir._times import Time
from weir.errors import NotFound, WeirError

log = logging.getLogger("weir")

AnyReservation = TypeVar("AnyReservation", Reservation, AsyncReservation)


class _Held(Generic[AnyReservation]):
    """The base of both kinds of slot. Valid only inside the block of a slot."""

    _reservation: AnyReservation
    _lost = False
    _ends_at = 0.0

    @property
    def decision(self) -> Decision:
        """Whether the slot was free. If it is refused, the work must not run."""
        return self._reservation.decision

    @property
    def lost(self) -> bool:
        """Whether the slot is lost: it could not be extended in time, and another client may hold it."""
        return self._lost or (self._reservation.is_held and time.monotonic() >= self._ends_at)

    def _held_from(self, sent_at: float) -> tuple[float, float]:
        """Sets the expiry, and returns the seconds until the next extension, and the bound of each attempt.

        A slot is extended at a third of its time, which counts from the request. Each attempt is bounded by a sixth,
        so that after an attempt that hangs two more are possible.
        """
        seconds = self._reservation.expires_after.total_seconds()
        self._ends_at = sent_at + seconds
        return max(sent_at + seconds / 3 - time.monotonic(), 0), seconds / 6

    def _not_extended(self, failure: WeirError) -> bool:
        """Records a failed extension. Returns whether the slot is lost."""
        if isinstance(failure, NotFound):
            self._lost = True
            log.error("a slot is lost, another one may run too: %s", failure)
        else:
            log.warning("a slot is not extended yet: %s", failure)
        return self._lost


class Slot(_Held[Reservation]):
    """A slot of a concurrency limit. A thread extends it, and the end of the block releases it."""

    def __init__(self, reserve: Callable[[], Reservation], ttl: Time | None) -> None:
        self._reserve = reserve
        self._ttl = ttl

    def __enter__(self) -> Slot:
        self._lost, self._done = False, Event()
        sent_at = time.monotonic()
        self._reservation = self._reserve()
        if self._reservation.is_held:
            times = self._held_from(sent_at)
            Thread(target=self._extend, args=(*times, self._done), daemon=True, name="weir-slot").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        # A slot is committed even if the work has failed: the work has started, so other limits on the path stay
        # charged.
        self._reservation.__exit__(None, None, None)

    def _extend(self, pause: float, retry: float, done: Event) -> None:
        while not done.wait(pause):
            sent_at = time.monotonic()
            try:
                self._reservation.extend(self._ttl, deadline=retry)
                pause, retry = self._held_from(sent_at)
            except WeirError as failure:
                if done.is_set() or self._not_extended(failure):
                    return
                pause = retry


class AsyncSlot(_Held[AsyncReservation]):
    """A `Slot` of an `AsyncClient`. A task extends it."""

    def __init__(self, reserve: Callable[[], Awaitable[AsyncReservation]], ttl: Time | None) -> None:
        self._reserve = reserve
        self._ttl = ttl
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncSlot:
        self._lost = False
        sent_at = time.monotonic()
        self._reservation = await self._reserve()
        if self._reservation.is_held:
            self._task = asyncio.create_task(self._extend(*self._held_from(sent_at)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._task:
                self._task.cancel()
                # The task itself is not awaited: its cancellation would look like a cancellation of the current task.
                await asyncio.wait({self._task})
        finally:
            await self._reservation.__aexit__(None, None, None)

    async def _extend(self, pause: float, retry: float) -> None:
        while True:
            await asyncio.sleep(pause)
            sent_at = time.monotonic()
            try:
                await self._reservation.extend(self._ttl, deadline=retry)
                pause, retry = self._held_from(sent_at)
            except WeirError as failure:
                if self._not_extended(failure):
                    return
                pause = retry
