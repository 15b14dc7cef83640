"""A function of which only so many run at the same time: a slot is held around it, and extended while it runs."""

import os
from contextlib import contextmanager
from threading import Event, Thread

import grpc
from weir.v1 import weir_pb2, weir_pb2_grpc


class AllTaken(Exception):
    """All slots are taken."""


@contextmanager
def slot(weir, key):
    """Takes a slot of a concurrency limit and gives it back. Should this process die, it is free after the limit's ttl."""
    taken = weir.Reserve(weir_pb2.ReserveRequest(check=weir_pb2.CheckRequest(key=key)), timeout=10)
    if not taken.decision.allowed:
        raise AllTaken(key)
    done = Event()

    def extend():
        while not done.wait(taken.expires_after.ToMilliseconds() / 2000):
            # Without an answer the next one may have it.
            try:
                weir.Extend(weir_pb2.ExtendRequest(hold=taken.hold), timeout=10)
            except grpc.RpcError:
                pass

    extends = Thread(target=extend, daemon=True)
    extends.start()
    try:
        yield
    finally:
        done.set()
        extends.join()
        weir.Commit(weir_pb2.CommitRequest(hold=taken.hold), timeout=10)


weir = weir_pb2_grpc.RateLimiterStub(grpc.insecure_channel(os.environ.get("WEIR_ADDR", "127.0.0.1:8081")))
EXPORTS = ["exports", "alex"]
with slot(weir, EXPORTS):
    print("exporting")
    try:
        with slot(weir, EXPORTS):
            print("two at the same time")
    except AllTaken:
        print("another one has to wait")
with slot(weir, EXPORTS):
    print("exporting again")
