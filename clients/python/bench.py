"""Calls per second and latency against a service of its own: unary, coalesced and leased; threads and asyncio.

The latency of a leased check is what it adds to the caller.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import weir

sys.path.insert(0, str(Path(__file__).parent / "tests"))
from support import Service

POLICY = """
lease: true
schema: { user: { children: { "*": { limits: [{ gcra: { burst: 1000000, count: 1000000, period: 1s } }] } } } }
"""
CHECKS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
ROUNDS = 3
MODES: dict[str, dict[str, bool]] = {"unary": {}, "coalesced": {"coalesce": True}, "leased": {"lease": True}}
# The event loop reads answers between so many checks: leased ones do not wait for any.
CHECKS_AT_ONCE = 100
KEY = ["user", "alex"]


def threads(client: weir.Client, concurrency: int) -> list[float]:
    """The latencies of checks on threads."""

    def work() -> list[float]:
        return [timed(lambda: client.check(KEY)) for _ in range(CHECKS // concurrency)]

    with ThreadPoolExecutor(concurrency) as pool:
        workers = [pool.submit(work) for _ in range(concurrency)]
        return [latency for worker in workers for latency in worker.result()]


async def tasks(client: weir.AsyncClient, concurrency: int) -> list[float]:
    """The latencies of checks of tasks."""

    async def work() -> list[float]:
        latencies = []
        for number in range(CHECKS // concurrency):
            began = time.perf_counter()
            await client.check(KEY)
            latencies.append(time.perf_counter() - began)
            if number % CHECKS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return latencies

    workers = await asyncio.gather(*(work() for _ in range(concurrency)))
    return [latency for worker in workers for latency in worker]


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def report(name: str, concurrency: int, seconds: float, latencies: list[float]) -> None:
    """One line of the table."""
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * part)] * 1e6 for part in (0.5, 0.99))
    print(f"| {name} | {concurrency} | {len(latencies) / seconds:,.0f} | {p50:,.1f} | {p99:,.1f} |")


async def measure_tasks(address: str, concurrency: int, mode: dict[str, bool]) -> tuple[float, list[float]]:
    """Seconds in all, and of each check."""
    async with weir.AsyncClient(address, deadline=10, retries=0, **mode) as client:
        await client.wait_ready(10)
        began = time.perf_counter()
        latencies = await tasks(client, concurrency)
        return time.perf_counter() - began, latencies


def main() -> None:
    """Prints the table: several rounds in turns, since a machine is never the same twice."""
    with tempfile.TemporaryDirectory() as directory:
        service = Service(Path(directory), POLICY)
        print("| | at a time | checks/s | p50 us | p99 us |\n|---|---|---|---|---|")
        for _ in range(ROUNDS):
            for name, mode in MODES.items():
                for concurrency in (1, 16):
                    with weir.Client(service.address, deadline=10, retries=0, **mode) as client:
                        client.wait_ready(10)
                        began = time.perf_counter()
                        latencies = threads(client, concurrency)
                        report(f"threads, {name}", concurrency, time.perf_counter() - began, latencies)
                for concurrency in (1, 64):
                    seconds, latencies = asyncio.run(measure_tasks(service.address, concurrency, mode))
                    report(f"asyncio, {name}", concurrency, seconds, latencies)
        service.stop()


if __name__ == "__main__":
    main()
