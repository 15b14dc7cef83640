"""A server interceptor for `grpc.aio`.

```python
server = grpc.aio.server(interceptors=[RateLimit(client, key_of("user", metadata("x-user"), method))])
```
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.duration_pb2 import Duration

from weir._aio import AsyncClient
from weir._guard import Verdict
from weir._keys import fail_closed_of, fails_closed, key_of
from weir.client import status_pb2

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behaviour: TypeAlias = Callable[..., Any]
Refusal: TypeAlias = tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]
"""The arguments of `abort`."""
Ask: TypeAlias = Callable[[Context], Coroutine[Any, Any, Refusal | None]]


@dataclass(frozen=True, slots=True)
class Call:
    """An incoming call.

    Attributes:
        method: its path: `/shop.Shop/Buy`.
        context: its gRPC context.
    """

    method: str
    context: Context


Key: TypeAlias = Callable[[Call], Sequence[str] | None]


__all__ = ["Call", "RateLimit", "key_of", "metadata", "method", "principal"]


class RateLimit(grpc.aio.ServerInterceptor):
    """Refuses calls with RESOURCE_EXHAUSTED, `retry-after` in the trailing metadata, and RetryInfo in the status.

    If the service does not decide, calls pass (fail open), unless `fail_closed` is set.

    Args:
        client: the client of Weir.
        key: returns the key under which a call is limited, root first; None: it is not limited.
        domain: the domain whose policy decides.
        fail_closed: keys, by their last segment, whose calls are refused with UNAVAILABLE if the service does not
            decide; or all of them. Default: none, unless the client's `on_failure` is `DENY`.
    """

    def __init__(
        self, client: AsyncClient, key: Key, *, domain: str = "", fail_closed: bool | Collection[str] | None = None
    ) -> None:
        self._client = client
        self._key = key
        self._domain = domain
        self._fail_closed = fail_closed_of(fail_closed)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Called by gRPC."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        return _guarded(handler, lambda context: self._refusal(Call(str(handler_call_details.method), context)))

    async def _refusal(self, call: Call) -> Refusal | None:
        key = self._key(call)
        if key is None:
            return None
        closed = fails_closed(key, self._fail_closed)
        verdict = await self._client.guard(key, domain=self._domain, fail_closed=closed)
        return None if verdict.passes else _refusal(verdict)


def metadata(name: str, default: str | None = "-") -> Callable[[Call], str | None]:
    """Takes a segment from the call's metadata. Use one that a proxy in front sets, never one that the client sets."""

    def part(call: Call) -> str | None:
        pairs = call.context.invocation_metadata() or ()
        value = next((value for key, value in pairs if key == name), default)
        return value.decode("latin-1") if isinstance(value, bytes) else value

    return part


def principal(call: Call) -> str:
    """Returns the common name of the verified client certificate (mTLS)."""
    names = call.context.auth_context().get("x509_common_name", ())
    return next((name.decode() for name in names), "-")


def method(call: Call) -> str:
    """Returns the name of the method: `Buy` for `/shop.Shop/Buy`."""
    return call.method.rpartition("/")[2]


def _guarded(handler: Handler, refusal: Ask) -> Handler:
    """Wraps a handler with a check."""
    inner: Any = handler
    if inner.response_streaming:
        run = inner.stream_stream or inner.unary_stream
        behaviour = _guarded_stream(run, refusal)
    else:
        run = inner.stream_unary or inner.unary_unary
        behaviour = _guarded_single(run, refusal)
    kinds: dict[tuple[bool, bool], Callable[..., Handler]] = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }
    make = kinds[bool(inner.request_streaming), bool(inner.response_streaming)]
    return make(
        behaviour,
        request_deserializer=inner.request_deserializer,
        response_serializer=inner.response_serializer,
    )


def _guarded_single(run: Behaviour, refusal: Ask) -> Behaviour:
    """For one answer. gRPC runs handlers that are not coroutine functions in its thread pool, and so this wrapper."""
    loop = asyncio.get_running_loop()

    async def awaited(request: object, context: Context) -> object:
        if refused := await refusal(context):
            await context.abort(*refused)
        return await run(request, context)

    def in_thread(request: object, context: Any) -> object:  # noqa: ANN401 - of a type of gRPC's own
        if refused := asyncio.run_coroutine_threadsafe(refusal(context), loop).result():
            # This `abort` does not raise.
            return context.abort(*refused)
        return run(request, context)

    return awaited if inspect.iscoroutinefunction(run) else in_thread


def _guarded_stream(run: Behaviour, refusal: Ask) -> Behaviour:
    """For a stream of answers, likewise."""
    loop = asyncio.get_running_loop()

    async def written(request: object, context: Context) -> None:
        if refused := await refusal(context):
            await context.abort(*refused)
        await run(request, context)

    async def yielded(request: object, context: Context) -> AsyncIterator[object]:
        if refused := await refusal(context):
            await context.abort(*refused)
        async for answer in run(request, context):
            yield answer

    def in_thread(request: object, context: Any) -> Iterator[object]:  # noqa: ANN401 - of a type of gRPC's own
        if refused := asyncio.run_coroutine_threadsafe(refusal(context), loop).result():
            context.abort(*refused)
        else:
            yield from run(request, context)

    if inspect.isasyncgenfunction(run):
        return yielded
    return written if inspect.iscoroutinefunction(run) else in_thread


def _refusal(verdict: Verdict) -> Refusal:
    has_decided = verdict.decision is not None
    code = grpc.StatusCode.RESOURCE_EXHAUSTED if has_decided else grpc.StatusCode.UNAVAILABLE
    message = "over the rate limit" if has_decided else "no rate-limit decision"
    trailing = [(name, value) for name, value in verdict.headers if not name.startswith("content-")]
    seconds = verdict.retry_after_seconds
    status = status_pb2.Status(code=code.value[0], message=message)
    if seconds is not None:
        retry = status_pb2.RetryInfo(retry_delay=Duration(seconds=seconds))
        status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=retry.SerializeToString())
    details = ("grpc-status-details-bin", status.SerializeToString())
    return code, message, (*trailing, details)
