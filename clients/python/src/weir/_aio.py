"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import grpc

from weir import _methods, errors
from weir._base import ClientBase
from weir._decision import Decision, OnFailure
from weir._methods import Method, Reply, Request
from weir._request import Check, may_repeat
from weir._times import Time, seconds
from weir.errors import WeirError
from weir.limits import Charge, Limit
from weir.v1 import weir_pb2 as pb


class AsyncClient(ClientBase):
    """A client for asyncio: the options and methods of `Client`, as coroutines.

    It connects at its first call, and belongs to the event loop of that call; so it may be made before the loop runs.
    """

    _channel: grpc.aio.Channel | None = None

    async def check(
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
            answer = await self._send(_methods.CHECK, request, deadline, may_repeat=may_repeat(request))
            return Decision.of_message(answer)
        except WeirError as error:
            return self._fallback(error, on_failure)

    async def reset(
        self, key: Sequence[str], *, domain: str = "", subtree: bool = False, deadline: Time | None = None
    ) -> bool:
        """Forgets what was charged to a key; with `subtree` also to all keys below it.

        Returns:
            Whether the key itself had a state.
        """
        request = pb.ResetRequest(domain=domain, key=key, subtree=subtree)
        return (await self._send(_methods.RESET, request, deadline, may_repeat=True)).existed

    async def wait_ready(self, timeout: Time) -> bool:
        """Connects, and waits until the service is ready. Without it the first check connects, within its deadline."""
        health: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._connected().unary_unary(_methods.HEALTH)
        try:
            return await health(b"", timeout=seconds(timeout), wait_for_ready=True) == _methods.SERVING
        except grpc.aio.AioRpcError:
            return False

    async def close(self) -> None:
        """Ends all connections. Calls in flight fail."""
        self._closed = True
        if self._channel:
            await self._channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _send(
        self, method: Method[Request, Reply], request: Request, deadline: Time | None, *, may_repeat: bool
    ) -> Reply:
        with self._call(deadline, may_repeat=may_repeat) as call:
            while True:
                try:
                    return await self._callable(method)(
                        request,
                        timeout=call.remaining(),
                        metadata=self._metadata(),
                        wait_for_ready=call.is_retry,
                    )
                except grpc.aio.AioRpcError as error:
                    failure = errors.of_rpc(error)
                await asyncio.sleep(call.failed(failure))

    def _connected(self) -> grpc.aio.Channel:
        if self._channel is None:
            if self._tls:
                self._channel = grpc.aio.secure_channel(self._target, self._tls, self._options)
            else:
                self._channel = grpc.aio.insecure_channel(self._target, self._options)
            self._methods: dict[str, grpc.aio.UnaryUnaryMultiCallable[Any, Any]] = {}
        return self._channel

    def _callable(self, method: Method[Request, Reply]) -> grpc.aio.UnaryUnaryMultiCallable[Request, Reply]:
        channel = self._connected()
        found = self._methods.get(method.name)
        if found is None:
            found = channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.reply.FromString,
            )
            self._methods[method.name] = found
        return found
