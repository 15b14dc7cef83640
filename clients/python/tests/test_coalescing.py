from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from signal import Signals
from threading import Event
from typing import Any

import pytest
from support import DEADLINE_SECONDS, PATIENCE_SECONDS, POLICY, Service, eventually
from test_outages import charged, load

import weir
from weir._batches import MAX_IN_FLIGHT, AsyncBatches, Batches
from weir._call import Call
from weir.v1 import weir_pb2 as pb

TRADE = ["user", "alex", "trade"]
USER = ["user", "alex"]


def outcome(client: Any, options: dict[str, Any]) -> object:
    try:
        decision: weir.Decision = client.check(**options)
    except weir.WeirError as error:
        return type(error), error.message
    return decision.allowed, decision.limit, decision.remaining, decision.never, len(decision.levels)


def test_its_answers_equal_those_of_single_calls(service: Service, connect: Callable[..., Any]) -> None:
    checks: list[dict[str, Any]] = [
        {"key": TRADE},
        {"key": TRADE, "cost": 5},
        {"key": TRADE, "levels": True},
        {"key": []},
        {"key": ["exports", "alex"]},
        {"key": TRADE, "domain": "none"},
        {"key": ["x" * 5000]},
    ]
    single, together = connect(service.address), connect(service.address, coalesce=True)
    for check in checks:
        alone = outcome(single, check)
        single.reset(["user"], subtree=True)
        assert outcome(together, check) == alone
        single.reset(["user"], subtree=True)


async def test_tasks_share_calls_and_each_is_charged(service: Service) -> None:
    async with weir.AsyncClient(service.address, coalesce=True, deadline=DEADLINE_SECONDS) as client:
        decisions = await asyncio.gather(*(client.check(USER) for _ in range(1000)))
        assert len({decision.remaining for decision in decisions}) == 1000


def test_threads_share_calls_and_each_is_charged(service: Service) -> None:
    with (
        weir.Client(service.address, coalesce=True, deadline=DEADLINE_SECONDS) as client,
        ThreadPoolExecutor(32) as pool,
    ):
        decisions = list(pool.map(lambda _: client.check(USER), range(1000)))
        assert len({decision.remaining for decision in decisions}) == 1000


def test_one_deadline_ends_one_check(service: Service, connect: Callable[..., Any]) -> None:
    client = connect(service.address, coalesce=True)
    assert client.check(USER)
    service.signal(Signals.SIGSTOP)
    for _ in range(3):
        with pytest.raises(weir.DeadlineExceeded):
            client.check(USER, deadline=0.1)
    service.signal(Signals.SIGCONT)
    assert client.check(USER)


def test_what_threads_gave_up_before_it_was_sent_is_not_sent() -> None:
    sent: SimpleQueue[int] = SimpleQueue()
    proceed = Event()

    def send(request: pb.CheckBatchRequest, timeout: float, wait_for_ready: bool) -> pb.CheckBatchResponse:
        sent.put(len(request.checks))
        assert proceed.wait(PATIENCE_SECONDS)
        return pb.CheckBatchResponse(results=[pb.CheckResponse(allowed=True)] * len(request.checks))

    batches = Batches(send)
    with ThreadPoolExecutor() as pool:
        in_flight = []
        for _ in range(MAX_IN_FLIGHT):
            in_flight.append(pool.submit(batches.check, pb.CheckRequest(), a_call()))
            assert sent.get(timeout=PATIENCE_SECONDS) == 1
        for _ in range(3):
            with pytest.raises(weir.DeadlineExceeded):
                batches.check(pb.CheckRequest(), a_call(0.01))
        proceed.set()
        assert batches.check(pb.CheckRequest(), a_call()).allowed
        assert sent.get(timeout=PATIENCE_SECONDS) == 1
        assert all(answer.result().allowed for answer in in_flight)
    batches.close()


