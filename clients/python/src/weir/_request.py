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
    """A check: whether `cost` units may pass under `key`.

    Attributes:
        key: the path, root first: `["user", "alex", "trade"]`. 1 to 32 segments of 1 to 1,024 bytes each.
        domain: the domain whose policy decides. Default: the default domain.
        cost: the units to charge, -2^32 to 2^32. 0 is a preview: read-only, charges nothing. A negative cost is a
            refund.
        limits: replaces the limits of the domain's policy for this check (`weir.limits`).
        charge: the charging rule of `limits` when one of them refuses.
        max_wait: the longest wait that the client accepts from limits that shape traffic. Default 0: they refuse
            instead.
        factor: divides the counts of all limits that the check meets: 0.5 allows twice as much, 0 lifts the limits.
        dry_run: decides as without it, but charges nothing.
        request_id: the idempotency key, 1 to 64 random bytes: a check with the same id is charged once, however often
            it is sent. Default: drawn by the client if it may retry the call.
        levels: requests `levels` and `binding` of the decision.
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
        """Encodes the check. With `identify` a check that charges or refunds gets an idempotency key.

        Raises:
            InvalidRequest: a string is not valid Unicode (a lone surrogate), or a number is out of range.
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
        except (ValueError, OverflowError) as error:
            raise InvalidRequest(str(error)) from None


def may_repeat(*checks: pb.CheckRequest) -> bool:
    """Returns whether the checks are idempotent: each charges nothing, or has an id."""
    return all(check.request_id or check.cost == 0 or check.dry_run for check in checks)
