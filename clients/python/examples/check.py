"""The smallest call: may alex trade?"""

import os

import weir

with weir.Client(os.environ.get("WEIR_ADDR", "127.0.0.1:8081"), deadline=10) as client:
    decision = client.check(["user", "alex", "trade"])
    if decision.allowed:
        print(f"allowed, {decision.remaining} of {decision.limit} left")
    elif decision.retry_after:
        print(f"refused, retry after {decision.retry_after.total_seconds()} s")
