"""The client for threads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from os import PathLike
from types import TracebackType
from typing import Any

import grpc

from weir import _methods, errors
from weir._base import DEADLINE_SECONDS, ClientBase
from weir._breaker import Breaker
from weir._channel import TLS, Target
from weir._decision import Decision, OnFailure
from weir._methods import Method, Reply, Request
from weir._request import Check, may_repeat
from weir._times import Time, seconds
from weir.errors import WeirError
from weir.limits import Charge, Limit
from weir.v1 import weir_pb2 as pb


class Client(ClientBase):
    """A client for threads. Make one for each service, share it between threads, and close it at the end.

    Args:
        target: `host:port`, `dns:///name:port` or `unix:PATH`; or several `IP:port`. Calls are balanced over all.
        tls: certificates; without, connections are not encrypted.
        token: the bearer token.
        token_file: a file with the bearer token, which is read again when it changes.
        deadline: of a call, with its retries.
        on_failure: what a check answers while the service does not.
        retries: how often a call is sent again that a replica did not answer (UNAVAILABLE). What charges is made
            repeatable by a `request_id`; 0 sends none.
        breaker: the circuit breaker.
    """

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
    ) -> None:
        super().__init__(
            target,
            tls=tls,
            token=token,
            token_file=token_file,
            deadline=deadline,
            on_failure=on_failure,
            retries=retries,
            breaker=breaker,
        )
        if self._tls:
            self._channel = grpc.secure_channel(self._target, self._tls, self._options)
        else:
            self._channel = grpc.insecure_channel(self._target, self._options)
        self._methods: dict[str, grpc.UnaryUnaryMultiCallable[Any, Any]] = {}

    def check(
        self,
        key: Sequence[str],
        *,
        domain: str = "",
        cost: int = 1,
        limits: Sequence[Limit] | None = None,
        charge: Charge | None = None,
        max_wait: Time = 0,
        factor: float | None = None,
        dry_run: bool = False,
        request_id: str | None = None,
        levels: bool = False,
        deadline: Time | None = None,
        on_failure: OnFailure | None = None,
    ) -> Decision:
        """Asks whether `cost` units may pass under `key`, and charges them if so. `Check` documents the options.

        Raises:
            WeirError: there is no decision.
        """
        check = Check(key, domain, cost, limits, charge, max_wait, factor, dry_run, request_id, levels)
        request = check.to_message(identify=self._retries > 0)
        try:
            answer = self._send(_methods.CHECK, request, deadline, may_repeat=may_repeat(request))
            return Decision.of_message(answer)
        except WeirError as error:
            return self._fallback(error, on_failure)

    def reset(
        self, key: Sequence[str], *, domain: str = "", subtree: bool = False, deadline: Time | None = None
    ) -> bool:
        """Forgets what was charged to a key; with `subtree` also to all keys below it.

        Returns:
            Whether the key itself had a state.
        """
        request = pb.ResetRequest(domain=domain, key=key, subtree=subtree)
        return self._send(_methods.RESET, request, deadline, may_repeat=True).existed

    def wait_ready(self, timeout: Time) -> bool:
        """Connects, and waits until the service is ready. Without it the first check connects, within its deadline."""
        health: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(_methods.HEALTH)
        try:
            return health(b"", timeout=seconds(timeout), wait_for_ready=True) == _methods.SERVING
        except grpc.RpcError:
            return False

    def close(self) -> None:
        """Ends all connections. Calls in flight fail."""
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _send(
        self, method: Method[Request, Reply], request: Request, deadline: Time | None, *, may_repeat: bool
    ) -> Reply:
        with self._call(deadline, may_repeat=may_repeat) as call:
            while True:
                try:
                    return self._callable(method)(
                        request,
                        timeout=call.remaining(),
                        metadata=self._metadata(),
                        wait_for_ready=call.is_retry,
                    )
                except grpc.RpcError as error:
                    failure = errors.of_rpc(error)
                time.sleep(call.failed(failure))

    def _callable(self, method: Method[Request, Reply]) -> grpc.UnaryUnaryMultiCallable[Request, Reply]:
        found = self._methods.get(method.name)
        if found is None:
            found = self._channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.reply.FromString,
            )
            self._methods[method.name] = found
        return found
