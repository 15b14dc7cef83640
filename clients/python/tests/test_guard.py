from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support import Service

import weir
from weir import _methods
from weir._guard import FailureLog, repair
from weir.v1 import weir_pb2 as pb

POLICY = """
schema:
  user: { children: { "*": { limits: [{ gcra: { burst: 1, count: 1, period: 1d }, name: 'the "fair" 100 % ü' }] } } }
"""
NAME = '"the \\"fair\\" 100 %25 %C3%BC"'


def test_a_request_passes_with_headers_or_is_refused(
    serve: Callable[..., Service], connect: Callable[..., Any]
) -> None:
    client = connect(serve(policy=POLICY).address)
    passes = client.guard(["user", "alex"])
    assert passes.passes
    assert passes.decision.remaining == 1
    assert passes.headers == (("ratelimit-policy", f"{NAME};q=2"), ("ratelimit", f"{NAME};r=1"))
    assert client.guard(["user", "alex"]).headers[1][1].startswith(f"{NAME};r=0;t=86")
    refused = client.guard(["user", "alex"])
    headers = dict(refused.headers)
    assert refused.status == 429
    assert 86_000 < int(headers["retry-after"]) <= 86_400
    assert refused.retry_after_seconds == int(headers["retry-after"])
    assert headers["content-type"] == "application/problem+json"
    problem = json.loads(refused.body)
    assert (problem["title"], problem["status"]) == ("Too Many Requests", 429)
    assert problem["violated-policies"] == ['the "fair" 100 % ü']
    # No wait helps, so there is no Retry-After.
    assert client.guard(["user", "berta"], cost=5).retry_after_seconds is None
    # Without a limit there are no headers.
    assert client.guard(["other"]).headers == ()


def test_what_users_send_never_makes_a_check_invalid(client: Any) -> None:
    for key in (["user", ""], ["user", "é" * 5000], ["a"] * 100, [], ["\udcff"]):
        assert client.guard(key).decision
    assert repair(["", "é" * 1024]) == ["-", "é" * 512]


def test_without_a_decision_it_fails_open_or_closed(
    service: Service, connect: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(service.address, deadline=0.5)
    service.kill()
    open_ = client.guard(["user", "alex"])
    assert open_.passes
    assert isinstance(open_.error, weir.Unavailable)
    closed = client.guard(["user", "alex"], fail_closed=True)
    assert closed.status == 503
    assert closed.retry_after_seconds == 1
    assert json.loads(closed.body)["status"] == 503
    assert caplog.text.count(f"no answer from weir at {service.address}: UNAVAILABLE") == 1


def test_unset_it_fails_as_its_client(service: Service, connect: Callable[..., Any]) -> None:
    client = connect(service.address, deadline=0.5, on_failure=weir.OnFailure.DENY)
    service.kill()
    assert client.guard(["user", "alex"]).status == 503
    assert client.guard(["user", "alex"], fail_closed=None).status == 503
    assert client.guard(["user", "alex"], fail_closed=False).passes
    assert connect(service.address, deadline=0.5, on_failure=weir.OnFailure.ALLOW).guard(["user", "alex"]).passes


def test_after_close_it_fails_open_or_closed(service: Service, connect: Callable[..., Any]) -> None:
    client = connect(service.address)
    assert client.check(["user", "alex"])
    inner = getattr(client, "_client", client)
    client.close() if inner is client else client.run(inner.close())
    with pytest.raises(weir.WeirError, match="closed") as raised:
        client.check(["user", "alex"])
    assert not isinstance(raised.value, weir.Outage)
    assert client.guard(["user", "alex"]).passes
    assert client.guard(["user", "alex"], fail_closed=True).status == 503


async def test_a_channel_that_is_closed_meanwhile_is_no_other_error(service: Service) -> None:
    threads, tasks = weir.Client(service.address), weir.AsyncClient(service.address)
    assert tasks._connected()
    threads.close()
    await tasks.close()
    with pytest.raises(weir.WeirError, match="closed"):
        threads._send_once(_methods.CHECK, pb.CheckRequest(), 1.0, False)
    with pytest.raises(weir.WeirError, match="closed"):
        await tasks._send_once(_methods.CHECK, pb.CheckRequest(), 1.0, False)
    with pytest.raises(weir.WeirError, match="closed"):
        threads.wait_ready(1)
    with pytest.raises(weir.WeirError, match="closed"):
        await tasks.wait_ready(1)


async def test_a_client_that_was_never_used_does_not_connect_after_close(service: Service) -> None:
    client = weir.AsyncClient(service.address)
    await client.close()
    with pytest.raises(weir.WeirError, match="closed"):
        await client.wait_ready(1)
    assert client._channel is None


def test_a_wrong_configuration_is_an_error_that_takes_nothing_down(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.guard(["user", "alex"], domain="none").passes
    assert client.guard(["user", "alex"], domain="none", fail_closed=True).status == 503
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.message.split("(")[0] for record in errors] == [
        "WEIR IS SET UP WRONGLY, NO REQUEST IS CHECKED: NOT_FOUND "
    ]


def test_each_kind_of_failure_is_logged_once_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    failures = FailureLog("here")
    for _ in range(3):
        failures.failed(weir.Unavailable("away"))
        failures.failed(weir.CircuitOpen("open"))
    assert len(caplog.records) == 2
    now = 110.0
    failures.failed(weir.Unavailable("away"))
    assert (
        caplog.records[-1].message
        == "no answer from weir at here: UNAVAILABLE (away); 4 checks without a decision so far"
    )


def test_a_refusal_tells_seconds_rounded_up() -> None:
    level = weir.Level("a", 1, False, False, 3, 0, timedelta(), timedelta(), False, timedelta(seconds=1.2), None)
    verdict = weir.Verdict.of_decision(weir.Decision(allowed=False, binding=level))
    assert verdict.retry_after_seconds == 2
