"""A function of which only so many run at the same time: a slot is held around it, and extended while it runs."""

import logging
import os
from contextlib import contextmanager
from threading import Event, Thread

import grpc
from weir.v1 import weir_pb2, weir_pb2_grpc

log = logging.getLogger("weir")


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
        # A third: an answer may be lost, and the next one is in time.
        third = taken.expires_after.ToMilliseconds() / 3000
        while not done.wait(third):
            try:
                held = weir.Extend(weir_pb2.ExtendRequest(hold=taken.hold), timeout=third)
                third = held.expires_after.ToMilliseconds() / 3000
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    # Work that must not go on without a slot stops here.
                    return log.error("the slot of %s is lost: another one may run too", key)

    extends = Thread(target=extend, daemon=True)
    extends.start()
    try:
        yield
    finally:
        done.set()
        try:
            weir.Commit(weir_pb2.CommitRequest(hold=taken.hold), timeout=10)
        except grpc.RpcError as error:
            log.warning("the slot of %s is free after its ttl: %s", key, error.code())


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
