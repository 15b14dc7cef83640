from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from support import POLICY, Service, eventually, new_token

import weir
from weir import errors
from weir._credentials import TokenFile
from weir.client import status_pb2
from weir.limits import Gcra, Limit
from weir.v1 import weir_pb2 as pb

TRADE = ["user", "alex", "trade"]
SLOT = ["exports", "alex"]


def test_an_invalid_request_names_its_field(client: Any) -> None:
    with pytest.raises(weir.InvalidRequest) as raised:
        client.check([])
    assert raised.value.field == "key"
    with pytest.raises(weir.InvalidRequest) as raised:
        client.check(
            TRADE, limits=[Limit(gcra=Gcra(burst=1, period=timedelta(days=1)))], on_failure=weir.OnFailure.ALLOW
        )
    assert raised.value.field == "limit_spec.limits[0].gcra.count"
    assert raised.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert str(raised.value).startswith("INVALID_ARGUMENT: ")
    with pytest.raises(weir.InvalidRequest):
        client.check(TRADE, max_wait=float("inf"))


def test_faults_of_the_configuration_raise_whatever_a_caller_prefers(client: Any) -> None:
    for on_failure in weir.OnFailure:
        with pytest.raises(weir.NotFound):
            client.check(TRADE, domain="unknown", on_failure=on_failure)
        with pytest.raises(weir.FailedPrecondition):
            client.check(SLOT, on_failure=on_failure)


def test_a_token_that_is_wrong_or_may_not(
    serve: Callable[..., Service], connect: Callable[..., Any], tmp_path: Path
) -> None:
    callers = tmp_path / "callers.yaml"
    token, entry = new_token()
    callers.write_text(entry)
    address = serve(WEIR_AUTH__FILE=str(callers)).address
    with pytest.raises(weir.Unauthenticated):
        connect(address).check(TRADE)
    with pytest.raises(weir.Unauthenticated):
        connect(address, token="guessed").check(TRADE)
    with pytest.raises(weir.Unauthenticated):
        connect(address, token="guessed").wait_ready(20)
    client = connect(address, token=token)
    assert client.check(TRADE)
    with pytest.raises(weir.PermissionDenied):
        client.reset(TRADE)


def test_a_token_file_may_be_rotated(
    serve: Callable[..., Service], connect: Callable[..., Any], tmp_path: Path
) -> None:
    callers, file = tmp_path / "callers.yaml", tmp_path / "token"
    (first, first_entry), (second, second_entry) = new_token(), new_token()
    callers.write_text(first_entry)
    file.write_text(first + "\n")
    service = serve(WEIR_AUTH__FILE=str(callers))
    client = connect(service.address, token_file=file)
    assert client.check(TRADE)

    callers.write_text(second_entry)
    eventually(lambda: denied(client))
    replacement = tmp_path / "token.new"
    replacement.write_text(second)
    replacement.rename(file)
    eventually(lambda: not denied(client))


def test_a_token_file_that_cannot_be_read_leaves_the_last_token_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    file = tmp_path / "token"
    file.write_text("first")
    token = TokenFile(file)
    file.write_text("second")
    assert token.metadata() == (("authorization", "Bearer first"),)
    now = 1.0
    assert token.metadata() == (("authorization", "Bearer second"),)
    hidden = tmp_path / "hidden"
    for times in (1, 2):
        file.rename(hidden)
        for _ in range(2):
            now += 1.0
            assert token.metadata() == (("authorization", "Bearer second"),)
        assert caplog.text.count("cannot be used, the last token stays in use") == times
        assert len(caplog.records) == times
        hidden.rename(file)
        now += 1.0
        assert token.metadata() == (("authorization", "Bearer second"),)
    assert "second" not in caplog.text
    file.unlink()
    with pytest.raises(FileNotFoundError):
        TokenFile(file)


