"""Middleware for ASGI applications: FastAPI, Starlette, Django, Quart.

`RateLimit` asks for each HTTP request; `key_of` says for whom and for what it counts:

```python
app.add_middleware(RateLimit, client=client, key=key_of("user", header("x-user"), path_segment()))
```
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from typing import Any, TypeAlias

from weir._aio import AsyncClient
from weir._guard import Headers, Verdict
from weir._keys import fails_closed, key_of

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

Key: TypeAlias = Callable[[Scope], Sequence[str] | None]


__all__ = ["RateLimit", "client_address", "header", "key_of", "path_segment", "principal"]


class RateLimit:
    """Refuses requests with 429, and adds rate-limit headers to responses. Without a decision they pass (fail open).

    Args:
        app: the application.
        client: asks the service.
        key: what a request counts for, root first; None where it is not limited.
        domain: the domain whose policy decides.
        fail_closed: keys, by their last segment, that are refused with 503 where the check fails; or all of them.
            By default none, unless the client's `on_failure` is `DENY`.
    """

    def __init__(
        self,
        app: Application,
        client: AsyncClient,
        key: Key,
        *,
        domain: str = "",
        fail_closed: bool | Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._client = client
        self._key = key
        self._domain = domain
        self._fail_closed = fail_closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        key = self._key(scope) if scope["type"] == "http" else None
        if key is None:
            return await self._app(scope, receive, send)
        verdict = await self._client.guard(key, domain=self._domain, fail_closed=fails_closed(key, self._fail_closed))
        if not verdict.passes:
            return await _refuse(send, verdict)
        headers = _encoded(verdict.headers)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        return await self._app(scope, receive, send_with_headers)


def header(name: str, default: str | None = "-") -> Callable[[Scope], str | None]:
    """A header of the request. Of use for what your own proxy sets: users may send any."""
    wanted = name.lower().encode()

    def part(scope: Scope) -> str | None:
        return next((value.decode("latin-1") for key, value in scope["headers"] if key == wanted), default)

    return part


def principal(default: str | None = "-") -> Callable[[Scope], str | None]:
    """The user whom Starlette's AuthenticationMiddleware has found; add this middleware before that one."""

    def part(scope: Scope) -> str | None:
        user = scope.get("user")
        return user.display_name if user is not None and user.is_authenticated else default

    return part


def client_address(scope: Scope) -> str:
    """The address of the connection: of your proxy, unless the server is told to trust its headers."""
    client = scope.get("client")
    return client[0] if client else "-"


def path_segment(index: int = 0) -> Callable[[Scope], str]:
    """A segment of the request's path: of `/trade/7` the first is `trade`."""

    def part(scope: Scope) -> str:
        segments = scope["path"].strip("/").split("/")
        return segments[index] if index < len(segments) else "-"

    return part


async def _refuse(send: Send, verdict: Verdict) -> None:
    await send({"type": "http.response.start", "status": verdict.status, "headers": _encoded(verdict.headers)})
    await send({"type": "http.response.body", "body": verdict.body})


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]
