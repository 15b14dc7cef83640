"""Durations: callers give a timedelta or seconds, and get a timedelta."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

Time: TypeAlias = timedelta | float
"""A timedelta, or a number of seconds."""


def seconds(time: Time) -> float:
    """As a number of seconds."""
    return time.total_seconds() if isinstance(time, timedelta) else time


def duration(time: Time) -> timedelta:
    """As a timedelta, in whole microseconds, as the service takes them."""
    return time if isinstance(time, timedelta) else timedelta(seconds=time)
