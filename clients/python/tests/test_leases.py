from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import pytest
from support import PATIENCE_SECONDS, Service, binary, eventually

import weir
from weir import Source
from weir.v1 import weir_pb2 as pb

LIMIT = 20_000
KEY = ["api", "alex"]
EXAMPLES = Path(__file__).parents[1] / "examples"


def policy(limit: int = LIMIT, lease: str = "{ ttl: 1m }") -> str:
    """The default ttl is so long that no lease expires on a busy machine."""
    return f"""
lease: {lease}
schema:
  api: {{ children: {{ "*": {{ limits: [{{ fixed_window: {{ count: {limit}, period: 30d }}, name: all }}] }} }} }}
  slow: {{ limits: [{{ gcra: {{ burst: 999, count: 1, period: 1d }}, name: slow }}] }}
  plain: {{ limits: [{{ fixed_window: {{ count: {limit}, period: 30d }}, lease: false }}] }}
"""


class Seen:
    """The outcomes of checks."""

    def __init__(self) -> None:
        self.sources: Counter[Source] = Counter()
        self.allowed = 0
        self.refused_by_lease = 0

    def spend(self, client: Any, is_enough: Callable[[Seen], bool], **options: Any) -> Seen:
        """Checks KEY until it is enough."""
        options.setdefault("on_failure", weir.OnFailure.DENY)
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while not is_enough(self):
            assert time.monotonic() < ends_at, self.sources
            decision = client.check(KEY, **options)
            self.sources[decision.source] += 1
            self.allowed += decision.allowed
            self.refused_by_lease += not decision.allowed and decision.source is Source.LEASE
        return self


def leased(count: int) -> Callable[[Seen], bool]:
    return lambda seen: seen.sources[Source.LEASE] >= count


def left(client: Any) -> int:
    decision: weir.Decision = client.check(KEY, cost=0)
    return decision.remaining


@pytest.fixture
def leasing(serve: Callable[..., Service]) -> Service:
    return serve(policy=policy())


def test_clients_of_two_replicas_are_never_over_the_limit(
    serve: Callable[..., Service], connect: Callable[..., Any], redis: str
) -> None:
    replicas = [serve(policy=policy(lease="true"), WEIR_STORE__URL=redis) for _ in range(2)]
    addresses = [replica.address for replica in replicas]
    clients = [connect(addresses, lease=True) for _ in range(2)]
    seen = [Seen() for _ in clients]
    with ThreadPoolExecutor(4) as pool:
        # Two threads for each client.
        workers = [
            pool.submit(one.spend, client, lambda seen: seen.refused_by_lease > 100)
            for one, client in zip(seen, clients, strict=True)
            for _ in range(2)
        ]
        eventually(lambda: seen[0].allowed > LIMIT / 8)
        replicas[0].kill()
        replicas[0].start()
        for worker in workers:
            worker.result()
    allowed = sum(one.allowed for one in seen)
    # Units of a request that was lost with the replica may have expired.
    assert LIMIT * 0.8 < allowed <= LIMIT
    for one in seen:
        assert one.sources[Source.LEASE] > 10 * one.sources[Source.SERVICE]


def test_a_leased_check_is_decided_here(leasing: Service, connect: Callable[..., Any]) -> None:
    client = connect(leasing.address, lease=True)
    seen = Seen().spend(client, leased(1))
    first = client.check(KEY)
    assert (first.allowed, first.leased, first.source) == (True, True, Source.LEASE)
    assert (first.limit, first.levels, first.retry_after) == (0, (), None)
    seen.spend(client, lambda seen: seen.refused_by_lease > 0, cost=3)
    refused = client.check(KEY, cost=3)
    while refused.source is not Source.LEASE:
        refused = client.check(KEY, cost=3)
    assert refused.retry_after.total_seconds() > 0
    assert seen.sources[Source.LEASE] > seen.sources[Source.SERVICE]


def test_the_guard_of_a_refused_leased_check_says_when_to_try_again(
    leasing: Service, connect: Callable[..., Any]
) -> None:
    client = connect(leasing.address, lease=True)
    Seen().spend(client, lambda seen: seen.refused_by_lease > 0, cost=3)
    verdict = client.guard(KEY, cost=3)
    while verdict.decision.source is not Source.LEASE:
        verdict = client.guard(KEY, cost=3)
    assert verdict.status == 429
    assert {name for name, _ in verdict.headers} == {"retry-after", "content-type", "content-length"}


