"""Coalescing: checks that are made at the same time are sent in batches.

No check waits for a timer. It is sent immediately while fewer than `MAX_IN_FLIGHT` batches are in flight; the checks
that arrive meanwhile share the next batch (group commit).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

import grpc

from weir import _fork, errors
from weir._call import Call
from weir.v1 import weir_pb2 as pb

MAX_IN_FLIGHT = 2
MAX_WAITING = 1024
"""If more checks are waiting, further checks are unary calls."""
MAX_BATCH = 256
MAX_BYTES = 4096
"""Larger checks are unary calls, so that a batch has at most a megabyte."""

AnyFuture = TypeVar("AnyFuture")


class _Entry(Generic[AnyFuture]):
    """A check that waits for its answer."""

    __slots__ = ("answer", "ends_at", "is_retry", "request")

    def __init__(self, request: pb.CheckRequest, call: Call, answer: AnyFuture) -> None:
        self.request = request
        self.ends_at = time.monotonic() + call.remaining()
        self.is_retry = call.is_retry
        self.answer = answer


class _Batch(Generic[AnyFuture]):
    """The checks of one call."""

    def __init__(self, entries: list[_Entry[AnyFuture]]) -> None:
        self.entries = entries
        self.request = pb.CheckBatchRequest(checks=[entry.request for entry in entries])
        self.timeout = max(entry.ends_at for entry in entries) - time.monotonic()
        self.wait_for_ready = any(entry.is_retry for entry in entries)


class Batches:
    """Sends the checks of threads in batches, from its own threads."""

    def __init__(self, send: Callable[[pb.CheckBatchRequest, float, bool], pb.CheckBatchResponse]) -> None:
        self._send = send
        self._begin()
        _fork.register(self)

    def _begin(self) -> None:
        self._waiting: SimpleQueue[_Entry[Future[pb.CheckResponse]] | None] = SimpleQueue()
        self._start = Lock()
        self._started = False

    def after_fork(self) -> None:
        """In the child: the threads run only in the parent, and so do their waiting checks."""
        self._begin()

    def take(self, request: pb.CheckRequest) -> bool:
        """Returns whether the check may share a batch."""
        return self._waiting.qsize() < MAX_WAITING and request.ByteSize() <= MAX_BYTES

    def check(self, request: pb.CheckRequest, call: Call) -> pb.CheckResponse:
        """Sends a check in a batch, and waits for its answer."""
        if not self._started:
            self._start_threads()
        entry = _Entry(request, call, Future[pb.CheckResponse]())
        self._waiting.put(entry)
        try:
            return entry.answer.result(call.remaining())
        except NotInTime:
            entry.answer.cancel()
            raise call.too_late() from None

    def close(self) -> None:
        """Ends the threads."""
        self._waiting.put(None)

    def _start_threads(self) -> None:
        with self._start:
            if not self._started:
                self._started = True
                for _ in range(MAX_IN_FLIGHT):
                    Thread(target=self._work, daemon=True, name="weir-batches").start()

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            self._answer([first, *self._others()])
        # For the other threads.
        self._waiting.put(None)

    def _others(self) -> list[_Entry[Future[pb.CheckResponse]]]:
        others: list[_Entry[Future[pb.CheckResponse]]] = []
        while len(others) < MAX_BATCH - 1:
            try:
                entry = self._waiting.get_nowait()
            except Empty:
                break
            if entry is None:
                self._waiting.put(None)
                break
            others.append(entry)
        return others

    def _answer(self, entries: list[_Entry[Future[pb.CheckResponse]]]) -> None:
        # Checks whose callers have given up are not sent, so they are not charged.
        entries = [entry for entry in entries if entry.answer.set_running_or_notify_cancel()]
        if not entries:
            return
        batch = _Batch(entries)
        try:
            results = self._send(batch.request, batch.timeout, batch.wait_for_ready).results
        except grpc.RpcError as error:
            for entry in entries:
                entry.answer.set_exception(errors.of_rpc(error))
        except Exception as error:
            for entry in entries:
                entry.answer.set_exception(error)
        else:
            for entry, result in zip(entries, results, strict=True):
                if result.HasField("error"):
                    entry.answer.set_exception(errors.of_entry(result.error))
                else:
                    entry.answer.set_result(result)


class AsyncBatches:
    """Sends the checks of tasks in batches."""

    def __init__(self, send: Callable[[pb.CheckBatchRequest, float, bool], Awaitable[pb.CheckBatchResponse]]) -> None:
        self._send = send
        self._waiting: deque[_Entry[asyncio.Future[pb.CheckResponse]]] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._scheduled = False

    def take(self, request: pb.CheckRequest) -> bool:
        """Returns whether the check may share a batch."""
        return len(self._waiting) < MAX_WAITING and request.ByteSize() <= MAX_BYTES

    async def check(self, request: pb.CheckRequest, call: Call) -> pb.CheckResponse:
        """Sends a check in a batch, and waits for its answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[pb.CheckResponse] = loop.create_future()
        self._waiting.append(_Entry(request, call, answer))
        self._schedule(loop)
        timer = loop.call_later(call.remaining(), _end, answer, call)
        try:
            return await answer
        finally:
            timer.cancel()

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._scheduled and len(self._in_flight) < MAX_IN_FLIGHT:
            self._scheduled = True
            # After the tasks that are ready now, so that their checks share the batch.
            loop.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        entries: list[_Entry[asyncio.Future[pb.CheckResponse]]] = []
        while self._waiting and len(entries) < MAX_BATCH:
            entry = self._waiting.popleft()
            # Checks whose callers have given up are not sent, so they are not charged.
            if not entry.answer.done():
                entries.append(entry)
        if entries:
            task = asyncio.create_task(self._answer(entries))
            self._in_flight.add(task)
            task.add_done_callback(self._ended)
            self._schedule(asyncio.get_running_loop())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        self._schedule(task.get_loop())

    async def _answer(self, entries: list[_Entry[asyncio.Future[pb.CheckResponse]]]) -> None:
        batch = _Batch(entries)
        try:
            results = (await self._send(batch.request, batch.timeout, batch.wait_for_ready)).results
        except grpc.aio.AioRpcError as error:
            for entry in entries:
                _fail(entry.answer, errors.of_rpc(error))
        except asyncio.CancelledError:
            # The event loop ends; or before Python 3.11 the channel is closed.
            for entry in entries:
                entry.answer.cancel()
            raise
        except Exception as error:
            for entry in entries:
                _fail(entry.answer, error)
        else:
            for entry, result in zip(entries, results, strict=True):
                if result.HasField("error"):
                    _fail(entry.answer, errors.of_entry(result.error))
                elif not entry.answer.done():
                    entry.answer.set_result(result)


def _fail(answer: asyncio.Future[pb.CheckResponse], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _end(answer: asyncio.Future[pb.CheckResponse], call: Call) -> None:
    _fail(answer, call.too_late())
