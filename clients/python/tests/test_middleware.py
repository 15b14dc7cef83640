from __future__ import annotations

import importlib.util
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from starlette.authentication import SimpleUser
from support import Service

import weir
from weir import asgi
from weir.client import status_pb2
from weir.grpc_aio import RateLimit

EXAMPLES = Path(__file__).parents[1] / "examples"
README = Path(__file__).parents[1] / "README.md"


def example(name: str, monkeypatch: pytest.MonkeyPatch, address: str) -> Any:
    """Loads an example, with a deadline that a busy machine does not miss."""
    monkeypatch.setenv("WEIR_ADDR", address)
    monkeypatch.setattr(weir, "AsyncClient", partial(weir.AsyncClient, deadline=3.0))
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["fastapi_app", "grpc_server"])
def test_the_readme_has_the_examples(name: str) -> None:
    code = (EXAMPLES / f"{name}.py").read_text().split("\n\n", 1)[1]
    assert code in README.read_text()
    assert len(code.splitlines()) <= 20


async def test_an_asgi_application_is_guarded(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("fastapi_app", monkeypatch, service.address)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(module.app), base_url="http://shop") as http:
        for left in (2, 1, 0):
            answer = await http.get("/trade", headers={"x-user": "alex"})
            assert answer.json() == {"traded": True}
            assert answer.headers["ratelimit"].startswith(f'"trades";r={left}')
        refused = await http.get("/trade", headers={"x-user": "alex"})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 80_000
        assert refused.json()["title"] == "Too Many Requests"
        assert (await http.get("/trade", headers={"x-user": "berta"})).status_code == 200
    await module.client.close()


async def test_an_asgi_application_without_a_decision(service: Service) -> None:
    service.kill()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"traded"})

    async with (
        weir.AsyncClient(service.address, deadline=0.5) as client,
        weir.AsyncClient(service.address, deadline=0.5, on_failure=weir.OnFailure.DENY) as denying,
    ):
        key = asgi.key_of("user", asgi.client_address, asgi.path_segment())
        app: Any = asgi.RateLimit(application, client, key, fail_closed={"login"})
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as http:
            assert (await http.get("/trade")).text == "traded"
            closed = await http.get("/login")
            assert (closed.status_code, closed.headers["retry-after"]) == (503, "1")
        app = asgi.RateLimit(application, denying, key)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as http:
            assert (await http.get("/trade")).status_code == 503


def test_keys_that_fail_closed_are_not_a_string() -> None:
    anything: Any = None
    for make in (partial(asgi.RateLimit, anything, anything, anything), partial(RateLimit, anything, anything)):
        with pytest.raises(TypeError, match="not a string"):
            make(fail_closed="login")


def test_keys_of_requests() -> None:
    scope: dict[str, Any] = {
        "type": "http",
        "path": "/trade/7",
        "headers": [(b"x-user", b"alex")],
        "user": SimpleUser("berta"),
        "client": ("192.0.2.1", 4711),
    }
    key = asgi.key_of("user", asgi.header("X-User"), asgi.principal(), asgi.client_address, asgi.path_segment(1))
    assert key(scope) == ["user", "alex", "berta", "192.0.2.1", "7"]
    assert asgi.key_of(asgi.header("none"), asgi.path_segment(5))(scope) == ["-", "-"]
    assert asgi.key_of("user", asgi.header("none", default=None))(scope) is None
    scope["user"] = Account(7, "the same for all")
    assert asgi.key_of(asgi.principal())(scope) == ["7"]
    scope["user"] = Account(None, "carla")
    assert asgi.key_of(asgi.principal())(scope) == ["carla"]
    scope["user"] = Named("dora")
    assert asgi.key_of(asgi.principal())(scope) == ["dora"]
    scope["user"] = Faulty("the same for all")
    with pytest.raises(AttributeError, match="email"):
        asgi.key_of(asgi.principal())(scope)
    del scope["user"], scope["client"]
    assert asgi.key_of(asgi.principal(), asgi.client_address)(scope) == ["-", "-"]


@dataclass
class Account:
    """A user with an identity; Starlette's SimpleUser has none."""

    identity: int | None
    display_name: str
    is_authenticated = True


@dataclass
class Named:
    """A user of an application's own, without an identity."""

    display_name: str
    is_authenticated = True


class Faulty(Named):
    """A user whose identity has a fault."""

    @property
    def identity(self) -> str:
        return str(self.email)  # type: ignore[attr-defined]


