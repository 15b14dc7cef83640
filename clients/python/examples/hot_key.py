"""A key that is checked often: a lease decides most of its checks in this process."""

import os
from collections import Counter

import weir

with weir.Client(os.environ.get("WEIR_ADDR", "127.0.0.1:8081"), lease=True, deadline=10) as client:
    checks = Counter(client.check(["api", "alex"]).source for _ in range(2000))
here = checks[weir.Source.LEASE] > checks[weir.Source.SERVICE]
print("most are decided here" if here else "most are decided by the service")
