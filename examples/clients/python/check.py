"""The smallest call: may alex trade?"""

import os

import grpc
from weir.v1 import weir_pb2, weir_pb2_grpc

weir = weir_pb2_grpc.RateLimiterStub(grpc.insecure_channel(os.environ.get("WEIR_ADDR", "127.0.0.1:8081")))
answer = weir.Check(weir_pb2.CheckRequest(key=["user", "alex", "trade"]), timeout=10)
if answer.allowed:
    print(f"allowed, {answer.remaining} of {answer.limit} left")
else:
    print(f"refused, retry after {answer.retry_after.ToMilliseconds() / 1000} s")
