"""Units that are held until their real cost is known."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from weir import _methods
from weir._decision import Decision
from weir._tasks import to_its_end
from weir._times import Time, duration
from weir.errors import WeirError
from weir.v1 import weir_pb2 as pb

if TYPE_CHECKING:
    from weir._aio import AsyncClient
    from weir._client import Client

log = logging.getLogger("weir")

Parameters = ParamSpec("Parameters")
Opened = TypeVar("Opened", bound="AsyncReservation")


class OnExpiry(Enum):
    """The settlement of an expired reservation."""

    KEEP = pb.ON_EXPIRY_KEEP
    """The reserved units count as spent."""
    RELEASE = pb.ON_EXPIRY_RELEASE
    """The reserved units are refunded."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The settlement of a reservation. Repeated calls get the first one.

    Attributes:
        charged: the units charged.
        refunded: the reserved units that were refunded.
        overage: the units charged beyond the reserved ones.
        degraded: whether nothing was held, so nothing was settled: the service did not decide, or decided without its
            shared store.
    """

    charged: int = 0
    refunded: int = 0
    overage: int = 0
    degraded: bool = False


class _Hold:
    """The base of both kinds of reservation.

    Attributes:
        decision: says whether units are held.
        expires_after: the time for which they are held, from the last answer of Reserve or Extend on.
    """

    def __init__(self, decision: Decision, hold: str, expires_after: timedelta) -> None:
        self.decision = decision
        self.expires_after = expires_after
        self._hold = hold
        self._settled = False

    @property
    def is_held(self) -> bool:
        """Whether there is a reservation to settle.

        There is none after a refusal or a decision without the service, and after `commit` or `cancel`, even a failed
        one.
        """
        return bool(self._hold) and not self._settled

    def _require_allowed(self) -> None:
        if not self.decision.allowed:
            raise RuntimeError("the reservation was refused: look at its decision before the work")

    def _commit_request(self, actual: int | None) -> pb.CommitRequest:
        # Also if the call fails: the end of the block must not refund units that were used.
        self._settled = True
        return pb.CommitRequest(hold=self._hold, actual=actual)

    def _cancel_request(self) -> pb.CancelRequest:
        self._settled = True
        return pb.CancelRequest(hold=self._hold)

    def _extend_request(self, ttl: Time | None) -> pb.ExtendRequest:
        return pb.ExtendRequest(hold=self._hold, ttl=None if ttl is None else duration(ttl))

    def _committed(self, answer: pb.CommitResponse) -> Settlement:
        return Settlement(answer.charged, answer.refunded, answer.overage, answer.degraded)

    def _cancelled(self, answer: pb.CancelResponse) -> Settlement:
        return Settlement(answer.charged, answer.refunded, degraded=answer.degraded)

    def _extended(self, answer: pb.ExtendResponse) -> timedelta:
        self.expires_after = answer.expires_after.ToTimedelta()
        return self.expires_after


_NOT_HELD = Settlement(degraded=True)


def reserve_request(check: pb.CheckRequest, ttl: Time | None, on_expiry: OnExpiry) -> pb.ReserveRequest:
    """Returns the request of a reservation."""
    return pb.ReserveRequest(check=check, ttl=None if ttl is None else duration(ttl), on_expiry=on_expiry.value)


class Reservation(_Hold):
    """A reservation. The end of its block settles it in full; an exception cancels it.

    If the settlement at the end of the block fails, that is logged, and the reservation ends as `on_expiry` says.
    """

    def __init__(self, client: Client, decision: Decision, hold: str, expires_after: timedelta) -> None:
        super().__init__(decision, hold, expires_after)
        self._client = client

    def commit(self, actual: int | None = None, *, deadline: Time | None = None) -> Settlement:
        """Settles the reservation by the real cost; default: the reserved units. Idempotent.

        Unused units are refunded, and units beyond the reserved ones are charged unconditionally. The first settlement
        counts.
        """
        self._require_allowed()
        if not self._hold:
            return _NOT_HELD
        return self._committed(self._client._send(_methods.COMMIT, self._commit_request(actual), deadline))

    def cancel(self, *, deadline: Time | None = None) -> Settlement:
        """Refunds all reserved units. Idempotent: the first settlement counts."""
        if not self._hold:
            return _NOT_HELD
        return self._cancelled(self._client._send(_methods.CANCEL, self._cancel_request(), deadline))

    def extend(self, ttl: Time | None = None, *, deadline: Time | None = None) -> timedelta:
        """Holds the units for another `ttl` from now on.

        Returns:
            The time for which they are held.
        """
        self._require_allowed()
        if not self._hold:
            return self.expires_after
        return self._extended(self._client._send(_methods.EXTEND, self._extend_request(ttl), deadline))

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.is_held:
            return
        try:
            self.commit() if error is None else self.cancel()
        except WeirError as failure:
            _log_unsettled(failure)


class AsyncReservation(_Hold):
    """A `Reservation` of an `AsyncClient`."""

    def __init__(self, client: AsyncClient, decision: Decision, hold: str, expires_after: timedelta) -> None:
        super().__init__(decision, hold, expires_after)
        self._client = client

    async def commit(self, actual: int | None = None, *, deadline: Time | None = None) -> Settlement:
        """Settles the reservation by the real cost; default: the reserved units. Idempotent.

        Unused units are refunded, and units beyond the reserved ones are charged unconditionally. The first settlement
        counts.
        """
        self._require_allowed()
        if not self._hold:
            return _NOT_HELD
        return self._committed(await self._client._send(_methods.COMMIT, self._commit_request(actual), deadline))

    async def cancel(self, *, deadline: Time | None = None) -> Settlement:
        """Refunds all reserved units. Idempotent: the first settlement counts."""
        if not self._hold:
            return _NOT_HELD
        return self._cancelled(await self._client._send(_methods.CANCEL, self._cancel_request(), deadline))

    async def extend(self, ttl: Time | None = None, *, deadline: Time | None = None) -> timedelta:
        """Holds the units for another `ttl` from now on.

        Returns:
            The time for which they are held.
        """
        self._require_allowed()
        if not self._hold:
            return self.expires_after
        return self._extended(await self._client._send(_methods.EXTEND, self._extend_request(ttl), deadline))

    async def __aenter__(self) -> AsyncReservation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_held:
            await to_its_end(self._settle(self.commit() if error is None else self.cancel()))

    async def _settle(self, settlement: Coroutine[Any, Any, Settlement]) -> None:
        try:
            await settlement
        except WeirError as failure:
            _log_unsettled(failure)


class Opening(Generic[Opened]):
    """A coroutine that can be awaited, or entered with `async with`."""

    def __init__(self, opened: Coroutine[Any, Any, Opened]) -> None:
        self._coroutine = opened

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._coroutine
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, traceback)


def opening(open_it: Callable[Parameters, Coroutine[Any, Any, Opened]]) -> Callable[Parameters, Opening[Opened]]:
    """Lets the result of a coroutine function also be entered: `async with client.reserve(…)`."""

    @functools.wraps(open_it)
    def opened(*arguments: Parameters.args, **options: Parameters.kwargs) -> Opening[Opened]:
        return Opening(open_it(*arguments, **options))

    return opened


def _log_unsettled(failure: WeirError) -> None:
    log.warning("a reservation is not settled, and ends by itself: %s", failure)
