"""Bounds the concurrent runs of a function: a slot is held around it, and extended while it runs."""

import os

import weir

EXPORTS = ["exports", "alex"]

client = weir.Client(os.environ.get("WEIR_ADDR", "127.0.0.1:8081"), deadline=10)
with client.slot(EXPORTS) as slot:
    if slot.decision.allowed:
        print("exporting")
    with client.slot(EXPORTS) as second:
        if not second.decision.allowed:
            print("another one has to wait")
with client.slot(EXPORTS) as slot:
    if slot.decision.allowed:
        print("exporting again")
