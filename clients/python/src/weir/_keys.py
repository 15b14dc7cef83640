"""Functions that return the key of a request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

Request = TypeVar("Request")


def key_of(*parts: str | Callable[[Request], str | None]) -> Callable[[Request], list[str] | None]:
    """Returns a function for keys of these segments, root first: constants, and functions of a request.

    If one of the functions returns None, the request is not limited.
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


def fail_closed_of(which: bool | Collection[str] | None) -> bool | Collection[str] | None:
    """Verifies the option `fail_closed`. A string is a collection too: of its parts, so `/in` would be in `login`."""
    if isinstance(which, str):
        raise TypeError("fail_closed must be a bool or a collection of segments, as in {'login'}, not a string")
    return which


def fails_closed(key: Sequence[str], which: bool | Collection[str] | None) -> bool | None:
    """Returns whether this key fails closed: all, none, or some by their last segment. None: as the client does."""
    return which if isinstance(which, bool) or which is None else bool(key) and key[-1] in which
