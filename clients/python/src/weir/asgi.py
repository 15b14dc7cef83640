"""Middleware for ASGI applications: FastAPI, Starlette, Django, Quart.

`RateLimit` checks each HTTP request; `key_of` returns the key under which it is limited:

```python
app.add_middleware(RateLimit, client=client, key=key_of("user", header("x-user"), path_segment()))
```
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from typing import Any, TypeAlias

from weir._aio import AsyncClient
from weir._guard import Headers, Verdict
from weir._keys import fail_closed_of, fails_closed, key_of

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

Key: TypeAlias = Callable[[Scope], Sequence[str] | None]


__all__ = ["RateLimit", "client_address", "header", "key_of", "path_segment", "principal"]


class RateLimit:
    """Refuses requests with 429, and adds rate-limit headers to responses.

    If the service does not decide, requests pass (fail open), unless `fail_closed` is set.

    Args:
        app: the application.
        client: the client of Weir.
        key: returns the key under which a request is limited, root first; None: it is not limited.
        domain: the domain whose policy decides.
        fail_closed: keys, by their last segment, whose requests are refused with 503 if the service does not decide; or
            all of them. Default: none, unless the client's `on_failure` is `DENY`.
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
        self._fail_closed = fail_closed_of(fail_closed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
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
    """Takes a segment from a request header. Use one that a proxy in front sets, never one that the client sets."""
    wanted = name.lower().encode()

    def part(scope: Scope) -> str | None:
        return next((value.decode("latin-1") for key, value in scope["headers"] if key == wanted), default)

    return part


def principal(default: str | None = "-") -> Callable[[Scope], str | None]:
    """Takes a segment from the user of Starlette's AuthenticationMiddleware. Add this middleware before that one.

    The segment is the user's `identity`, or the `display_name` of one without it, or with None.
    """

    def part(scope: Scope) -> str | None:
        user = scope.get("user")
        return _identity(user) if user is not None and user.is_authenticated else default

    return part


def _identity(user: Any) -> str:  # noqa: ANN401 - a BaseUser of Starlette
    try:
        identity = user.identity
    except NotImplementedError:
        # Starlette's SimpleUser has only a name.
        identity = None
    except AttributeError:
        # An error of the property itself: with the name instead, the user would have a second count.
        if inspect.getattr_static(user, "identity", None) is not None:
            raise
        identity = None
    return str(user.display_name if identity is None else identity)


def client_address(scope: Scope) -> str:
    """Returns the address of the connection: the proxy's, unless the server is configured to trust its headers."""
    client = scope.get("client")
    return client[0] if client else "-"


def path_segment(index: int = 0) -> Callable[[Scope], str]:
    """Takes a segment from the request's path: of `/trade/7` the first is `trade`."""

    def part(scope: Scope) -> str:
        segments = scope["path"].strip("/").split("/")
        return segments[index] if index < len(segments) else "-"

    return part


async def _refuse(send: Send, verdict: Verdict) -> None:
    await send({"type": "http.response.start", "status": verdict.status, "headers": _encoded(verdict.headers)})
    await send({"type": "http.response.body", "body": verdict.body})


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers]
