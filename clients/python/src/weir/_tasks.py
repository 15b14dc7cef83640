"""Cancellation of tasks of asyncio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Awaits work that must not be left half done. A cancellation meanwhile is raised when the work has ended."""
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
        # An error of the work is of less use than the cancellation, and counts as seen.
        task.exception()
    raise cancelled


def is_cancelled() -> bool:
    """Whether the current task is being cancelled. Unknown before Python 3.11: no."""
    task = asyncio.current_task()
    return sys.version_info >= (3, 11) and task is not None and task.cancelling() > 0