def test_a_refusal_by_a_lease_says_when_the_service_would_allow_it(
    leasing: Service, connect: Callable[..., Any]
) -> None:
    client = connect(leasing.address, lease=True)
    is_told, by_lease = False, 0
    while by_lease < 100:
        verdict = client.guard(["slow"])
        if verdict.passes:
            is_told = False
        elif verdict.decision.source is Source.SERVICE:
            is_told = True
        elif is_told:
            # A unit refills once a day.
            assert verdict.retry_after_seconds > 80_000
            by_lease += 1


def test_a_ban_until_the_year_9999_refuses_with_a_lease(leasing: Service, connect: Callable[..., Any]) -> None:
    client = connect(leasing.address, lease=True)
    Seen().spend(client, leased(100))
    ban = ("--all-keys", "--reason", "a test", "--until", "9999-12-31T00:00:00Z", "--addr", leasing.address)
    subprocess.run([binary(), "ban", *ban], check=True, capture_output=True)
    eventually(lambda: not client.check(KEY))
    verdicts = [client.guard(key) for key in (KEY, ["other"]) for _ in range(50)]
    assert {verdict.status for verdict in verdicts} == {429}
    assert min(verdict.retry_after_seconds for verdict in verdicts) > 7_000 * 365 * 86_400


def test_what_is_held_is_spent_while_the_service_is_down(leasing: Service, connect: Callable[..., Any]) -> None:
    client = connect(leasing.address, lease=True, deadline=0.3, breaker=weir.Breaker(failures=10**9))
    seen = Seen().spend(client, leased(100), deadline=20)
    leasing.kill()
    assert client.check(KEY).source is Source.LEASE
    seen.spend(client, lambda seen: seen.sources[Source.FALLBACK] > 0)
    with pytest.raises(weir.Outage):
        client.check(KEY)
    leasing.start()
    # The new service does not know the lease.
    Seen().spend(client, leased(100))


def test_a_client_that_is_closed_gives_everything_back(leasing: Service, connect: Callable[..., Any]) -> None:
    client, other = connect(leasing.address, lease=True), connect(leasing.address)
    seen = Seen().spend(client, leased(200))
    assert left(other) < LIMIT - seen.allowed
    client.close()
    assert left(other) == LIMIT - seen.allowed


def test_what_is_not_used_any_more_is_given_back_and_its_thread_ends(serve: Callable[..., Service]) -> None:
    service = serve(policy=policy(lease="{ ttl: 1s }"))

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("weir-lease")]

    with weir.Client(service.address, deadline=20, lease=True) as client:
        seen = Seen().spend(client, leased(200))
        assert len(threads()) == 2
        eventually(lambda: left(client) == LIMIT - seen.allowed)
        eventually(lambda: not threads())
        Seen().spend(client, leased(10))
    eventually(lambda: not threads())


def test_a_reset_and_another_policy_are_seen(serve: Callable[..., Service], connect: Callable[..., Any]) -> None:
    service = serve(policy=policy(lease="true"))
    client = connect(service.address, lease=True)
    seen = Seen().spend(client, leased(100))
    assert client.reset(KEY)
    seen.spend(client, leased(200))
    service.limits.write_text(policy(100, lease="true"))
    seen.spend(client, lambda seen: seen.refused_by_lease > 0)
    service.limits.write_text(policy(lease="false"))
    in_a_row = 0
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while in_a_row < 20:
        assert time.monotonic() < ends_at
        in_a_row = in_a_row + 1 if client.check(KEY).source is Source.SERVICE else 0


@pytest.mark.parametrize(
    "options",
    [
        {"limits": []},
        {"factor": 1.0},
        {"dry_run": True},
        {"max_wait": 1},
        {"request_id": "mine"},
        {"cost": 0},
        {"cost": -1},
        {"lease": False},
    ],
    ids=lambda options: next(iter(options)),
)
def test_only_checks_that_the_policy_decides_are_leased(
    leasing: Service, connect: Callable[..., Any], options: dict[str, Any]
) -> None:
    client = connect(leasing.address, lease=True)
    assert {client.check(KEY, **options).source for _ in range(20)} == {Source.SERVICE}


