from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support import Service

import weir
from weir import Check

TRADE = ["user", "alex", "trade"]


def test_a_batch_decides_each_check_by_itself(client: Any) -> None:
    decisions = client.check_batch(
        [Check(TRADE, cost=2), Check(TRADE, cost=2), Check([]), Check(TRADE, levels=True), Check(["a"], domain="none")]
    )
    first, refused, invalid, third, unknown = decisions
    assert (first.allowed, first.remaining) == (True, 1)
    assert not refused
    assert isinstance(invalid, weir.InvalidRequest)
    assert third.binding.name == "trades"
    assert isinstance(unknown, weir.NotFound)


def test_the_largest_batch_with_levels_is_answered(serve: Callable[..., Service], connect: Callable[..., Any]) -> None:
    limits = [f"{{ gcra: {{ burst: 99999, count: 1, period: 1h }}, name: {i + 10}{'x' * 230} }}" for i in range(16)]
    client = connect(serve(policy=f"schema: {{ all: {{ limits: [{', '.join(limits)}] }} }}").address)
    decisions = client.check_batch([Check(["all"], levels=True)] * 1_000)
    assert {len(decision.levels) for decision in decisions} == {16}


def test_a_check_that_cannot_be_sent_fails_alone(client: Any) -> None:
    surrogate, huge = Check(["user", "\ud800"]), Check(TRADE, cost=2**70)
    first, invalid, second, out_of_range = client.check_batch([Check(TRADE), surrogate, Check(TRADE), huge])
    assert (first.remaining, second.remaining) == (2, 1)
    assert isinstance(invalid, weir.InvalidRequest)
    assert isinstance(out_of_range, weir.InvalidRequest)
    assert [type(result) for result in client.check_batch([surrogate, huge])] == [weir.InvalidRequest] * 2
    with pytest.raises(weir.InvalidRequest, match="surrogate"):
        client.check(["user", "\ud800"])
    with pytest.raises(weir.InvalidRequest, match="surrogate"):
        client.check_all([Check(TRADE), surrogate])
    assert client.check(TRADE, cost=0).remaining == 1


def test_checks_that_pass_together_are_all_charged_or_none(client: Any) -> None:
    other = ["user", "berta", "trade"]
    refused = client.check_all([Check(TRADE), Check(other, cost=4)])
    assert not refused
    assert [result.allowed for result in refused.results] == [True, False]
    assert refused.retry_after is None
    assert client.check(TRADE, cost=0).remaining == 3
    assert client.check_all([Check(TRADE), Check(other)])
    assert client.check(other, cost=0).remaining == 2
    assert client.check_all([Check(TRADE, cost=3)]).retry_after > timedelta(hours=1)
    with pytest.raises(weir.InvalidRequest):
        client.check_all([])


def test_without_the_service_each_falls_back(service: Service, connect: Any) -> None:
    client = connect(service.address, on_failure=weir.OnFailure.ALLOW, deadline=0.5)
    service.kill()
    assert [bool(decision) for decision in client.check_batch([Check(TRADE), Check(TRADE)])] == [True, True]
    joint = client.check_all([Check(TRADE)], on_failure=weir.OnFailure.DENY)
    assert (joint.allowed, joint.source) == (False, weir.Source.FALLBACK)
    with pytest.raises(weir.Unavailable):
        client.check_batch([Check(TRADE)], on_failure=weir.OnFailure.ERROR)


def test_both_clients_have_the_same_methods() -> None:
    def signatures(kind: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(method).parameters) for name, method in methods if name[0] != "_"}

    assert signatures(weir.Client) == signatures(weir.AsyncClient)
    assert list(inspect.signature(weir.Client).parameters) == list(inspect.signature(weir.AsyncClient).parameters)
