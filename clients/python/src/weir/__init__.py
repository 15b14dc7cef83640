"""The client of Weir, the rate-limit service.

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
from weir._decision import Decision, Level, OnFailure, Source
from weir._request import Check
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
    "Breaker",
    "Check",
    "CircuitOpen",
    "Client",
    "DeadlineExceeded",
    "Decision",
    "FailedPrecondition",
    "Internal",
    "InvalidRequest",
    "Level",
    "NotFound",
    "OnFailure",
    "Outage",
    "Overloaded",
    "PermissionDenied",
    "Source",
    "State",
    "Unauthenticated",
    "Unavailable",
    "WeirError",
]
