from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from support import PATIENCE_SECONDS, POLICY, Service, eventually

import weir

TRADE = ["user", "alex", "trade"]
USER = ["user", "alex"]
WORKERS = 4


def charged(client: Any) -> int:
    """Returns the units of USER that are spent."""
    decision: weir.Decision = client.check(USER, cost=0)
    return decision.limit - decision.remaining


def test_the_deadline_ends_a_check_of_a_service_that_hangs(service: Service, connect: Callable[..., Any]) -> None:
    client = connect(service.address, deadline=0.2)
    assert client.wait_ready(20)
    service.signal(signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(weir.DeadlineExceeded):
        client.check(TRADE)
    assert time.monotonic() - started >= 0.2
    started = time.monotonic()
    with pytest.raises(weir.DeadlineExceeded):
        client.check(TRADE, deadline=0.5)
    assert time.monotonic() - started >= 0.5


def test_the_breaker_opens_after_failures_and_closes_by_a_probe(service: Service, connect: Callable[..., Any]) -> None:
    breaker = weir.Breaker(failures=3, open_for=0.3)
    client = connect(service.address, deadline=0.1, breaker=breaker)
    assert client.wait_ready(20)
    service.signal(signal.SIGSTOP)
    for _ in range(3):
        assert breaker.state.name == "CLOSED"
        with pytest.raises(weir.DeadlineExceeded):
            client.check(TRADE)
    assert breaker.state.name == "OPEN"
    with pytest.raises(weir.CircuitOpen):
        client.check(TRADE, deadline=20)
    assert client.check(TRADE, on_failure=weir.OnFailure.ALLOW).source is weir.Source.FALLBACK
    service.signal(signal.SIGCONT)

    def answers() -> bool:
        return bool(client.check(USER, cost=0, on_failure=weir.OnFailure.DENY, deadline=20))

    eventually(answers)
    assert breaker.state.name == "CLOSED"


@pytest.mark.parametrize("options", [{}, {"coalesce": True}, {"lease": True}])
def test_a_deadline_that_is_over_before_the_call_leaves_it_closed(
    serve: Callable[..., Service], connect: Callable[..., Any], options: Any
) -> None:
    client = connect(serve(policy=f"lease: true{POLICY}").address, breaker=weir.Breaker(failures=1), **options)
    for deadline in (0, -0.001) * 5:
        with pytest.raises(weir.DeadlineExceeded):
            client.check(USER, deadline=deadline)
    assert client.breaker.state.name == "CLOSED"
    assert client.check(USER).source is weir.Source.SERVICE


def test_refusals_and_invalid_requests_leave_it_closed(service: Service, connect: Callable[..., Any]) -> None:
    breaker = weir.Breaker(failures=1)
    client = connect(service.address, breaker=breaker)
    assert not client.check(TRADE, cost=4)
    with pytest.raises(weir.NotFound):
        client.check(TRADE, domain="unknown")
    assert breaker.state.name == "CLOSED"


def test_a_probe_that_ends_with_its_client_leaves_the_breaker_open(connect: Callable[..., Any]) -> None:
    breaker = weir.Breaker(failures=1, open_for=0)
    breaker.failed(breaker.enter())
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        client = connect(f"127.0.0.1:{silent.getsockname()[1]}", breaker=breaker)
        probe = pool.submit(client.check, TRADE)
        eventually(lambda: breaker.state.name == "HALF_OPEN")
        client.run(client._client.close()) if hasattr(client, "_client") else client.close()
        assert probe.exception(PATIENCE_SECONDS)
    assert breaker.state.name == "OPEN"


def test_a_frozen_replica_leaves_the_breaker_closed(serve: Callable[..., Service], connect: Callable[..., Any]) -> None:
    replicas = [serve(), serve(policy=POLICY.replace("99999", "77777"))]
    client = connect([replica.address for replica in replicas])

    def check(_: int) -> weir.Decision:
        decision: weir.Decision = client.check(USER, cost=0, deadline=1, on_failure=weir.OnFailure.DENY)
        return decision

    with ThreadPoolExecutor(20) as pool:
        # Both are connected.
        eventually(lambda: len({check(0).limit for _ in range(4)}) == 2)
        replicas[0].signal(signal.SIGSTOP)
        decisions = [decision for _ in range(3) for decision in pool.map(check, range(20))]
    errors = {type(decision.error) for decision in decisions}
    assert errors == {type(None), weir.DeadlineExceeded}
    assert client.breaker.state is weir.State.CLOSED


def test_a_killed_replica_fails_no_call_and_each_is_charged_once(
    serve: Callable[..., Service], connect: Callable[..., Any], redis: str
) -> None:
    replicas = [serve(WEIR_STORE__URL=redis) for _ in range(2)]
    client = connect([replica.address for replica in replicas])
    with load(client) as calls:
        for replica in replicas:
            calls.more(50)
            replica.kill()
            calls.more(50)
            replica.start()
            assert connect(replica.address).wait_ready(20)
            # A client that has just connected to both may lose one of them.
            calls.more(200)
    assert calls.failures == []
    assert charged(client) == calls.passed


def test_a_rolling_restart_fails_no_call(
    serve: Callable[..., Service], connect: Callable[..., Any], redis: str
) -> None:
    replicas = [serve(WEIR_STORE__URL=redis, WEIR_SHUTDOWN__DELAY="100ms") for _ in range(2)]
    client = connect([replica.address for replica in replicas])
    with load(client) as calls:
        for replica in replicas:
            calls.more(50)
            replica.stop()
            calls.more(50)
            replica.start()
            calls.more(100)
    assert calls.failures == []
    assert charged(client) == calls.passed


def test_one_replica_that_is_restarted_fails_no_call(
    serve: Callable[..., Service], connect: Callable[..., Any], redis: str
) -> None:
    service = serve(WEIR_STORE__URL=redis)
    client = connect(service.address)
    with load(client) as calls:
        calls.more(50)
        service.kill()
        service.start()
        calls.more(50)
    assert calls.failures == []
    assert charged(client) == calls.passed


def test_without_retries_a_call_is_sent_once(
    serve: Callable[..., Service], connect: Callable[..., Any], redis: str
) -> None:
    service = serve(WEIR_STORE__URL=redis)
    client = connect(service.address, retries=0)
    assert not client.check(TRADE).repeated
    service.kill()
    with pytest.raises(weir.Unavailable):
        client.check(TRADE)


class Calls:
    """The results of checks of USER."""

    def __init__(self) -> None:
        self.passed = 0
        self.failures: list[Exception] = []
        self._lock = threading.Lock()

    def check(self, client: Any) -> None:
        try:
            allowed = bool(client.check(USER))
        except Exception as error:
            with self._lock:
                self.failures.append(error)
            return
        with self._lock:
            self.passed += allowed

    def more(self, count: int) -> None:
        """Waits until that many more calls are answered."""
        enough = self.passed + count
        eventually(lambda: self.passed >= enough or bool(self.failures))


@contextmanager
def load(client: Any) -> Iterator[Calls]:
    """Checks USER repeatedly, from several threads."""
    calls, done = Calls(), threading.Event()

    def work() -> None:
        while not done.is_set():
            calls.check(client)

    with ThreadPoolExecutor(WORKERS) as pool:
        workers = [pool.submit(work) for _ in range(WORKERS)]
        try:
            yield calls
        finally:
            done.set()
    for worker in workers:
        worker.result()
