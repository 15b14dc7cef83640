"""Leases of a client for threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Thread

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


class ThreadLeases(Leases):
    """Leases for threads: while there are any, one thread renews them and another reads their stream."""

    def __init__(self, channel: grpc.Channel, token: Token, breaker: Breaker) -> None:
        method: grpc.StreamStreamMultiCallable[pb.LeaseRequest, pb.LeaseResponse] = channel.stream_stream(
            _methods.LEASE.path,
            request_serializer=pb.LeaseRequest.SerializeToString,
            response_deserializer=pb.LeaseResponse.FromString,
        )
        requests = Requests(lambda flow, wait_for_ready: ThreadStream(method, flow, wait_for_ready), token)
        super().__init__(requests, ThreadTicker(), breaker)

    def decide(self, entry: Entry, renewal: Renewal, request: pb.CheckRequest, call: Call) -> pb.CheckResponse:
        """Decides a check by a renewal."""
        outcome: Future[Outcome] = Future()
        try:
            with call:
                self.ask(entry, renewal, call.ends_at, outcome.set_result, levels=not request.summary_only)
                try:
                    return reply_of(outcome.result(call.remaining()))
                except NotInTime:
                    raise call.too_late() from None
        except BaseException:
            self.lost(entry, renewal)
            raise

    def return_units(self, deadline_seconds: float) -> None:
        """Returns all leased units to the service, and waits for the answers, at most for the deadline."""
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        ends_at = time.monotonic() + deadline_seconds
        with suppress(Empty):
            for _ in range(self.close(deadline_seconds, outcomes.put)):
                outcomes.get(timeout=max(ends_at - time.monotonic(), 0))
        self.stop()


class ThreadStream:
    """A stream that a thread reads. gRPC writes it from another thread."""

    def __init__(
        self,
        method: grpc.StreamStreamMultiCallable[pb.LeaseRequest, pb.LeaseResponse],
        flow: Flow,
        wait_for_ready: bool,
    ) -> None:
        self._flow = flow
        self._messages: SimpleQueue[pb.LeaseRequest | None] = SimpleQueue()
        self._call = method(self._requests(), metadata=flow.token, wait_for_ready=wait_for_ready)
        Thread(target=self._read, daemon=True, name="weir-lease-stream").start()

    def write(self, message: pb.LeaseRequest) -> None:
        """Sends a request."""
        self._messages.put(message)

    def end(self) -> None:
        """Sends no more requests; those in flight are still answered."""
        self._messages.put(None)

    def cancel(self) -> None:
        """Ends the stream immediately."""
        self.end()
        self._call.cancel()

    def _requests(self) -> Iterator[pb.LeaseRequest]:
        while (message := self._messages.get()) is not None:
            yield message

    def _read(self) -> None:
        error: WeirError = Unavailable("the stream of leases has ended")
        try:
            for message in self._call:
                self._flow.answered(message)
        except grpc.RpcError as failure:
            error = self._flow.error_of(errors.of_rpc(failure))
        self.end()
        again = self._flow.ended(error)
        if again:
            time.sleep(REPEAT_AFTER_SECONDS)
            self._flow.repeat(again)


class ThreadTicker:
    """A thread, as long as there are leases."""

    def __init__(self) -> None:
        self._stopped = Event()

    def start(self, tick: Callable[[], bool]) -> None:
        """Starts, or starts again."""
        Thread(target=self._run, args=(tick,), daemon=True, name="weir-leases").start()

    def stop(self) -> None:
        """Stops."""
        self._stopped.set()

    def forget(self) -> None:
        """In a forked child: the thread runs only in the parent, and may hold the lock of the event."""
        self._stopped = Event()

    def _run(self, tick: Callable[[], bool]) -> None:
        while not self._stopped.wait(TICK_SECONDS) and tick():
            pass
