"""Checks one key for SECONDS, or until SIGTERM: leased.py TARGET DOMAIN KEY SECONDS.

As in `leased.py 127.0.0.1:8081,127.0.0.1:8082 "" api/alex 10`. Prints, for each allowed check, the microseconds of the
wall clock before and after it.
"""

import signal
import sys
import threading
import time

import weir

target, domain, path, seconds = sys.argv[1:]
is_over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: is_over.set())
ends_at = time.monotonic() + float(seconds)
flush_at = 0.0
with weir.Client(target.split(","), lease=True, on_failure=weir.OnFailure.DENY) as client:
    while not is_over.is_set() and time.monotonic() < ends_at:
        before = time.time_ns() // 1000
        try:
            is_allowed = client.check(path.split("/"), domain=domain).allowed
        except weir.WeirError as error:
            print(f"error {error}")
            is_allowed = False
        if is_allowed:
            print(before, -(-time.time_ns() // 1000))
        if time.monotonic() >= flush_at:
            sys.stdout.flush()
            flush_at = time.monotonic() + 0.1
        time.sleep(0.0002 if is_allowed else 0.001)