def test_only_keys_that_the_policy_leases_are_leased(leasing: Service, connect: Callable[..., Any]) -> None:
    client = connect(leasing.address, lease=True)
    assert {client.check(["plain"]).source for _ in range(50)} == {Source.SERVICE}
    with pytest.raises(weir.NotFound):
        client.check(KEY, domain="unknown")
    with pytest.raises(TypeError):
        client.check("api")


def test_segments_of_bytes_are_the_same_key_and_not_leased_twice(leasing: Service, connect: Callable[..., Any]) -> None:
    client, other = connect(leasing.address, lease=True), connect(leasing.address)
    seen = Seen()
    for _ in range(100):
        seen.spend(client, leased(seen.sources[Source.LEASE] + 1))
        decision = client.check(["api", b"alex"])
        assert decision.source is Source.SERVICE
        seen.allowed += decision.allowed
    client.close()
    assert left(other) == LIMIT - seen.allowed


@pytest.mark.parametrize("cost", [1.5, Decimal(2), "1", True], ids=repr)
def test_a_cost_of_a_wrong_type_is_an_error_and_the_lease_goes_on(
    leasing: Service, connect: Callable[..., Any], cost: Any
) -> None:
    client, other = connect(leasing.address, lease=True), connect(leasing.address)
    seen = Seen().spend(client, leased(100))
    for _ in range(20):
        with pytest.raises(TypeError):
            client.check(KEY, cost=cost)
    seen.spend(client, leased(300))
    client.close()
    assert left(other) == LIMIT - seen.allowed


def test_by_one_call_only(leasing: Service, connect: Callable[..., Any]) -> None:
    client = connect(leasing.address)
    assert {client.check(KEY).source for _ in range(20)} == {Source.SERVICE}
    Seen().spend(client, leased(1), lease=True)
    assert client.check(KEY).source is Source.SERVICE


