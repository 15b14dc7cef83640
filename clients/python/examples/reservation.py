"""A cost that is known afterwards: reserves an estimate for a call of a language model, and settles the units used."""

import os
from datetime import timedelta

import weir

ESTIMATE = 10


def complete(prompt: str) -> tuple[str, int]:
    """Stands for the model: its answer, and the tokens that it took."""
    return prompt.upper(), 4


client = weir.Client(os.environ.get("WEIR_ADDR", "127.0.0.1:8081"), deadline=10)
# The ttl is longer than any call takes. An exception within the block refunds all units.
with client.reserve(["user", "alex"], ESTIMATE, ttl=timedelta(minutes=2)) as reservation:
    if not reservation.decision.allowed:
        raise SystemExit(f"refused, retry after {reservation.decision.retry_after}")
    answer, used = complete("hello")
    settled = reservation.commit(used)
print(f"used {settled.charged} of {ESTIMATE} reserved, {settled.refunded} given back, {settled.overage} over")
