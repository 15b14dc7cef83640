"""A cancellation of a task is raised, and leaves no settlement incomplete."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support import DEADLINE_SECONDS, PATIENCE_SECONDS, Service

import weir
from weir._call import Call
from weir._credentials import Token
from weir._lease.holder import Renewal
from weir._lease.requests import Outcome
from weir._lease.table import Entry
from weir._lease.tasks import TaskLeases
from weir._reservation import AsyncReservation
from weir._slot import AsyncSlot
from weir.v1 import weir_pb2 as pb

EXPORTS = ["exports", "alex"]


class Settling:
    """A stand-in for a client: its settlements take until they are released."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.proceed = asyncio.Event()
        self.settled: list[str] = []

    async def _send(self, method: Any, request: Any, deadline: Any) -> Any:
        self.started.set()
        await self.proceed.wait()
        self.settled.append(method.name)
        return method.reply()

    def reservation(self) -> AsyncReservation:
        client: Any = self
        return AsyncReservation(client, weir.Decision(allowed=True), "hold", timedelta(hours=1))


async def cancel_while_it_settles(client: Settling, task: asyncio.Task[None]) -> None:
    await client.started.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    client.proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("error", "settlement"), [(None, "Commit"), (ZeroDivisionError(), "Cancel")])
async def test_a_reservation_is_settled_all_the_same(error: Exception | None, settlement: str) -> None:
    client = Settling()

    async def work() -> None:
        async with client.reservation():
            if error:
                raise error

    await cancel_while_it_settles(client, asyncio.create_task(work()))
    assert client.settled == [settlement]


async def test_a_slot_is_given_back_all_the_same() -> None:
    client = Settling()

    async def reserve() -> AsyncReservation:
        return client.reservation()

    async def work() -> None:
        async with AsyncSlot(reserve, None):
            await asyncio.sleep(0)

    await cancel_while_it_settles(client, asyncio.create_task(work()))
    assert client.settled == ["Commit"]


@pytest.mark.parametrize("acquire", ["reserve", "slot"])
async def test_one_that_is_cancelled_while_it_reserves_holds_nothing(
    acquire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = weir.AsyncClient("127.0.0.1:1", deadline=PATIENCE_SECONDS)
    started, proceed = asyncio.Event(), asyncio.Event()
    sent: list[tuple[str, str]] = []

    async def send(method: Any, request: Any, *_: Any) -> Any:
        started.set()
        await proceed.wait()
        sent.append((method.name, getattr(request, "hold", "")))
        return method.reply(hold="it") if method.name == "Reserve" else method.reply()

    monkeypatch.setattr(client, "_send", send)

    async def work() -> None:
        async with getattr(client, acquire)(EXPORTS):
            raise AssertionError("it went on")

    task = asyncio.create_task(work())
    await started.wait()
    task.cancel()
    # It does not wait for the answer.
    with pytest.raises(asyncio.CancelledError):
        await task
    asyncio.get_running_loop().call_soon(proceed.set)
    await client.close()
    assert sent == [("Reserve", ""), ("Cancel", "it")]


async def test_a_cancellation_that_comes_as_the_block_of_a_slot_ends_is_raised(service: Service) -> None:
    async with weir.AsyncClient(service.address, deadline=DEADLINE_SECONDS) as client:

        async def work() -> None:
            async with client.slot(EXPORTS):
                await asyncio.sleep(0)
                asyncio.get_running_loop().call_soon(task.cancel)
            raise AssertionError("it went on")

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.check(EXPORTS, cost=0)).remaining == 1


async def test_a_cancellation_that_comes_with_the_answer_of_a_lease_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    no_channel: Any = None
    leases = TaskLeases(no_channel, Token(None), weir.Breaker())

    def ask(entry: Entry, renewal: Renewal, ends_at: float, waiter: Callable[[Outcome], None], *, levels: bool) -> None:
        def answer() -> None:
            waiter(pb.LeaseResponse(decision=pb.CheckResponse(allowed=True)))
            task.cancel()

        asyncio.get_running_loop().call_soon(answer)

    monkeypatch.setattr(leases, "ask", ask)
    renewal = Renewal(lease=1, sequence=1, spent=0, kept=0, want=0, generation=0, cost=1)
    call = Call(weir.Breaker(), PATIENCE_SECONDS, 0)
    task = asyncio.create_task(leases.decide(Entry("", EXPORTS, 0, 0), renewal, pb.CheckRequest(), call))
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_leases_are_given_back_all_the_same(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    client = weir.AsyncClient(service.address)
    started, proceed, is_returned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def return_units(deadline_seconds: float) -> None:
        started.set()
        await proceed.wait()
        is_returned.set()

    monkeypatch.setattr(client._leases, "return_units", return_units)
    task = asyncio.create_task(client.close())
    await started.wait()
    task.cancel()
    await asyncio.sleep(0)
    proceed.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_returned.is_set()


# Before Python 3.11 it cannot be distinguished from a cancellation of the task, which must be raised.
ERROR_AT_CLOSE = weir.WeirError if sys.version_info >= (3, 11) else asyncio.CancelledError


@pytest.mark.parametrize("coalesce", [False, True])
async def test_a_call_under_way_when_the_client_closes_fails_without_a_cancellation(*, coalesce: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        client = weir.AsyncClient(address, coalesce=coalesce, deadline=PATIENCE_SECONDS)
        task = asyncio.create_task(client.check(EXPORTS))
        for _ in range(10):
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ERROR_AT_CLOSE) as raised:
            await task
        assert isinstance(raised.value, asyncio.CancelledError) or "closed" in str(raised.value)


async def test_a_client_that_closes_while_it_waits_for_the_service_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = weir.AsyncClient(f"127.0.0.1:{silent.getsockname()[1]}")
        task = asyncio.create_task(client.wait_ready(PATIENCE_SECONDS))
        await asyncio.sleep(0.01)
        await client.close()
        with pytest.raises(ERROR_AT_CLOSE):
            await task


async def test_a_cancellation_while_the_client_closes_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = weir.AsyncClient(f"127.0.0.1:{silent.getsockname()[1]}", deadline=PATIENCE_SECONDS)
        task = asyncio.create_task(client.check(EXPORTS))
        for _ in range(10):
            await asyncio.sleep(0)
        channel = client._connected()
        close = channel.close

        async def cancel_and_close() -> None:
            task.cancel()
            await close()

        monkeypatch.setattr(channel, "close", cancel_and_close)
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await task