@pytest.mark.parametrize("content", ["", " \n", "third\nfourth", "thírd", "thi\x00rd"])
def test_a_token_file_without_a_valid_token_leaves_the_last_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    file = tmp_path / "token"
    file.write_text(" first \r\n")
    token = TokenFile(file)
    assert token.metadata() == (("authorization", "Bearer first"),)
    file.write_text(content)
    for _ in range(2):
        now += 1.0
        assert token.metadata() == (("authorization", "Bearer first"),)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        f"the token file {file} cannot be used, the last token stays in use"
    ]
    assert "rd" not in caplog.text.replace(str(file), "")
    with pytest.raises(ValueError, match="printable ASCII"):
        TokenFile(file)


def test_a_token_that_cannot_be_sent_fails_when_the_client_is_made() -> None:
    for kind in (weir.Client, weir.AsyncClient):
        for token in ("a\nb", "tök", " "):
            with pytest.raises(ValueError, match="printable ASCII"):
                kind("127.0.0.1:1", token=token)


def test_an_outage_is_raised_or_decided(service: Service, connect: Callable[..., Any]) -> None:
    service.kill()
    client = connect(service.address, deadline=1.0, breaker=weir.Breaker(failures=100))
    with pytest.raises(weir.Unavailable):
        client.check(TRADE)
    allowed = client.check(TRADE, on_failure=weir.OnFailure.ALLOW)
    assert (allowed.allowed, allowed.source) == (True, weir.Source.FALLBACK)
    assert isinstance(allowed.error, weir.Unavailable)
    denied = connect(service.address, deadline=0.2, on_failure=weir.OnFailure.DENY).check(TRADE)
    assert (denied.allowed, denied.source) == (False, weir.Source.FALLBACK)


def test_every_status_has_its_kind() -> None:
    for kind in (weir.Overloaded, weir.Internal, weir.DeadlineExceeded, weir.PermissionDenied):
        assert type(errors.of_status(kind.code, "why")) is kind
    assert type(errors.of_status(grpc.StatusCode.UNIMPLEMENTED, "why")) is weir.WeirError
    assert type(errors.of_entry(pb.Error(code=3, message="why"))) is weir.InvalidRequest


def test_load_shedding_says_when_to_retry() -> None:
    retry = status_pb2.RetryInfo()
    retry.retry_delay.FromMilliseconds(250)
    status = status_pb2.Status(code=8)
    status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=retry.SerializeToString())
    metadata = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    error = grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), metadata, details="shed")
    shed = errors.of_rpc(error)
    assert isinstance(shed, weir.Overloaded)
    assert shed.retry_after
    assert shed.retry_after.total_seconds() == 0.25


def test_details_that_are_malformed_are_left_out() -> None:
    endless = status_pb2.RetryInfo()
    endless.retry_delay.seconds = 2**62
    status = status_pb2.Status(code=8)
    status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=endless.SerializeToString())
    for details in (b"\xff\xff", status.SerializeToString()):
        metadata = grpc.aio.Metadata(("grpc-status-details-bin", details))
        error = grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), metadata)
        shed = errors.of_rpc(error)
        assert (type(shed), shed.field, shed.retry_after) == (weir.Overloaded, None, None)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_reads_a_token_file_whose_lock_its_parent_holds(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    token = TokenFile(file)
    file.write_text("other")
    token._next_look = 0.0
    with token._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if token.metadata() == (("authorization", "Bearer other"),) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("deadline", [float("inf"), 1e10, timedelta.max])
@pytest.mark.parametrize("options", [{}, {"coalesce": True}, {"lease": True}])
def test_a_deadline_may_be_arbitrarily_long(
    serve: Callable[..., Service], connect: Callable[..., Any], deadline: Any, options: Any
) -> None:
    service = serve(policy=f"lease: true{POLICY}")
    client = connect(service.address, deadline=deadline, **options)
    assert client.wait_ready(deadline)
    for _ in range(20):
        assert client.check(["user", "alex"])
    assert client.check(["user", "alex"], deadline=deadline)
    with client.slot(SLOT, deadline=deadline) as slot:
        assert slot.decision


def denied(client: Any) -> bool:
    try:
        client.check(TRADE, cost=0)
    except weir.Unauthenticated:
        return True
    return False
