"""Calls per second and latency, against its own service: unary, coalesced and leased; threads and asyncio.

The latency of a leased check is the time that it adds to the caller.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import weir

sys.path.insert(0, str(Path(__file__).parent / "tests"))
from support import Service

POLICY = """
lease: true
schema: { user: { children: { "*": { limits: [{ gcra: { burst: 1000000, count: 1000000, period: 1s } }] } } } }
"""
SECONDS = float(os.environ.get("BENCH_SECONDS", "5"))
ROUNDS = 3
MODES: dict[str, dict[str, bool]] = {"unary": {}, "coalesced": {"coalesce": True}, "leased": {"lease": True}}
# The event loop runs other tasks after this many checks, since leased checks do not wait for any I/O.
CHECKS_AT_ONCE = 100
KEY = ["user", "alex"]


def threads(client: weir.Client, concurrency: int) -> list[float]:
    """Returns the latencies of checks from threads."""
    end = time.perf_counter() + SECONDS

    def work() -> list[float]:
        latencies = []
        while (started := time.perf_counter()) < end:
            client.check(KEY)
            latencies.append(time.perf_counter() - started)
        return latencies

    with ThreadPoolExecutor(concurrency) as pool:
        workers = [pool.submit(work) for _ in range(concurrency)]
        return [latency for worker in workers for latency in worker.result()]


async def tasks(client: weir.AsyncClient, concurrency: int) -> list[float]:
    """Returns the latencies of checks from tasks."""
    end = time.perf_counter() + SECONDS

    async def work() -> list[float]:
        latencies = []
        while (started := time.perf_counter()) < end:
            await client.check(KEY)
            latencies.append(time.perf_counter() - started)
            if len(latencies) % CHECKS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return latencies

    workers = await asyncio.gather(*(work() for _ in range(concurrency)))
    return [latency for worker in workers for latency in worker]


def report(name: str, concurrency: int, latencies: list[float]) -> None:
    """Prints one line of the table."""
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * part)] * 1e6 for part in (0.5, 0.99))
    print(f"| {name} | {concurrency} | {len(latencies) / SECONDS:,.0f} | {p50:,.1f} | {p99:,.1f} |")


async def measure_tasks(address: str, concurrency: int, mode: dict[str, bool]) -> list[float]:
    """Returns the latencies of checks from tasks, with their own client."""
    async with weir.AsyncClient(address, deadline=10, **mode) as client:
        await client.wait_ready(10)
        return await tasks(client, concurrency)


def main() -> None:
    """Prints the table: the modes take turns for several rounds, since the speed of a machine varies."""
    with tempfile.TemporaryDirectory() as directory:
        service = Service(Path(directory), POLICY)
        print("| | at a time | checks/s | p50 us | p99 us |\n|---|---|---|---|---|")
        for _ in range(ROUNDS):
            for name, mode in MODES.items():
                for concurrency in (1, 16):
                    with weir.Client(service.address, deadline=10, **mode) as client:
                        client.wait_ready(10)
                        report(f"threads, {name}", concurrency, threads(client, concurrency))
                for concurrency in (1, 64):
                    report(
                        f"asyncio, {name}", concurrency, asyncio.run(measure_tasks(service.address, concurrency, mode))
                    )
        service.stop()


if __name__ == "__main__":
    main()
