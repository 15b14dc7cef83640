from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import DEADLINE_SECONDS, Blocking, Service, eventually

import weir


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services."""
    services: list[Service] = []

    def start(**options: str) -> Service:
        services.append(Service(tmp_path / f"service-{len(services)}", **options))
        return services[-1]

    yield start
    for service in services:
        service.kill()


@pytest.fixture
def service(serve: Callable[..., Service]) -> Service:
    """A service with the policy of these tests."""
    return serve()


@pytest.fixture(params=["threads", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes clients: those for threads, and those for asyncio with blocking methods."""
    clients: list[Any] = []

    def connect(target: Any, **options: Any) -> Any:
        options.setdefault("deadline", DEADLINE_SECONDS)
        kind: Any = weir.Client if request.param == "threads" else Blocking
        clients.append(kind(target, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def client(service: Service, connect: Callable[..., Any]) -> Any:
    """A client of the service."""
    return connect(service.address)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    """A Redis that services share."""
    assert shutil.which("redis-server"), "the tests need redis-server"
    path = tmp_path / "redis.sock"
    process = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )

    def answers() -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(path)) == 0

    eventually(answers)
    yield f"redis+unix://{path}"
    process.kill()
    process.wait()