def test_a_stream_that_does_not_answer_is_replaced(leasing: Service, connect: Callable[..., Any]) -> None:
    client = connect(leasing.address, lease=True, breaker=weir.Breaker(failures=10**9))
    seen = Seen().spend(client, leased(100))
    leasing.signal(signal.SIGSTOP)
    with pytest.raises(weir.DeadlineExceeded):
        # More units than the client holds.
        client.check(KEY, cost=LIMIT // 2, deadline=0.2)
    leasing.signal(signal.SIGCONT)
    seen.spend(client, leased(1000))


def test_a_replica_without_leases_decides_by_ordinary_checks(connect: Callable[..., Any]) -> None:
    def check(request: bytes, context: grpc.ServicerContext) -> bytes:
        return pb.CheckResponse(allowed=True).SerializeToString()

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {"Check": grpc.unary_unary_rpc_method_handler(check)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weir.v1.RateLimiter", handlers),))
        client = connect(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", lease=True)
        server.start()
        # Each key requests a lease once, on a separate stream.
        assert {client.check([*KEY, str(key)]).source for key in range(100) for _ in range(4)} == {Source.SERVICE}
        client.close()
        server.stop(None).wait()


@pytest.mark.parametrize(
    "code", [code for code in grpc.StatusCode if code.name not in ("OK", "UNAVAILABLE", "CANCELLED")]
)
def test_a_stream_that_is_rejected_fails_no_check(code: grpc.StatusCode, connect: Callable[..., Any]) -> None:
    is_rejected = threading.Event()

    def check(request: bytes, context: grpc.ServicerContext) -> bytes:
        return pb.CheckResponse(allowed=True).SerializeToString()

    def lease(requests: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        is_rejected.set()
        context.abort(code, "no streams")

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.unary_unary_rpc_method_handler(check),
            "Lease": grpc.stream_stream_rpc_method_handler(lease),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weir.v1.RateLimiter", handlers),))
        client = connect(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", lease=True)
        server.start()
        eventually(lambda: bool(client.check(KEY)) and is_rejected.is_set())
        client.close()
        server.stop(None).wait()


def test_a_check_whose_stream_is_rejected_keeps_its_deadline(connect: Callable[..., Any]) -> None:
    deadline, rejects_after, is_rejected = 5.0, 0.5, threading.Event()
    left: list[float] = []

    def check(request: bytes, context: grpc.ServicerContext) -> bytes:
        left.append(context.time_remaining())
        return pb.CheckResponse(allowed=True).SerializeToString()

    def lease(requests: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        # The latency of a rejection over a long distance.
        time.sleep(rejects_after)
        is_rejected.set()
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.unary_unary_rpc_method_handler(check),
            "Lease": grpc.stream_stream_rpc_method_handler(lease),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weir.v1.RateLimiter", handlers),))
        client = connect(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", lease=True)
        server.start()
        eventually(lambda: bool(client.check(KEY, deadline=deadline)) and is_rejected.is_set())
        # gRPC sends rounded deadlines.
        assert left[-1] < deadline - rejects_after + 0.2
        client.close()
        server.stop(None).wait()


def test_the_status_of_a_stream_that_was_accepted_is_not_the_answer_to_its_check(connect: Callable[..., Any]) -> None:
    streams: list[int] = []

    def check(request: bytes, context: grpc.ServicerContext) -> bytes:
        return pb.CheckResponse(allowed=True).SerializeToString()

    def lease(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        streams.append(1)
        context.send_initial_metadata(())
        for answered, _ in enumerate(requests):
            if len(streams) == 1 and answered == 1:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not valid any more")
            yield pb.LeaseResponse(decision=pb.CheckResponse(allowed=True, remaining=7)).SerializeToString()

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.unary_unary_rpc_method_handler(check),
            "Lease": grpc.stream_stream_rpc_method_handler(lease),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("weir.v1.RateLimiter", handlers),))
        client = connect(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", lease=True)
        server.start()
        # A key requests a lease once it is hot. These answers grant none, so another key sends the second request.
        eventually(lambda: bool(client.check(["api", "alex"]).remaining == 7))
        eventually(lambda: bool(client.check(["api", "berta"]).remaining == 7))
        assert len(streams) == 2
        client.close()
        server.stop(None).wait()


def test_while_the_service_rejects_the_stream_calls_decide(
    serve: Callable[..., Service], connect: Callable[..., Any]
) -> None:
    service = serve(policy=policy(), WEIR_GRPC__MAX_OPEN_STREAMS="1")
    other = connect(service.address, lease=True)
    Seen().spend(other, leased(1))
    client = connect(service.address, lease=True, retries=0, breaker=weir.Breaker(failures=1))
    keys = [["api", str(number)] for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            decisions = list(pool.map(client.check, keys))
            assert {(decision.allowed, decision.source) for decision in decisions} == {(True, Source.SERVICE)}
    assert {client.check(key, cost=0).remaining for key in keys} == {LIMIT - 10}
    other.close()
    # The stream is opened again.
    Seen().spend(client, leased(100))
    assert client.breaker.state is weir.State.CLOSED


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_makes_ordinary_checks(leasing: Service) -> None:
    """Tests only the table: gRPC itself does not survive every fork."""

    with weir.Client(leasing.address, deadline=20, lease=True) as client:
        Seen().spend(client, leased(100))
        held = client._leases
        entries = len(held._entries)
        child = os.fork()
        if child == 0:
            # Neither decided by a lease nor a request for one, however hot the key is.
            os._exit(0 if {held.check("", KEY, 1) for _ in range(100)} == {None} and not held._entries else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(held._entries) == entries
        assert client.check(KEY).source is Source.LEASE


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_closes_an_inherited_client(leasing: Service) -> None:
    with weir.Client(leasing.address, deadline=20, lease=True) as client:
        Seen().spend(client, leased(100))
        child = os.fork()
        if child == 0:
            client.close()
            os._exit(0)
        try:
            eventually(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
        finally:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
        assert os.waitstatus_to_exitcode(status) == 0
        assert client.check(KEY).source is Source.LEASE


def test_the_examples(serve: Callable[..., Service], redis: str) -> None:
    service = serve(policy=policy(lease="true"), WEIR_STORE__URL=redis)

    def run(*command: str) -> str:
        environment = {**os.environ, "WEIR_ADDR": service.address}
        command = (sys.executable, *command)
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60).stdout

    assert run(str(EXAMPLES / "hot_key.py")) == "most are decided here\n"
    lines = run(str(EXAMPLES / "leased.py"), service.address, "", "/".join(KEY), "1").splitlines()
    assert 0 < len(lines) <= LIMIT
    assert all(re.fullmatch(r"\d{16} \d{16}", line) for line in lines)
