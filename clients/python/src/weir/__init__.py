"""Python client of Weir, the rate-limit service.

```python
import weir

client = weir.Client("127.0.0.1:8081")
decision = client.check(["user", "alex", "trade"])
```
"""

from weir._aio import AsyncClient
from weir._breaker import Breaker, State
from weir._channel import TLS
from weir._client import Client
from weir._decision import Decision, JointDecision, Level, OnFailure, Source
from weir._guard import Verdict
from weir._request import Check
from weir._reservation import AsyncReservation, OnExpiry, Reservation, Settlement
from weir._slot import AsyncSlot, Slot
from weir.errors import (
    CircuitOpen,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidRequest,
    NotFound,
    Outage,
    Overloaded,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    WeirError,
)

__all__ = [
    "TLS",
    "AsyncClient",
    "AsyncReservation",
    "AsyncSlot",
    "Breaker",
    "Check",
    "CircuitOpen",
    "Client",
    "DeadlineExceeded",
    "Decision",
    "FailedPrecondition",
    "Internal",
    "InvalidRequest",
    "JointDecision",
    "Level",
    "NotFound",
    "OnExpiry",
    "OnFailure",
    "Outage",
    "Overloaded",
    "PermissionDenied",
    "Reservation",
    "Settlement",
    "Slot",
    "Source",
    "State",
    "Unauthenticated",
    "Unavailable",
    "Verdict",
    "WeirError",
]
