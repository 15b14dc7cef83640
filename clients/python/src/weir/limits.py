"""Limits that a check brings along, instead of a policy's.

```python
from datetime import timedelta
from weir.limits import Gcra, Limit

client.check(["user", "alex"], limits=[Limit(gcra=Gcra(burst=9, count=10, period=timedelta(seconds=60)))])
```

These are the messages of `weir.proto`, which documents all fields.
"""

from weir.v1.weir_pb2 import (
    Charge,
    Concurrency,
    Cycle,
    Decay,
    FixedWindow,
    Gcra,
    LeakyBucket,
    LeakyQueue,
    LegacyBucket,
    Limit,
    SlidingBuckets,
    SlidingLog,
    SlidingWindow,
    SmoothBursty,
    TokenBucket,
    WarmingUp,
)

__all__ = [
    "Charge",
    "Concurrency",
    "Cycle",
    "Decay",
    "FixedWindow",
    "Gcra",
    "LeakyBucket",
    "LeakyQueue",
    "LegacyBucket",
    "Limit",
    "SlidingBuckets",
    "SlidingLog",
    "SlidingWindow",
    "SmoothBursty",
    "TokenBucket",
    "WarmingUp",
]
