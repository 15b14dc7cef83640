"""Leases of a client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import grpc

from weir import _methods, errors
from weir._breaker import Breaker
from weir._call import Call
from weir._credentials import Token
from weir._lease.holder import Renewal
from weir._lease.messages import reply_of
from weir._lease.requests import REPEAT_AFTER_SECONDS, Flow, Outcome, Requests
from weir._lease.table import TICK_SECONDS, Entry, Leases
from weir.errors import Unavailable, WeirError
from weir.v1 import weir_pb2 as pb

_STATUS_LOST = (grpc.StatusCode.INTERNAL, "Internal error from Core")
"""The status that `grpc.aio` reports if the stream ends while a message is written (grpc/grpc#36066)."""


class TaskLeases(Leases):
    """Leases for asyncio: while there are any, a timer renews them and a task reads their stream.

    Args:
        channel: connects at the first request.
    """

    def __init__(self, channel: Callable[[], grpc.aio.Channel], token: Token, breaker: Breaker) -> None:
        def open_stream(flow: Flow, wait_for_ready: bool) -> TaskStream:
            method: grpc.aio.StreamStreamMultiCallable[pb.LeaseRequest, pb.LeaseResponse] = channel().stream_stream(
                _methods.LEASE.path,
                request_serializer=pb.LeaseRequest.SerializeToString,
                response_deserializer=pb.LeaseResponse.FromString,
            )
            stream = TaskStream(method, flow, wait_for_ready)
            self._tasks.add(stream.task)
            stream.task.add_done_callback(self._tasks.discard)
            return stream

        self._tasks: set[asyncio.Task[None]] = set()
        super().__init__(Requests(open_stream, token), TaskTicker(), breaker)

    async def decide(self, entry: Entry, renewal: Renewal, request: pb.CheckRequest, call: Call) -> pb.CheckResponse:
        """Decides a check by a renewal."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()

        def waiter(told: Outcome) -> None:
            if not outcome.done():
                outcome.set_result(told)

        try:
            with call:
                self.ask(entry, renewal, call.ends_at, waiter, levels=not request.summary_only)
                # Not `asyncio.wait_for`: before Python 3.12 it loses a cancellation that arrives together with the
                # outcome.
                timer = loop.call_later(call.remaining(), waiter, call.too_late())
                try:
                    return reply_of(await outcome)
                finally:
                    timer.cancel()
        except BaseException:
            self.lost(entry, renewal)
            raise

    async def return_units(self, deadline_seconds: float) -> None:
        """Returns all leased units to the service, and waits for the answers, at most for the deadline."""
        outcomes: asyncio.Queue[Outcome] = asyncio.Queue()

        async def answered(sent: int) -> None:
            for _ in range(sent):
                await outcomes.get()

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(answered(self.close(deadline_seconds, outcomes.put_nowait)), deadline_seconds)
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class TaskStream:
    """A stream that a task reads."""

    def __init__(
        self,
        method: grpc.aio.StreamStreamMultiCallable[pb.LeaseRequest, pb.LeaseResponse],
        flow: Flow,
        wait_for_ready: bool,
    ) -> None:
        self._flow = flow
        self._messages: asyncio.Queue[pb.LeaseRequest | None] = asyncio.Queue()
        self._call = method(self._requests(), metadata=flow.token, wait_for_ready=wait_for_ready)
        self.task = asyncio.create_task(self._read())

    def write(self, message: pb.LeaseRequest) -> None:
        """Sends a request."""
        self._messages.put_nowait(message)

    def end(self) -> None:
        """Sends no more requests; those in flight are still answered."""
        self._messages.put_nowait(None)

    def cancel(self) -> None:
        """Ends the stream immediately."""
        self.end()
        self.task.cancel()

    async def _requests(self) -> AsyncIterator[pb.LeaseRequest]:
        # A stream that the service rejects has ended by then, so no write hides its status.
        await self._call.initial_metadata()
        while (message := await self._messages.get()) is not None:
            yield message

    async def _read(self) -> None:
        error: WeirError = Unavailable("the stream of leases has ended")
        try:
            async for message in self._call:
                self._flow.answered(message)
        except grpc.aio.AioRpcError as failure:
            is_lost = (failure.code(), failure.details()) == _STATUS_LOST
            lost = Unavailable("the stream of leases ended while it was written")
            error = self._flow.error_of(lost if is_lost else errors.of_rpc(failure))
        except asyncio.CancelledError:
            self._call.cancel()
            self._flow.ended(errors.of_status(grpc.StatusCode.CANCELLED, "the stream of leases is closed"))
            raise
        self.end()
        again = self._flow.ended(error)
        if again:
            await asyncio.sleep(REPEAT_AFTER_SECONDS)
            self._flow.repeat(again)


class TaskTicker:
    """A timer of the event loop, as long as there are leases."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def start(self, tick: Callable[[], bool]) -> None:
        """Starts, or starts again."""
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._run, tick)

    def stop(self) -> None:
        """Stops."""
        if self._timer:
            self._timer.cancel()

    def forget(self) -> None:
        """In a forked child: the timer belongs to the parent's event loop."""
        self._timer = None

    def _run(self, tick: Callable[[], bool]) -> None:
        if tick():
            self.start(tick)
