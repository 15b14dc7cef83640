from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from signal import Signals
from typing import Any

import grpc
import pytest
from support import Service, binary, eventually

import weir
from weir.limits import Gcra, Limit, TokenBucket

TRADE = ["user", "alex", "trade"]


def test_a_check_is_allowed_until_its_limit_and_then_refused(client: Any) -> None:
    left = [client.check(TRADE).remaining for _ in range(3)]
    assert left == [2, 1, 0]
    refused = client.check(TRADE, levels=True)
    assert not refused
    assert refused.limit == 3
    assert timedelta(hours=23) < refused.retry_after <= timedelta(days=1)
    assert refused.binding.name == "trades"
    assert [level.name for level in refused.levels] == ["per-user", "trades"]
    assert refused.next_after == refused.retry_after
    assert refused.source is weir.Source.SERVICE
    assert refused.override == ""


def test_the_options_of_a_check_reach_the_service(client: Any) -> None:
    assert client.check(TRADE, cost=2).remaining == 1
    assert client.check(TRADE, cost=2, dry_run=True).allowed is False
    assert client.check(TRADE, cost=0).remaining == 1
    assert client.check(TRADE, cost=-1).remaining == 2
    assert client.check(TRADE, cost=4).never
    assert client.check(TRADE, factor=0).limit == 0
    first, again = (client.check(TRADE, request_id="one-and-the-same") for _ in range(2))
    assert (first.remaining, first.repeated) == (1, False)
    assert (again.remaining, again.repeated) == (1, True)


def test_a_decision_names_the_ban_that_refused_it(service: Service, client: Any) -> None:
    assert client.check(TRADE).ban_reason == ""
    subprocess.run(
        [binary(), "ban", "user/alex", "--reason", "credential stuffing", "--addr", service.address],
        check=True,
        capture_output=True,
    )
    refused = client.check(TRADE)
    assert (refused.allowed, refused.ban_reason, refused.never) == (False, "credential stuffing", True)
    assert refused.override


def test_a_caller_brings_limits_of_its_own(client: Any) -> None:
    period = timedelta(days=1)
    limits = [
        Limit(gcra=Gcra(burst=1, count=1, period=period)),
        Limit(token_bucket=TokenBucket(capacity=9, count=9, period=period), depth=1, name="all"),
    ]
    decision = client.check(["a", "b"], limits=limits, levels=True)
    assert [(level.name, level.limit, level.remaining) for level in decision.levels] == [
        ("all", 9, 8),
        ("*/*#gcra0", 2, 1),
    ]


def test_limits_that_shape_refuse_unless_a_wait_is_accepted(
    serve: Callable[..., Service], connect: Callable[..., Any]
) -> None:
    policy = "schema: { hook: { limits: [{ leaky_queue: { count: 1, period: 1h, burst: 5 }, name: hooks }] } }"
    client = connect(serve(policy=policy).address)
    assert client.check(["hook"]).wait == timedelta()
    assert not client.check(["hook"])
    assert client.check(["hook"], max_wait=timedelta(hours=2)).wait > timedelta(minutes=59)


def test_reset_forgets(client: Any) -> None:
    client.check(TRADE, cost=3)
    assert client.reset(TRADE) is True
    assert client.reset(TRADE) is False
    assert client.check(TRADE).remaining == 2
    # The key itself has no state, but a key below it has.
    assert client.reset(["user"], subtree=True) is True
    assert client.reset(["user"], subtree=True) is False
    assert client.check(TRADE).remaining == 2


def test_a_key_is_no_string(client: Any) -> None:
    with pytest.raises(TypeError, match="sequence of segments"):
        client.check("user")


def test_it_connects_in_advance(client: Any) -> None:
    assert client.wait_ready(20)


def test_a_draining_replica_is_ready(serve: Callable[..., Service], connect: Callable[..., Any]) -> None:
    service = serve(WEIR_SHUTDOWN__DELAY="10m")
    service.process.send_signal(Signals.SIGTERM)
    eventually(lambda: any("draining" in line for line in service.log))
    client = connect(service.address)
    assert client.wait_ready(20)
    assert client.check(TRADE)


def test_it_waits_until_the_service_answers(connect: Callable[..., Any]) -> None:
    failures = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED]

    def check_batch(request: bytes, context: grpc.ServicerContext) -> bytes:
        if failures:
            context.abort(failures.pop(), "not yet")
        return b""

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(check_batch)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("weir.v1.RateLimiter", {"CheckBatch": handler}),)
        )
        client = connect(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        assert not client.wait_ready(0.01)
        server.start()
        assert client.wait_ready(20)
        assert not failures
        client.close()
        server.stop(None).wait()


def test_a_closed_client_says_so(service: Service) -> None:
    with weir.Client(service.address) as client:
        pass
    with pytest.raises(weir.WeirError, match="closed"):
        client.check(TRADE)
    with pytest.raises(weir.WeirError, match="closed"):
        client.wait_ready(20)


def test_sockets_and_several_addresses(
    serve: Callable[..., Service], connect: Callable[..., Any], tmp_path: Any
) -> None:
    socket = serve(WEIR_GRPC__LISTEN=f"unix:{tmp_path}/weir.sock").address
    assert connect(socket).check(TRADE).remaining == 2
    assert connect([socket]).check(TRADE).remaining == 1
    addresses = [serve().address, serve().address]
    assert connect([f"dns:///{addresses[0]}"]).check(TRADE, cost=0).remaining == 3
    client = connect(addresses)
    allowed: list[bool] = []

    def both_have_decided() -> bool:
        allowed.extend(bool(client.check(TRADE)) for _ in range(12))
        return sum(allowed) == 6

    # Each has its own counts, and gets a share of the checks once it is connected.
    eventually(both_have_decided)
    several = ",".join(addresses)
    blanks = [f"{address} " for address in addresses]
    for target in (f"ipv4:{several}", f"ipv4:///{several}", f"IPV4:{several}", blanks):
        assert not connect(target).check(TRADE)
    with pytest.raises(ValueError, match="DNS name"):
        weir.Client(["one:1", "two:2"])
