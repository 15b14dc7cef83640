from __future__ import annotations

import os
import signal
from datetime import timedelta

import grpc
import pytest

import weir
from weir import State


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> weir.Breaker:
    breaker = weir.Breaker(failures=2, open_for=timedelta(seconds=1), clock=clock)
    for _ in range(2):
        breaker.failed(breaker.enter())
    return breaker


def test_it_opens_after_consecutive_failures_only() -> None:
    breaker = weir.Breaker(failures=2)
    for _ in range(5):
        breaker.failed(breaker.enter())
        breaker.enter()
        breaker.succeeded()
    assert breaker.state.name == "CLOSED"


def test_outages_of_calls_that_began_before_the_last_answer_do_not_count() -> None:
    breaker = weir.Breaker(failures=2)
    together = [breaker.enter() for _ in range(10)]
    breaker.succeeded()
    for permit in together:
        breaker.failed(permit)
    assert breaker.state.name == "CLOSED"
    for _ in range(2):
        breaker.failed(breaker.enter())
    assert breaker.state.name == "OPEN"


def test_an_answer_to_an_earlier_call_outweighs_the_outage_of_the_probe() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.0
    probe = breaker.enter()
    # The call was sent before the circuit breaker opened.
    breaker.succeeded()
    breaker.failed(probe)
    breaker.failed(breaker.enter())
    assert breaker.state is State.CLOSED


def test_while_open_one_probe_at_a_time_passes() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 0.999
    with pytest.raises(weir.CircuitOpen):
        breaker.enter()
    clock.now = 1.0
    probe = breaker.enter()
    assert breaker.state.name == "HALF_OPEN"
    with pytest.raises(weir.CircuitOpen):
        breaker.enter()
    breaker.failed(probe)
    assert breaker.state.name == "OPEN"
    clock.now = 1.999
    with pytest.raises(weir.CircuitOpen):
        breaker.enter()
    clock.now = 2.0
    breaker.enter()
    breaker.succeeded()
    assert breaker.state.name == "CLOSED"
    breaker.enter()


def test_an_abandoned_probe_leaves_its_place_to_the_next_call() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.0
    breaker.abandoned(breaker.enter())
    breaker.enter()
    assert breaker.state.name == "HALF_OPEN"


def test_an_answer_frees_the_place_of_the_probe() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.0
    former = breaker.enter()
    # The answer to a call that was sent before it opened.
    breaker.succeeded()
    for _ in range(2):
        breaker.failed(breaker.enter())
    clock.now = 2.0
    assert breaker.enter().is_probe
    # It is not the place of this one any more.
    breaker.abandoned(former)
    with pytest.raises(weir.CircuitOpen):
        breaker.enter()


def test_a_call_that_is_not_the_probe_does_not_give_up_the_probes_place() -> None:
    clock = Clock()
    breaker = weir.Breaker(failures=2, open_for=1.0, clock=clock)
    # They are sent before it opens.
    early = [breaker.enter() for _ in range(4)]
    for permit in early[:2]:
        breaker.failed(permit)
    clock.now = 1.0
    assert breaker.enter().is_probe
    breaker.abandoned(early[2])
    breaker.failed(early[3])
    assert breaker.state.name == "HALF_OPEN"
    with pytest.raises(weir.CircuitOpen):
        breaker.enter()
    breaker.succeeded()
    assert not breaker.enter().is_probe


def test_calls_that_fail_after_it_opened_do_not_keep_it_open() -> None:
    clock = Clock()
    breaker = weir.Breaker(failures=2, open_for=1.0, clock=clock)
    early = [breaker.enter() for _ in range(3)]
    for permit in early[:2]:
        breaker.failed(permit)
    clock.now = 0.9
    breaker.failed(early[2])
    clock.now = 1.0
    breaker.enter()


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, State.CLOSED),
        (weir.NotFound("no domain"), State.CLOSED),
        (weir.Unavailable("away"), State.OPEN),
        (weir.WeirError("closed", code=grpc.StatusCode.CANCELLED), State.OPEN),
        (KeyboardInterrupt(), State.OPEN),
    ],
)
def test_a_probe_closes_it_by_an_answer_alone(error: BaseException | None, state: State) -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.0
    breaker.ended(error, breaker.enter())
    assert breaker.state is state


def test_listeners_hear_of_each_change() -> None:
    states: list[State] = []
    clock = Clock()
    breaker = weir.Breaker(failures=1, clock=clock)
    breaker.on_change(states.append)
    breaker.failed(breaker.enter())
    clock.now = 1.0
    breaker.enter()
    breaker.succeeded()
    assert states == [State.OPEN, State.HALF_OPEN, State.CLOSED]


def test_a_listener_that_fails_loses_no_permit(caplog: pytest.LogCaptureFixture) -> None:
    def fails(state: State) -> None:
        raise ValueError(state.name)

    clock = Clock()
    breaker = weir.Breaker(failures=1, clock=clock)
    states: list[State] = []
    breaker.on_change(fails)
    breaker.on_change(states.append)
    breaker.failed(breaker.enter())
    clock.now = 1.0
    assert breaker.enter().is_probe
    breaker.succeeded()
    assert states == [State.OPEN, State.HALF_OPEN, State.CLOSED]
    assert [record.getMessage() for record in caplog.records] == ["a listener of the circuit breaker has failed"] * 3


def test_with_zero_failures_it_never_opens() -> None:
    breaker = weir.Breaker(failures=0)
    for _ in range(100):
        breaker.failed(breaker.enter())
    assert breaker.state is State.CLOSED
    with pytest.raises(ValueError, match="failure"):
        weir.Breaker(failures=-1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_waits_neither_for_a_lock_nor_for_a_probe_of_its_parent() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now = 1.0
    breaker.enter()
    states: list[State] = []
    breaker.on_change(states.append)
    with breaker._lock:
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(10)
            # A thread of the parent may hold a lock of the listeners.
            assert states == []
            breaker.enter()
            breaker.succeeded()
            assert states == [State.HALF_OPEN, State.CLOSED]
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
