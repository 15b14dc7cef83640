"""State to reset in a forked child: threads of the parent do not run in it, and locks may stay locked."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """A part of a client whose state belongs to one process."""

    def after_fork(self) -> None:
        """In the child: discards the parent's state."""


_parts: weakref.WeakSet[Forked] = weakref.WeakSet()


def register(part: Forked) -> None:
    """Registers a part: its `after_fork` is called in each child, as long as the part lives."""
    _parts.add(part)


def _after_fork() -> None:
    for part in _parts:
        part.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
