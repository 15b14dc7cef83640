"""Cancellation of asyncio tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Awaits work that must be completed. A cancellation meanwhile is raised after the work has ended."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        # The cancellation takes precedence over an error of the work, which must be retrieved, or asyncio logs it.
        task.exception()
    raise cancelled


def may_be_cancelled() -> bool:
    """Returns whether the current task is being cancelled. Before Python 3.11 this is unknown: True."""
    task = asyncio.current_task()
    return sys.version_info < (3, 11) or (task is not None and task.cancelling() > 0)
