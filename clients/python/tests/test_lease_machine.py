"""The state machine of leases behaves as in the traces that all clients replay; and what calls it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import weir
from weir._credentials import Token
from weir._lease.holder import Grant, Refuse, Renewal, Terms
from weir._lease.machine import Answer, LeaseMachine
from weir._lease.requests import Flow, Outcome, Request, Requests
from weir._lease.threads import ThreadLeases
from weir.v1 import weir_pb2 as pb

TRACES = Path(__file__).parents[2] / "traces/holder.jsonl"

if not TRACES.exists():
    pytest.skip("the traces are in the repository", allow_module_level=True)


def check(machine: LeaseMachine, cost: int, at: int) -> dict[str, Any]:
    spent = machine.balance.spend(cost, at)
    if spent != "short":
        return {"do": "spend", "send": machine.low(at) if spent == "low" else None}
    what = machine.short(cost, at)
    if isinstance(what, Refuse):
        return {"do": "refuse", "retry_after": what.retry_after}
    return {"do": "ask", "send": what} if what else {"do": "check"}


def answer_of(told: dict[str, Any]) -> Answer:
    grant, terms = told.get("grant"), told.get("terms")
    return Answer(
        told["lease"],
        told["sequence"],
        told["refused"],
        Grant(**grant) if grant else None,
        Terms(**terms) if terms else None,
    )


def replay(machine: LeaseMachine, line: dict[str, Any]) -> dict[str, Any]:
    """Passes an event to the machine, and returns the outcome."""
    at = line["at"]
    if "check" in line:
        return check(machine, line["check"], at)
    if "tick" in line:
        return {"send": machine.tick(at)}
    if "close" in line:
        return {"send": machine.close(at)}
    if "answer" in line:
        return {"send": machine.answered(answer_of(line["answer"]), at)}
    if "lost" in line:
        machine.lost(line["lost"]["lease"], line["lost"]["sequence"], at)
    if "checked" in line:
        told = line["checked"]
        machine.checked(told["cost"], told["refused"], told["sent"], at)
    return {}


def test_a_refusal_says_when_the_service_would_allow_the_check() -> None:
    ms, day = 1_000, 86_400_000_000
    machine = LeaseMachine()
    for at in range(3):
        requested = machine.short(1, at)
    assert isinstance(requested, Renewal)
    terms = Terms(generation=1, ttl=250 * ms, hold_off=10 * ms, scarce=1)
    machine.answered(Answer(requested.lease, 1, is_refused=True, terms=terms, retry_after=day), 2 * ms)
    assert machine.short(1, 3 * ms) == Refuse(day - ms)
    # After the hold-off the service is asked again, as it would be without that time.
    now = 13 * ms
    asked = [machine.short(1, now) for _ in range(100)]
    renewal = next(what for what in asked if isinstance(what, Renewal))
    nothing = Grant(units=0, free=0, is_kept=True, is_recalled=False, refused_for=0)
    machine.answered(Answer(renewal.lease, renewal.sequence, grant=nothing, terms=terms), now + ms)
    assert machine.short(1, now + ms) == Refuse(day - 12 * ms)
    # Units have come back: that time is unknown again.
    renewal = next(what for _ in range(100) if isinstance(what := machine.short(1, now + 12 * ms), Renewal))
    some = Grant(units=1, free=0, is_kept=True, is_recalled=False, refused_for=0)
    machine.answered(Answer(renewal.lease, renewal.sequence, grant=some, terms=terms), now + 13 * ms)
    assert machine.balance.spend(1, now + 13 * ms) != "short"
    assert machine.short(1, now + 13 * ms) == Refuse(10 * ms)


def test_a_request_without_an_answer_is_given_up_while_units_are_held() -> None:
    ms = 1_000
    machine = LeaseMachine()
    terms = Terms(generation=1, ttl=250 * ms, hold_off=10 * ms, scarce=1)
    some = Grant(units=9, free=99, is_kept=True, is_recalled=False, refused_for=0)
    for now, grant in ((0, None), (ms, some)):
        asked = [machine.short(1, now) for _ in range(100)]
        renewal = next(what for what in asked if isinstance(what, Renewal))
        machine.answered(Answer(renewal.lease, renewal.sequence, grant=grant, terms=terms), now + ms)
    sent = 200 * ms
    assert machine.tick(sent)
    assert machine.balance.units
    assert not machine.is_idle(sent + 250 * ms - 1)
    assert not machine.tick(sent + 250 * ms - 1)
    assert not machine.is_idle(sent + 250 * ms)
    assert machine.tick(sent + 250 * ms)


def test_it_does_what_the_traces_say() -> None:
    machine, events = LeaseMachine(), 0
    for number, text in enumerate(TRACES.read_text().splitlines(), 1):
        line = json.loads(text)
        if "trace" in line:
            machine = LeaseMachine()
            continue
        done = {**replay(machine, line), "held": machine.balance.units}
        if isinstance(send := done.pop("send", None), Renewal):
            done["send"] = send._asdict()
        wanted = {name: line[name] for name in ("do", "retry_after", "send", "held") if name in line}
        assert done == wanted, f"line {number}: {text}"
        events += 1
    assert events > 1000


def test_a_tick_inspects_a_part_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    inspected: list[LeaseMachine] = []

    def is_idle(machine: LeaseMachine, now: int) -> bool:
        inspected.append(machine)
        return False

    no_channel: Any = SimpleNamespace(stream_stream=lambda *_, **__: None)
    leases = ThreadLeases(no_channel, Token(None), weir.Breaker())
    monkeypatch.setattr(leases, "_ticker", SimpleNamespace(start=lambda _: None))
    monkeypatch.setattr(LeaseMachine, "is_idle", is_idle)
    for number in range(100):
        leases.check("", ["api", str(number)], 1)
    for _ in range(5):
        seen = len(inspected)
        assert leases.tick()
        assert len(inspected) == seen + 20
    assert len(set(map(id, inspected))) == 100
    # A key that is due is inspected in each tick.
    inspected[0].balance.watch(0, -1)
    for _ in range(5):
        leases.tick()
    assert inspected[100:].count(inspected[0]) == 5


def test_no_stream_is_opened_once_its_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Flow] = []

    def open_stream(flow: Flow, wait_for_ready: bool) -> Any:
        opened.append(flow)
        if len(opened) == 1:
            raise RuntimeError("no thread can be started")
        return SimpleNamespace(write=lambda _: None, cancel=lambda: None)

    outcomes: list[Outcome] = []
    renewal = Renewal(lease=1, sequence=1, spent=0, kept=0, want=0, generation=0, cost=1)
    request = Request(renewal, pb.LeaseRequest(), 0.0, outcomes.append)
    token = Token(None)
    requests = Requests(open_stream, token)
    with pytest.raises(RuntimeError):
        requests.send(request)
    # The stream that could not be opened is not used.
    requests.send(request)
    assert len(opened) == 2

    def closed_meanwhile() -> Any:
        requests.close()
        return ()

    monkeypatch.setattr(token, "metadata", closed_meanwhile)
    requests.send(request)
    assert len(opened) == 2
    assert [type(outcome) for outcome in outcomes] == [weir.Unavailable]
