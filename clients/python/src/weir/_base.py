"""The base of both clients."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import grpc

from weir import errors
from weir._breaker import Breaker
from weir._call import Call
from weir._channel import TLS, Target, options, uri
from weir._credentials import Metadata, Token, TokenFile
from weir._decision import Decision, JointDecision, OnFailure
from weir._guard import FailureLog, Verdict
from weir._lease.table import Leases, ToAsk
from weir._methods import Method, Reply, Request
from weir._request import Check
from weir._telemetry import telemetry
from weir._times import Time, deadline_seconds
from weir.errors import InvalidRequest, Outage, WeirError
from weir.v1 import weir_pb2 as pb

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

DEADLINE_SECONDS = 0.05
_READY_PAUSE_SECONDS = 0.05


class ClientBase:
    """The options, the encoding of requests, and the decoding of answers."""

    _leases: Leases

    def __init__(
        self,
        target: Target,
        *,
        tls: TLS | None = None,
        token: str | None = None,
        token_file: str | PathLike[str] | None = None,
        deadline: Time = DEADLINE_SECONDS,
        on_failure: OnFailure = OnFailure.ERROR,
        retries: int = 1,
        breaker: Breaker | None = None,
        coalesce: bool = False,
        lease: bool = False,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        if token is not None and token_file is not None:
            raise ValueError("a token or a token_file, not both")
        self._target = uri(target)
        self._options = options(self._target, tls)
        self._tls = tls.credentials() if tls else None
        self._token = TokenFile(token_file) if token_file is not None else Token(token)
        self._deadline_seconds = deadline_seconds(deadline)
        self._on_failure = on_failure
        self._retries = retries
        self._closed = False
        self._coalesce = coalesce
        self._lease = lease
        self.breaker = breaker or Breaker()
        self._telemetry = telemetry(self._target, self.breaker, meter_provider, tracer_provider)
        self._failures = FailureLog(self._target)
        # The channel's callables, by method.
        self._callables: dict[str, Any] = {}
        self._open()

    def _open(self) -> None:
        """Completes the construction."""

    def _connected(self) -> grpc.Channel | grpc.aio.Channel:
        raise NotImplementedError

    def _send_once(
        self,
        method: Method[Request, Reply],
        request: Request,
        timeout: float,
        wait_for_ready: bool,
        metadata: Metadata = (),
    ) -> Any:  # noqa: ANN401 - the reply; with asyncio an awaitable of it
        """Sends a request."""
        send = self._callables.get(method.name)
        if send is None:
            send = self._callables[method.name] = self._connected().unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.reply.FromString,
            )
        metadata = (*self._token.metadata(), *metadata)
        try:
            return send(request, timeout=timeout, metadata=metadata, wait_for_ready=wait_for_ready)
        except (ValueError, grpc.aio.UsageError):
            # gRPC's errors, if another thread or task has closed the channel meanwhile.
            if self._closed:
                raise closed() from None
            raise

    def _call(self, deadline: Time | None, *, may_repeat: bool) -> Call:
        if self._closed:
            raise closed()
        limit = self._deadline_seconds if deadline is None else deadline_seconds(deadline)
        return Call(self.breaker, limit, self._retries if may_repeat else 0)

    def _may_share(self, deadline: Time | None) -> bool:
        """Returns whether a check may be coalesced: a call has the longest deadline of its checks.

        A few calls with longer ones to a replica that hangs would stop all coalesced checks for as long.
        """
        return deadline is None or deadline_seconds(deadline) <= self._deadline_seconds

    def _open_until(self, ends_at: float) -> float:
        """Returns the seconds until then, if the client is not closed."""
        if self._closed:
            raise closed()
        return ends_at - time.monotonic()

    def _message(self, check: Check) -> pb.CheckRequest:
        return check.to_message(identify=self._retries > 0)

    def _messages(self, checks: Sequence[Check]) -> tuple[list[pb.CheckRequest], dict[int, InvalidRequest]]:
        """Encodes checks. Those that cannot be encoded are returned as errors, by their index."""
        messages: list[pb.CheckRequest] = []
        invalid: dict[int, InvalidRequest] = {}
        for place, check in enumerate(checks):
            try:
                messages.append(self._message(check))
            except InvalidRequest as error:
                invalid[place] = error
        return messages, invalid

    def _by_lease(self, key: Sequence[str], domain: str, cost: int, lease: bool | None) -> Decision | ToAsk | None:
        """Returns the decision of a lease, or the renewal that decides. None: an ordinary check must decide."""
        if not (self._lease if lease is None else lease):
            return None
        decision = self._leases.check(domain, key, cost)
        if isinstance(decision, Decision):
            self._telemetry.leased(domain, decision)
        return decision

    def _fallback(self, error: WeirError, on_failure: OnFailure | None) -> Decision:
        return Decision.fallback(error, on_failure or self._on_failure)

    def _batch_fallback(
        self, error: WeirError, on_failure: OnFailure | None, checks: int
    ) -> list[Decision | WeirError]:
        return [self._fallback(error, on_failure)] * checks

    def _batch_decisions(
        self, answers: Iterable[pb.CheckResponse], on_failure: OnFailure | None
    ) -> list[Decision | WeirError]:
        return [self._entry(answer, on_failure) for answer in answers]

    def _entry(self, answer: pb.CheckResponse, on_failure: OnFailure | None) -> Decision | WeirError:
        try:
            return Decision.of_message(answer)
        except WeirError as error:
            failure = error
        try:
            return self._fallback(failure, on_failure)
        except WeirError as error:
            return error

    def _joint_decision(self, answer: pb.CheckAllResponse) -> JointDecision:
        return JointDecision(answer.allowed, tuple(map(Decision.of_message, answer.results)))

    def _joint_fallback(self, error: WeirError, on_failure: OnFailure | None, checks: int) -> JointDecision:
        decision = self._fallback(error, on_failure)
        return JointDecision(decision.allowed, (decision,) * checks, decision.source, error)

    def _undecided(self, error: WeirError, *, fail_closed: bool | None) -> Verdict:
        self._failures.failed(error)
        if fail_closed is None:
            fail_closed = self._on_failure is OnFailure.DENY
        return Verdict.of_error(error, fail_closed=fail_closed)


def closed() -> WeirError:
    """Returns the error of a call on a closed client."""
    return errors.of_status(grpc.StatusCode.CANCELLED, "the client is closed")


def pause_until_ready(error: WeirError, ends_at: float) -> float:
    """Returns the seconds until the service is asked again, after this error of `wait_ready`."""
    if not isinstance(error, Outage):
        raise error
    return min(_READY_PAUSE_SECONDS, max(ends_at - time.monotonic(), 0))


def joint_request(checks: Sequence[Check]) -> pb.CheckAllRequest:
    """Returns the request of checks that pass together. CheckAll takes no request ids."""
    return pb.CheckAllRequest(checks=[check.to_message(identify=False) for check in checks])


def removed(answer: pb.ResetResponse) -> bool:
    """Returns whether a reset removed any state. Older servers set only `existed`, which is about the key itself."""
    return answer.removed if answer.HasField("removed") else answer.existed


def domains_of(checks: Sequence[Check]) -> list[str]:
    """Returns the domain of each check."""
    return [check.domain for check in checks]