async def test_what_tasks_gave_up_before_it_was_sent_is_not_sent() -> None:
    sent: asyncio.Queue[int] = asyncio.Queue()
    proceed = asyncio.Event()

    async def send(request: pb.CheckBatchRequest, timeout: float, wait_for_ready: bool) -> pb.CheckBatchResponse:
        sent.put_nowait(len(request.checks))
        await proceed.wait()
        return pb.CheckBatchResponse(results=[pb.CheckResponse(allowed=True)] * len(request.checks))

    batches = AsyncBatches(send)
    in_flight = []
    for _ in range(MAX_IN_FLIGHT):
        in_flight.append(asyncio.create_task(batches.check(pb.CheckRequest(), a_call())))
        assert await sent.get() == 1
    for _ in range(3):
        with pytest.raises(weir.DeadlineExceeded):
            await batches.check(pb.CheckRequest(), a_call(0.01))
    proceed.set()
    assert (await batches.check(pb.CheckRequest(), a_call())).allowed
    assert all(answer.allowed for answer in await asyncio.gather(*in_flight))
    assert await sent.get() == 1


async def test_one_that_is_shed_is_an_outage_of_its_own() -> None:
    shed = pb.CheckBatchResponse(results=[pb.CheckResponse(error=pb.Error(code=8, message="shed"))])

    def send(request: pb.CheckBatchRequest, timeout: float, wait_for_ready: bool) -> pb.CheckBatchResponse:
        return shed

    async def send_async(request: pb.CheckBatchRequest, timeout: float, wait_for_ready: bool) -> pb.CheckBatchResponse:
        return shed

    batches = Batches(send)
    with pytest.raises(weir.Overloaded):
        batches.check(pb.CheckRequest(), a_call())
    batches.close()
    with pytest.raises(weir.Overloaded):
        await AsyncBatches(send_async).check(pb.CheckRequest(), a_call())


def a_call(deadline: float = PATIENCE_SECONDS) -> Call:
    return Call(weir.Breaker(), deadline, 0)


def test_a_killed_replica_fails_no_call_and_each_is_charged_once(
    serve: Callable[..., Service], connect: Callable[..., Any], redis: str
) -> None:
    replicas = [serve(WEIR_STORE__URL=redis) for _ in range(2)]
    client = connect([replica.address for replica in replicas], coalesce=True)
    with load(client) as calls:
        for replica in replicas:
            calls.more(50)
            replica.kill()
            calls.more(50)
            replica.start()
            assert connect(replica.address).wait_ready(20)
            calls.more(200)
    assert calls.failures == []
    assert charged(client) == calls.passed


async def test_a_caller_that_is_cancelled_leaves_the_others(service: Service) -> None:
    async with weir.AsyncClient(service.address, coalesce=True, deadline=DEADLINE_SECONDS) as client:
        tasks = [asyncio.create_task(client.check(USER)) for _ in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes].count(asyncio.CancelledError) == 1
        assert sum(isinstance(outcome, weir.Decision) for outcome in outcomes) == 9


def test_checks_with_longer_deadlines_do_not_stop_the_others(
    serve: Callable[..., Service], connect: Callable[..., Any]
) -> None:
    replicas = [serve(), serve(policy=POLICY.replace("99999", "77777"))]
    client = connect([replica.address for replica in replicas], coalesce=True, deadline=1)

    def check(_: int = 0, deadline: float | None = None) -> weir.Decision:
        decision: weir.Decision = client.check(USER, cost=0, on_failure=weir.OnFailure.DENY, deadline=deadline)
        return decision

    # Both are connected.
    eventually(lambda: len({check().limit for _ in range(4)}) == 2)
    replicas[0].signal(Signals.SIGSTOP)
    with ThreadPoolExecutor(4) as pool:
        long = [pool.submit(check, deadline=2 * PATIENCE_SECONDS) for _ in range(4)]
        eventually(lambda: sum(answer.done() for answer in long) >= len(long) // 2)
        eventually(lambda: check().source is weir.Source.SERVICE)
        replicas[0].signal(Signals.SIGCONT)


def test_closing_ends_its_threads(service: Service) -> None:
    client = weir.Client(service.address, coalesce=True, deadline=DEADLINE_SECONDS)
    assert client.check(USER)
    client.close()
    with pytest.raises(weir.WeirError, match="closed"):
        client.check(USER)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_begins_anew() -> None:
    def send(request: pb.CheckBatchRequest, timeout: float, wait_for_ready: bool) -> pb.CheckBatchResponse:
        return pb.CheckBatchResponse(results=[pb.CheckResponse(allowed=True)] * len(request.checks))

    batches = Batches(send)
    assert batches.check(pb.CheckRequest(), a_call()).allowed
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if batches.check(pb.CheckRequest(), a_call()).allowed else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    batches.close()
