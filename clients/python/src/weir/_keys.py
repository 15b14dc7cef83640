"""Keys of requests, made of parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

Request = TypeVar("Request")


def key_of(*parts: str | Callable[[Request], str | None]) -> Callable[[Request], list[str] | None]:
    """A key of these segments, root first: texts, and functions of a request.

    A request of which a function says None is not limited.
    """

    def key(request: Request) -> list[str] | None:
        segments: list[str] = []
        for part in parts:
            segment = part if isinstance(part, str) else part(request)
            if segment is None:
                return None
            segments.append(segment)
        return segments

    return key


def fails_closed(key: Sequence[str], which: bool | Collection[str] | None) -> bool | None:
    """Whether this key is one of those: all, none, or some by their last segment. None: as the client is set."""
    return which if isinstance(which, bool) or which is None else bool(key) and key[-1] in which
