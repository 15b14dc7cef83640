"""A cost that is known afterwards: reserves an estimate for a call of a language model, and settles by what it used."""

import os

import grpc
from google.protobuf.duration_pb2 import Duration
from weir.v1 import weir_pb2, weir_pb2_grpc

ESTIMATE = 10


def complete(prompt):
    """Stands for the model: its answer, and the tokens that it took."""
    return prompt.upper(), 4


weir = weir_pb2_grpc.RateLimiterStub(grpc.insecure_channel(os.environ.get("WEIR_ADDR", "127.0.0.1:8081")))
check = weir_pb2.CheckRequest(key=["user", "alex"], cost=ESTIMATE)
# Longer than any call takes. A reservation that nobody settles counts as spent then.
reserved = weir.Reserve(weir_pb2.ReserveRequest(check=check, ttl=Duration(seconds=120)), timeout=10)
if not reserved.decision.allowed:
    raise SystemExit(f"refused, retry after {reserved.decision.retry_after.ToMilliseconds() / 1000} s")
try:
    answer, used = complete("hello")
except Exception:
    weir.Cancel(weir_pb2.CancelRequest(hold=reserved.hold), timeout=10)
    raise
# Idempotent: repeat it where the answer is lost.
settled = weir.Commit(weir_pb2.CommitRequest(hold=reserved.hold, actual=used), timeout=10)
print(f"used {settled.charged} of {ESTIMATE} reserved, {settled.refunded} given back, {settled.overage} over")
