"""Slots of concurrency limits: held while work runs."""

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
    """The base of both kinds of slot. For use in the block of a slot only."""

    _reservation: AnyReservation
    _lost = False
    _ends_at = 0.0

    @property
    def decision(self) -> Decision:
        """Whether there was a slot: where it is refused, the work must not run."""
        return self._reservation.decision

    @property
    def lost(self) -> bool:
        """The slot is not held any more, since the service could not be told in time: another one may run too."""
        return self._lost or (self._reservation.is_held and time.monotonic() >= self._ends_at)

    def _held_from(self, sent_at: float) -> float:
        """Seconds until it is to be extended: a third. Attempts take a sixth, so one that hangs costs nothing."""
        seconds = self._reservation.expires_after.total_seconds()
        self._ends_at = sent_at + seconds
        return seconds / 3

    def _not_extended(self, failure: WeirError) -> bool:
        """Whether that is the end of it."""
        if isinstance(failure, NotFound):
            self._lost = True
            log.error("a slot is lost, another one may run too: %s", failure)
        else:
            log.warning("a slot is not extended yet: %s", failure)
        return self._lost


class Slot(_Held[Reservation]):
    """A slot of a concurrency limit. It is extended by a thread, and given back at the end of the block."""

    def __init__(self, reserve: Callable[[], Reservation], ttl: Time | None) -> None:
        self._reserve = reserve
        self._ttl = ttl
        self._done = Event()

    def __enter__(self) -> Slot:
        sent_at = time.monotonic()
        self._reservation = self._reserve()
        if self._reservation.is_held:
            pause = self._held_from(sent_at)
            Thread(target=self._extend, args=(pause,), daemon=True, name="weir-slot").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        # A slot is given back whether the work has failed or not; it has begun, which is what other limits count.
        self._reservation.__exit__(None, None, None)

    def _extend(self, pause: float) -> None:
        retry = pause / 2
        while not self._done.wait(pause):
            sent_at = time.monotonic()
            try:
                self._reservation.extend(self._ttl, deadline=retry)
                pause = self._held_from(sent_at)
                retry = pause / 2
            except WeirError as failure:
                if self._done.is_set() or self._not_extended(failure):
                    return
                pause = retry


class AsyncSlot(_Held[AsyncReservation]):
    """A `Slot` of an `AsyncClient`. It is extended by a task."""

    def __init__(self, reserve: Callable[[], Awaitable[AsyncReservation]], ttl: Time | None) -> None:
        self._reserve = reserve
        self._ttl = ttl
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncSlot:
        sent_at = time.monotonic()
        self._reservation = await self._reserve()
        if self._reservation.is_held:
            self._task = asyncio.create_task(self._extend(self._held_from(sent_at)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._task:
                self._task.cancel()
                # Not awaited itself: its cancellation and one of this task could not be told apart.
                await asyncio.wait({self._task})
        finally:
            await self._reservation.__aexit__(None, None, None)

    async def _extend(self, pause: float) -> None:
        retry = pause / 2
        while True:
            await asyncio.sleep(pause)
            sent_at = time.monotonic()
            try:
                await self._reservation.extend(self._ttl, deadline=retry)
                pause = self._held_from(sent_at)
                retry = pause / 2
            except WeirError as failure:
                if self._not_extended(failure):
                    return
                pause = retry
