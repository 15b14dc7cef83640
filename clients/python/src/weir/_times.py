"""Durations: parameters are a timedelta or seconds; results are a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

Time: TypeAlias = timedelta | float
"""A timedelta, or a number of seconds."""

_MAX_DEADLINE_SECONDS = 86_400.0


def seconds(time: Time) -> float:
    """Converts to a number of seconds."""
    return time.total_seconds() if isinstance(time, timedelta) else time


def deadline_seconds(time: Time) -> float:
    """Converts a deadline to a number of seconds, at most a day: timers do not take arbitrarily long ones."""
    return min(seconds(time), _MAX_DEADLINE_SECONDS)


def duration(time: Time) -> timedelta:
    """Converts to a timedelta, in whole microseconds."""
    return time if isinstance(time, timedelta) else timedelta(seconds=time)
