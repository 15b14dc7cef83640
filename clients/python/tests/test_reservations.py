from __future__ import annotations

import time
from datetime import timedelta
from signal import Signals
from types import SimpleNamespace
from typing import Any

import pytest
from support import Service, eventually

import weir
from weir._slot import Slot

USER = ["user", "alex"]
TTL = timedelta(minutes=5)
EXPORTS = ["exports", "alex"]


def charged(client: Any) -> int:
    decision: weir.Decision = client.check(USER, cost=0)
    return decision.limit - decision.remaining


def test_a_reservation_is_settled_by_its_real_cost(client: Any) -> None:
    reservation = client.reserve(USER, 10, ttl=TTL)
    assert reservation.decision
    assert timedelta(minutes=4) < reservation.expires_after <= TTL
    assert charged(client) == 10
    assert reservation.extend(timedelta(hours=1)) > timedelta(minutes=50)
    assert reservation.commit(4) == weir.Settlement(charged=4, refunded=6)
    assert charged(client) == 4
    # The first settlement counts.
    assert reservation.cancel().charged == 4


def test_cancel_gives_everything_back_and_more_than_reserved_is_an_overage(client: Any) -> None:
    assert client.reserve(USER, 10, ttl=TTL).cancel() == weir.Settlement(refunded=10)
    assert client.reserve(USER, 10, ttl=TTL).commit(15) == weir.Settlement(charged=15, overage=5)
    assert charged(client) == 15


def test_the_end_of_its_block_settles_it(client: Any) -> None:
    with client.reserve(USER, 3, ttl=TTL):
        pass
    assert charged(client) == 3
    with client.reserve(USER, 5, ttl=TTL) as reservation:
        reservation.commit(1)
    assert charged(client) == 4
    with pytest.raises(ZeroDivisionError), client.reserve(USER, 7, ttl=TTL):
        raise ZeroDivisionError
    assert charged(client) == 4


def test_what_was_used_is_not_given_back_where_its_commit_fails(serve: Any, connect: Any, redis: str) -> None:
    service = serve(WEIR_STORE__URL=redis)
    client = connect(service.address, breaker=weir.Breaker(failures=0))

    def commit_during_an_outage(reservation: Any) -> None:
        service.kill()
        try:
            reservation.commit(4, deadline=0.2)
        finally:
            service.start()
            assert connect(service.address).wait_ready(20)

    with pytest.raises(weir.Outage), client.reserve(USER, 10, ttl=TTL) as reservation:
        commit_during_an_outage(reservation)
    assert charged(client) == 10
    assert reservation.commit(4) == weir.Settlement(charged=4, refunded=6)
    # The caller may still cancel.
    with pytest.raises(weir.Outage), client.reserve(USER, 10, ttl=TTL) as reservation:
        commit_during_an_outage(reservation)
    assert reservation.cancel() == weir.Settlement(refunded=10)
    assert charged(client) == 4


def test_a_refused_reservation_holds_nothing(client: Any) -> None:
    with client.reserve(["user", "alex", "trade"], 4, ttl=TTL) as refused:
        assert not refused.decision
        assert not refused.is_held
        with pytest.raises(RuntimeError, match="refused"):
            refused.commit()
    assert charged(client) == 0


def test_one_that_is_too_late_is_not_found(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    reservation = client.reserve(USER, 3, ttl=timedelta(milliseconds=10), on_expiry=weir.OnExpiry.RELEASE)
    eventually(lambda: charged(client) == 0)
    with pytest.raises(weir.NotFound):
        reservation.commit()
    # At the end of a block a failed settlement is logged, and does not fail the work.
    with client.reserve(USER, 3, ttl=timedelta(milliseconds=10), on_expiry=weir.OnExpiry.RELEASE):
        eventually(lambda: charged(client) == 0)
    assert "not settled" in caplog.text


def test_without_the_service_a_fallback_holds_nothing(service: Service, connect: Any) -> None:
    client = connect(service.address, deadline=0.5, on_failure=weir.OnFailure.ALLOW)
    service.kill()
    with client.reserve(USER, 3, ttl=TTL) as reservation:
        assert reservation.decision.source is weir.Source.FALLBACK
        assert reservation.commit(2).degraded


def test_a_slot_is_given_back(client: Any) -> None:
    for _ in range(2):
        with client.slot(EXPORTS) as slot:
            assert slot.decision
            with client.slot(EXPORTS) as second:
                assert not second.decision
                assert not second.lost
            assert not slot.lost
    with pytest.raises(ZeroDivisionError), client.slot(EXPORTS):
        raise ZeroDivisionError
    assert client.check(EXPORTS, cost=0).remaining == 1


def test_a_slot_is_extended_while_work_runs(client: Any) -> None:
    exports = client.slot(EXPORTS, ttl=timedelta(seconds=3))
    # A slot may be entered again.
    for _ in range(2):
        with exports as slot:
            ends_at = time.monotonic() + 4
            while time.monotonic() < ends_at:
                assert not slot.lost
                assert client.check(EXPORTS, cost=0).remaining == 0
        assert client.check(EXPORTS, cost=0).remaining == 1


def test_the_first_extension_of_a_slot_counts_from_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    reservation: Any = SimpleNamespace(expires_after=timedelta(seconds=3), is_held=True)
    slot = Slot(lambda: reservation, None)
    slot._reservation = reservation
    for now, pause in ((10.0, 1.0), (10.75, 0.25), (12.0, 0.0)):
        monkeypatch.setattr("time.monotonic", lambda now=now: now)
        assert slot._held_from(sent_at=10.0) == (pause, 0.5)
        assert not slot.lost


def test_a_slot_outlives_an_extension_that_hangs(service: Service, client: Any) -> None:
    ttl = 4.0
    with client.slot(EXPORTS, ttl=ttl) as slot:
        service.signal(Signals.SIGSTOP)
        # Later than the first attempt, and within the second.
        time.sleep(0.625 * ttl)
        service.signal(Signals.SIGCONT)
        time.sleep(0.5 * ttl)
        assert not slot.lost
        assert client.check(EXPORTS, cost=0).remaining == 0


def test_a_slot_that_is_lost_is_noticed(service: Service, client: Any) -> None:
    with client.slot(EXPORTS, ttl=timedelta(seconds=1)) as slot:
        service.signal(Signals.SIGSTOP)
        eventually(lambda: slot.lost)
        service.signal(Signals.SIGCONT)


def test_a_slot_that_the_service_forgot_is_lost(service: Service, client: Any) -> None:
    with client.slot(EXPORTS, ttl=timedelta(seconds=3)) as slot:
        service.kill()
        service.start()
        eventually(lambda: bool(slot.lost))
