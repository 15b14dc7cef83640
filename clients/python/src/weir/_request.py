"""The request of a check."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from weir._times import Time, duration
from weir.errors import InvalidRequest
from weir.limits import Charge, Limit
from weir.v1 import weir_pb2 as pb

_REQUEST_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Check:
    """May `cost` units pass under `key`?

    Attributes:
        key: the path, root first: `["user", "alex", "trade"]`.
        domain: the domain whose policy decides.
        cost: units. 0 is a preview, and charges nothing; a negative cost is a refund.
        limits: the caller's own limits, in place of the policy's (`weir.limits`).
        charge: what a check of several `limits` charges when one of them refuses.
        max_wait: the longest wait that is accepted of limits that shape traffic. By default they refuse instead.
        factor: divides all limits: 0.5 allows twice as much, 0 lifts them.
        dry_run: decide, but charge nothing.
        request_id: charged once, however often it is sent. A client with retries makes one by itself.
        levels: ask for every limit on the path, as `levels` and `binding`.
    """

    key: Sequence[str]
    domain: str = ""
    cost: int = 1
    limits: Sequence[Limit] | None = None
    charge: Charge | None = None
    max_wait: Time = 0
    factor: float | None = None
    dry_run: bool = False
    request_id: str | None = None
    levels: bool = False

    def to_message(self, *, identify: bool) -> pb.CheckRequest:
        """As it is sent; with an id of its own, if it is to be repeated and charges.

        Raises:
            InvalidRequest: it has a text that is not Unicode (a lone surrogate), or a number that is out of range.
        """
        if isinstance(self.key, str):
            raise TypeError(f"a key is a sequence of segments, as in [{self.key!r}], not a string")
        request_id = self.request_id
        if request_id is None and identify and self.cost != 0 and not self.dry_run:
            request_id = secrets.token_hex(_REQUEST_ID_BYTES)
        try:
            return pb.CheckRequest(
                domain=self.domain,
                key=self.key,
                cost=self.cost,
                limit_spec=None if self.limits is None else pb.LimitSpec(limits=self.limits, charge=self.charge),
                max_wait=duration(self.max_wait),
                factor=self.factor,
                summary_only=not self.levels,
                request_id=request_id,
                dry_run=self.dry_run,
            )
        except UnicodeEncodeError:
            raise InvalidRequest("a text is not valid Unicode: it has a lone surrogate") from None
        except ValueError as error:
            raise InvalidRequest(str(error)) from None


def may_repeat(*checks: pb.CheckRequest) -> bool:
    """Whether they are charged once, however often they are sent."""
    return all(check.request_id or check.cost == 0 or check.dry_run for check in checks)