class Shop(grpc.GenericRpcHandler):
    """A method of each kind, which echoes bytes."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def one(request: bytes, context: Any) -> bytes:
            return request

        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            yield request
            yield request

        async def written(request: bytes, context: Any) -> None:
            await context.write(request)

        async def collected(requests: AsyncIterator[bytes], context: Any) -> bytes:
            return b"".join([request async for request in requests])

        async def echoed(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async for request in requests:
                yield request

        # gRPC runs handlers that are not asynchronous in its threads.
        def one_in_thread(request: bytes, context: Any) -> bytes:
            assert threading.current_thread() is not threading.main_thread()
            context.set_trailing_metadata((("seen", dict(context.invocation_metadata())["x-user"]),))
            return request

        def stream_in_thread(request: bytes, context: Any) -> Iterator[bytes]:
            assert threading.current_thread() is not threading.main_thread()
            context.send_initial_metadata(())
            yield from (request, request)

        def collected_in_thread(requests: Iterator[bytes], context: Any) -> bytes:
            return b"".join(requests)

        def echoed_in_thread(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            return iter(list(requests))

        return {
            "BuyInThread": grpc.unary_unary_rpc_method_handler(one_in_thread),
            "ListInThread": grpc.unary_stream_rpc_method_handler(stream_in_thread),
            "CollectInThread": grpc.stream_unary_rpc_method_handler(collected_in_thread),
            "EchoInThread": grpc.stream_stream_rpc_method_handler(echoed_in_thread),
            "Buy": grpc.unary_unary_rpc_method_handler(one),
            "Login": grpc.unary_unary_rpc_method_handler(one),
            "List": grpc.unary_stream_rpc_method_handler(stream),
            "Write": grpc.unary_stream_rpc_method_handler(written),
            "Collect": grpc.stream_unary_rpc_method_handler(collected),
            "Echo": grpc.stream_stream_rpc_method_handler(echoed),
        }.get(str(handler_call_details.method).rpartition("/")[2])


async def ask(channel: Any, method: str, user: str) -> list[bytes]:
    path, metadata = f"/shop.Shop/{method}", (("x-user", user),)

    async def requests() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    if method.startswith("Collect"):
        return [await channel.stream_unary(path)(requests(), metadata=metadata)]
    if method.startswith("Echo"):
        return [answer async for answer in channel.stream_stream(path)(requests(), metadata=metadata)]
    if method.startswith(("List", "Write")):
        return [answer async for answer in channel.unary_stream(path)(b"a", metadata=metadata)]
    return [await channel.unary_unary(path)(b"a", metadata=metadata)]


GRPC_POLICY = """
schema:
  user:
    children:
      "*":
        children:
          "*": { limits: [{ gcra: { burst: 0, count: 1, period: 1d }, name: calls }] }
"""


async def test_a_grpc_server_is_guarded(serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    service = serve(policy=GRPC_POLICY)
    module = example("grpc_server", monkeypatch, service.address)
    address = f"unix:{tmp_path}/shop.sock"
    server = await module.serve(Shop(), address)
    async with grpc.aio.insecure_channel(address) as channel:
        for method, answers in (
            ("Buy", [b"a"]),
            ("List", [b"a", b"a"]),
            ("Write", [b"a"]),
            ("Collect", [b"ab"]),
            ("Echo", [b"a", b"b"]),
            ("BuyInThread", [b"a"]),
            ("ListInThread", [b"a", b"a"]),
            ("CollectInThread", [b"ab"]),
            ("EchoInThread", [b"a", b"b"]),
        ):
            assert await ask(channel, method, "alex") == answers
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await ask(channel, method, "alex")
            refused = raised.value
            assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            trailing = dict(refused.trailing_metadata() or ())
            assert int(trailing["retry-after"]) > 80_000
            assert str(trailing["ratelimit"]).startswith('"calls";r=0')
            status = status_pb2.Status.FromString(bytes(trailing["grpc-status-details-bin"]))
            retry = status_pb2.RetryInfo.FromString(status.details[0].value)
            assert retry.retry_delay.seconds == int(trailing["retry-after"])
        with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
            await ask(channel, "Unknown", "alex")

        service.kill()
        assert await ask(channel, "Buy", "berta") == [b"a"]
        with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
            await ask(channel, "Login", "berta")
    await server.stop(None)
