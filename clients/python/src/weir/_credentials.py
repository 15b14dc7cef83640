"""The bearer token of a client: fixed, or in a file that may be rotated."""

from __future__ import annotations

import logging
import time
from os import PathLike
from pathlib import Path
from threading import Lock

from weir import _fork

log = logging.getLogger("weir")

Metadata = tuple[tuple[str, str], ...]

_LOOK_EVERY_SECONDS = 1.0


class Token:
    """A token that never changes, or none."""

    def __init__(self, token: str | None) -> None:
        self._metadata = _header(token) if token else ()

    def metadata(self) -> Metadata:
        """Returns the metadata of each call."""
        return self._metadata


class TokenFile(Token):
    """A token in a file. A call looks for a changed file at most once a second, and reads it again then."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._lock = Lock()
        self._seen = self._look()
        self._metadata = _header(self._read())
        self._next_look = time.monotonic() + _LOOK_EVERY_SECONDS
        # The file had no token when it was last looked at, and this is logged.
        self._is_unusable = False
        _fork.register(self)

    def after_fork(self) -> None:
        """In the child: a thread of the parent may hold the lock."""
        self._lock = Lock()

    def metadata(self) -> Metadata:
        """Returns the metadata of each call."""
        if time.monotonic() >= self._next_look and self._lock.acquire(blocking=False):
            try:
                self._read_again()
            finally:
                self._next_look = time.monotonic() + _LOOK_EVERY_SECONDS
                self._lock.release()
        return self._metadata

    def _read(self) -> str:
        # Any other character makes the token invalid, without an error that would quote it.
        return self._path.read_bytes().decode("ascii", errors="replace").strip()

    def _look(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_ino, stat.st_size

    def _read_again(self) -> None:
        try:
            seen = self._look()
            if seen != self._seen:
                self._metadata = _header(self._read())
                self._seen = seen
        except (OSError, ValueError) as error:
            if not self._is_unusable:
                log.warning("the token file %s cannot be used, the last token stays in use: %s", self._path, error)
            self._is_unusable = True
        else:
            self._is_unusable = False


def _header(token: str) -> Metadata:
    token = token.strip()
    # gRPC fails each call whose metadata has any other character.
    if not (token and token.isascii() and token.isprintable()):
        raise ValueError("a token must be printable ASCII, and not empty")
    return (("authorization", f"Bearer {token}"),)
