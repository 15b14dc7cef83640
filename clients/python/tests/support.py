"""Building blocks of the tests: services, and clients of both kinds."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

import weir

# Longer than any wait of a healthy machine, however busy: it ends tests that hang.
PATIENCE_SECONDS = 60.0
# A deadline that a busy machine does not miss, for tests about something else.
DEADLINE_SECONDS = 20.0

POLICY = """
schema:
  user:
    children:
      "*":
        limits: [{ gcra: { burst: 99999, count: 1, period: 1h }, name: per-user }]
        children:
          trade: { limits: [{ gcra: { burst: 2, count: 1, period: 1d }, name: trades }] }
  exports: { children: { "*": { limits: [{ concurrency: { max: 1, ttl: 1m }, name: exports-at-once }] } } }
"""


def binary() -> str:
    """Returns the path of the service under test."""
    default = Path(__file__).parents[3] / "target/debug/weir"
    return os.environ.get("WEIR_BINARY") or os.environ.get("WEIR") or str(default)


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for a condition that has no event."""
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < ends_at, "not in time"
        time.sleep(0.01)


def new_token() -> tuple[str, str]:
    """Returns a token of the client `shop`, and a credentials file in which it is the only one."""
    printed = subprocess.run([binary(), "token", "shop", "--json"], check=True, capture_output=True, text=True).stdout
    made = json.loads(printed)
    return made["token"], f"callers: {{ shop: {{ roles: [check], tokens: [{{ sha256: {made['sha256']} }}] }} }}"


class Service:
    """A Weir in its own directory. After a restart it has the same address."""

    def __init__(self, directory: Path, policy: str = POLICY, **settings: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.limits = directory / "limits.yaml"
        self.limits.write_text(policy)
        self.address = "127.0.0.1:0"
        self.settings = {"WEIR_SHUTDOWN__DELAY": "1ms", "WEIR_LIMITS_POLL": "50ms", **settings}
        self.start()

    def start(self) -> None:
        """Starts the service, and returns when it serves."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WEIR")},
            "WEIR_GRPC__LISTEN": self.address,
            "WEIR_HTTP__LISTEN": "127.0.0.1:0",
            "WEIR_LOG__FORMAT": "json",
            **self.settings,
        }
        command = [binary(), "serve", "--limits", str(self.limits)]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        serving: list[str] = []
        served = threading.Event()

        def read() -> None:
            for line in self.process.stderr or ():
                self.log.append(line)
                with suppress(ValueError):
                    told = json.loads(line)
                    if told.get("message") == "serving" or told.get("fields", {}).get("message") == "serving":
                        serving.append(told.get("grpc") or told["fields"]["grpc"])
                        served.set()
            served.set()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        assert served.wait(PATIENCE_SECONDS)
        assert serving, "".join(self.log)
        self.address = serving[0]

    def signal(self, number: Signals) -> None:
        """Sends a signal. After SIGSTOP, waits until the process has stopped."""
        self.process.send_signal(number)
        if number == Signals.SIGSTOP:
            threads = Path(f"/proc/{self.process.pid}/task")
            eventually(lambda: all(" T " in (thread / "stat").read_text() for thread in threads.iterdir()))

    def kill(self) -> None:
        """Kills the service (SIGKILL)."""
        self._end(Signals.SIGKILL)

    def stop(self) -> None:
        """Stops the service gracefully (SIGTERM)."""
        self._end(Signals.SIGTERM)
        assert self.process.returncode == 0, "".join(self.log)

    def _end(self, number: Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.send_signal(Signals.SIGCONT)
        self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        if self.process.stderr:
            self.process.stderr.close()


class Blocking:
    """An AsyncClient on its own event loop, with the blocking methods of a Client, so that each test runs with both."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = weir.AsyncClient(*arguments, **options)

    def run(self, awaitable: Any) -> Any:
        async def wait() -> Any:
            return wrapped(await awaitable, self)

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(PATIENCE_SECONDS)

    def close(self) -> None:
        if self._thread.is_alive():
            self.run(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_SECONDS)
            self._loop.close()

    def __getattr__(self, name: str) -> Any:
        return BlockingObject.member(getattr(self._client, name), self)


class BlockingObject:
    """An object that an AsyncClient returns, with blocking methods."""

    def __init__(self, inner: Any, loop: Blocking) -> None:
        self._inner = inner
        self._loop = loop

    def __enter__(self) -> Any:
        return self._loop.run(self._inner.__aenter__())

    def __exit__(self, *error: object) -> Any:
        return self._loop.run(self._inner.__aexit__(*error))

    def __getattr__(self, name: str) -> Any:
        return self.member(getattr(self._inner, name), self._loop)

    @staticmethod
    def member(member: Any, loop: Blocking) -> Any:
        if not callable(member) or isinstance(member, type):
            return member

        def call(*arguments: Any, **options: Any) -> Any:
            given = member(*arguments, **options)
            return loop.run(given) if inspect.isawaitable(given) else wrapped(given, loop)

        return call


def wrapped(given: Any, loop: Blocking) -> Any:
    """Wraps an object that has coroutines."""
    return BlockingObject(given, loop) if hasattr(given, "__aexit__") else given
