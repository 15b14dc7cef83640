"""The units that may be spent. Times are microseconds of a monotonic clock."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

Spend: TypeAlias = Literal["spent", "low", "short"]
"""`low`: spent, and a renewal may be due. `short`: not spent, the balance cannot pay."""


class Balance:
    """The units of one key that may be spent until a deadline."""

    __slots__ = ("_deadline", "_low", "_renew_at", "units")

    def __init__(self) -> None:
        self.units = 0
        self._deadline: float = -math.inf
        self._low = 0
        self._renew_at: float = math.inf

    def spend(self, cost: int, now: int) -> Spend:
        """Takes `cost` units, above 0, if they are held."""
        units = self.units
        if now >= self._deadline or units < cost:
            return "short"
        units -= cost
        self.units = units
        return "low" if units < self._low or now >= self._renew_at else "spent"

    def is_over(self, now: int) -> bool:
        """Returns whether the deadline has passed."""
        return now >= self._deadline

    def is_due(self, now: int) -> bool:
        """Returns whether a renewal is due."""
        return now >= self._renew_at

    def take_above(self, kept: int) -> int:
        """Takes all units above `kept` out.

        Returns:
            Their number.
        """
        taken = max(self.units - kept, 0)
        self.units -= taken
        return taken

    def fill(self, units: int, deadline: int) -> None:
        """Adds units and sets the deadline of all units."""
        self.units += units
        self._deadline = deadline

    def watch(self, low: int, renew_at: float) -> None:
        """Makes a renewal due if fewer than `low` units are left, and from `renew_at` on."""
        self._low = low
        self._renew_at = renew_at

    def unwatch(self) -> None:
        """Makes no renewal due."""
        self.watch(0, math.inf)
