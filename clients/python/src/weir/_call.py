"""One call: its deadline, its retries, and its outcome for the circuit breaker. It has no I/O; both clients use it."""

from __future__ import annotations

import random
import time
from types import TracebackType

from weir._breaker import Breaker
from weir.errors import DeadlineExceeded, Unavailable, WeirError

# gRPC may send a retry over a connection that has just broken, until all its parts have noticed that.
_PAUSE_SECONDS = 0.005


class Call:
    """A call in flight.

    ```python
    with Call(breaker, deadline, retries) as call:
        while True:
            try:
                return send(request, timeout=call.remaining(), wait_for_ready=call.is_retry)
            except grpc.RpcError as error:
                failure = errors.of_rpc(error)
            time.sleep(call.failed(failure))  # raises, unless another attempt may be made
    ```
    """

    def __init__(self, breaker: Breaker, deadline_seconds: float, retries: int) -> None:
        self._breaker = breaker
        self._deadline_seconds = deadline_seconds
        self.ends_at = time.monotonic() + deadline_seconds
        self._retries = retries
        self._first_error: WeirError | None = None

    def __enter__(self) -> Call:
        # A deadline that is over before the call is sent says nothing about the service.
        self.remaining()
        self._permit = self._breaker.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._breaker.ended(error, self._permit)

    @property
    def is_retry(self) -> bool:
        """Whether an attempt has failed. A retry waits for a connection: the failure may have ended the last one."""
        return self._first_error is not None

    def remaining(self) -> float:
        """Seconds until the deadline, which all attempts share."""
        remaining = self.ends_at - time.monotonic()
        if remaining <= 0:
            raise self._first_error or self.too_late()
        return remaining

    def too_late(self) -> DeadlineExceeded:
        """Returns the error of a call that misses its deadline."""
        return DeadlineExceeded(f"no answer within {round(self._deadline_seconds * 1000, 1):g} ms")

    def failed(self, error: WeirError) -> float:
        """Records that an attempt has failed.

        Returns:
            Seconds to wait before the next attempt.

        Raises:
            WeirError: no other attempt may be made. If a retry misses the deadline, it is the error of the first
                attempt.
        """
        if self._first_error is not None and isinstance(error, DeadlineExceeded):
            raise self._first_error
        if not isinstance(error, Unavailable) or self._retries <= 0:
            raise error
        self._retries -= 1
        self._first_error = self._first_error or error
        return min(_PAUSE_SECONDS * random.uniform(0.5, 1.0), self.remaining())
