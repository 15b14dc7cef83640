"""The requests of all leases of a client, over one stream at a time. Threads and tasks share it; streams do the I/O."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Protocol, TypeAlias

from weir import errors
from weir._credentials import Metadata, Token
from weir._lease.holder import Renewal
from weir.errors import DeadlineExceeded, Unavailable, WeirError
from weir.v1 import weir_pb2 as pb

MAX_IN_FLIGHT = 1024
REPEAT_AFTER_SECONDS = 0.005
"""gRPC may open a stream over a connection that has just broken, until all its parts have noticed that."""

_REOPEN_AFTER_SECONDS = 1.0
"""The pause after the service rejected the stream."""
_NO_REJECTIONS = ("UNAVAILABLE", "CANCELLED")
"""Codes of a lost connection and of a closed client. A stream that ends unused with any other code was rejected."""


class Rejected(Exception):
    """The service has rejected the stream, and carried out none of its requests."""


Outcome: TypeAlias = pb.LeaseResponse | WeirError | Rejected


class Request:
    """A request in flight.

    Args:
        ends_at: its deadline, by `time.monotonic`.
        done: called with the outcome, once.
    """

    __slots__ = ("done", "ends_at", "is_repeated", "message", "renewal")

    def __init__(
        self, renewal: Renewal, message: pb.LeaseRequest, ends_at: float, done: Callable[[Outcome], None]
    ) -> None:
        self.renewal = renewal
        self.message = message
        self.ends_at = ends_at
        self.done = done
        self.is_repeated = False


class Stream(Protocol):
    """A stream of the method `Lease`. It passes answers, and its end, to its `Flow`."""

    def write(self, message: pb.LeaseRequest) -> None:
        """Sends a request."""

    def end(self) -> None:
        """Sends no more requests; those in flight are still answered."""

    def cancel(self) -> None:
        """Ends the stream immediately."""


class Flow:
    """A stream, and its requests in flight. Answers arrive in the order of the requests."""

    def __init__(self, requests: Requests, token: Metadata) -> None:
        self.token = token
        self.waiting: deque[Request] = deque()
        self.stream: Stream
        # Whether the stream has answered, so the service had accepted it.
        self.is_used = False
        self._requests = requests

    def answered(self, message: pb.LeaseResponse) -> None:
        """To be called for an answer of the stream."""
        self.is_used = True
        request = self._requests.take_first(self)
        if request is None:
            return
        is_error = message.HasField("decision") and message.decision.HasField("error")
        request.done(errors.of_entry(message.decision.error) if is_error else message)

    def error_of(self, status: WeirError) -> WeirError:
        """Returns the error of the requests that the stream leaves unanswered.

        The status of an accepted stream is never the answer to a request: the service ends a stream whose token is not
        valid any more with UNAUTHENTICATED, while a repeated request may carry another token.
        """
        if isinstance(status, Unavailable) or not self.is_used:
            return status
        return Unavailable(f"the stream of leases has ended: {status}")

    def ended(self, error: WeirError) -> list[Request]:
        """To be called when the stream has ended.

        Returns:
            The requests to `repeat`, after a pause.
        """
        return self._requests.detach(self, error)

    def repeat(self, requests: list[Request]) -> None:
        """Retries requests, on another stream."""
        for request in requests:
            self._requests.send(request)


OpenStream: TypeAlias = Callable[[Flow, bool], Stream]
"""Opens a stream for a flow. With True the stream waits for a connection."""


class Requests:
    """Sends requests. Those that a stream leaves unanswered are retried once, unchanged: their amounts are totals."""

    def __init__(self, open_stream: OpenStream, token: Token) -> None:
        self._open = open_stream
        self._token = token
        self._is_closed = False
        self._lock = Lock()
        self._flow: Flow | None = None
        self._reopen_at = 0.0

    @property
    def is_full(self) -> bool:
        """Whether too many requests are in flight."""
        flow = self._flow
        return flow is not None and len(flow.waiting) >= MAX_IN_FLIGHT

    def send(self, request: Request) -> None:
        """Sends a request, on a new stream if there is none."""
        if time.monotonic() < self._reopen_at:
            request.done(Rejected())
            return
        token = self._token.metadata()
        with self._lock:
            # `close` waits for the lock, so the channel is open until it is released.
            if not self._is_closed:
                self._write(request, token)
                return
        request.done(Unavailable("the client is closed"))

    def _write(self, request: Request, token: Metadata) -> None:
        flow = self._flow
        if flow is None or flow.token != token:
            # The token has changed. Requests in flight with the old one are still answered.
            if flow:
                flow.stream.end()
            flow = Flow(self, token)
            flow.stream = self._open(flow, request.is_repeated)
            self._flow = flow
        flow.waiting.append(request)
        flow.stream.write(request.message)

    def take_first(self, flow: Flow) -> Request | None:
        """Removes and returns the oldest request of a flow."""
        with self._lock:
            return flow.waiting.popleft() if flow.waiting else None

    def detach(self, flow: Flow, error: WeirError) -> list[Request]:
        """Ends a flow.

        Returns:
            The requests to retry. The others have failed.
        """
        with self._lock:
            if self._flow is flow:
                self._flow = None
            waiting, flow.waiting = flow.waiting, deque()
        now, again = time.monotonic(), []
        is_rejected = not flow.is_used and error.code.name not in _NO_REJECTIONS
        if is_rejected:
            self._reopen_at = now + _REOPEN_AFTER_SECONDS
        for request in waiting:
            if is_rejected:
                request.done(Rejected())
            elif now >= request.ends_at:
                request.done(DeadlineExceeded("no answer on the stream of leases in time"))
            elif request.is_repeated or not isinstance(error, Unavailable):
                request.done(error)
            else:
                request.is_repeated = True
                again.append(request)
        return again

    def replace_late(self) -> None:
        """Replaces a stream that has not answered a request in time."""
        flow, now = self._flow, time.monotonic()
        with self._lock:
            is_late = flow is not None and any(request.ends_at <= now for request in flow.waiting)
        if flow and is_late:
            flow.repeat(self.detach(flow, Unavailable("the stream of leases does not answer")))
            flow.stream.cancel()

    def end(self) -> None:
        """Ends the stream after the requests in flight are answered."""
        with self._lock:
            flow, self._flow = self._flow, None
        if flow:
            flow.stream.end()

    def close(self) -> None:
        """Ends the stream immediately. Later requests fail."""
        with self._lock:
            self._is_closed = True
            flow, self._flow = self._flow, None
        if flow:
            flow.stream.cancel()

    def forget(self) -> None:
        """In a forked child: the stream belongs to the parent."""
        self._lock = Lock()
        self._flow = None
