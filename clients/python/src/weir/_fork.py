"""What a forked child must begin anew: threads of its parent do not run in it, and locks may be held for ever."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """A part of a client with state that belongs to one process."""

    def after_fork(self) -> None:
        """In the child: gives up what is its parent's."""


_parts: weakref.WeakSet[Forked] = weakref.WeakSet()


def register(part: Forked) -> None:
    """Has its `after_fork` called in each child, for as long as it lives."""
    _parts.add(part)


def _after_fork() -> None:
    for part in _parts:
        part.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
