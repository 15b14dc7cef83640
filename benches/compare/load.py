"""The loads, and a server's figures under one: checks a second, and CPU time for each."""

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

CONNECTIONS = 8
STREAMS = 100


@dataclass
class Sample:
    """One measurement. Figures that were not measured are None."""

    per_second: float  # checks
    cpu_us: float = None  # of the server, for each check
    store_us: float = None  # of Redis, for each check
    elsewhere: float = 0.0  # the share of the machine that neither server nor load used
    idle: float = 0.0  # the idle share
    more: dict = field(default_factory=dict)


@dataclass
class Done:
    """The report of a load."""

    checks: float
    per_second: float
    cpu_seconds: float
    more: dict = field(default_factory=dict)


class LoadFailed(Exception):
    """A load did not run, or was answered with errors."""


def run(command, **options):
    """Runs a program to its end: its output, and the CPU time that it took."""
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    # The output is short, so a pipe holds it until the program ends; wait4 returns the CPU time,
    # which communicate does not.
    output = process.stdout.read()
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    if process.returncode:
        raise LoadFailed(f"{Path(command[0]).name}: {errors.strip() or output.strip()}")
    return output, usage.ru_utime + usage.ru_stime


def h2load(directory, server, ask, seconds, streams=STREAMS, per_second=None, connections=CONNECTIONS):
    """One body again and again; with `per_second` (calls) at that pace, and with the quantiles of latency."""
    body = Path(directory) / "body"
    body.write_bytes(ask.body)
    command = ["h2load", "--threads", 1, "--clients", connections, "--max-concurrent-streams", streams]
    command += [
        "--duration",
        seconds,
        "--data",
        body,
        "--header",
        "content-type: application/grpc",
        "--header",
        "te: trailers",
    ]
    log = Path(directory) / "latencies"
    if per_second:
        command += ["--rps", max(1, round(per_second / connections)), "--log-file", log]
    output, used = run([*command, f"http://{server.address}{ask.path}"])
    rate = re.search(r"finished in [^,]+, ([0-9.]+) req/s", output)
    counts = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored", output)
    if not rate or not counts or counts[1] != counts[2] or int(counts[1]) == 0:
        raise LoadFailed(f"h2load against {server.name}: {output.strip()}")
    more = {}
    if per_second:
        with open(log) as lines:
            latencies = sorted(int(line.split()[2]) for line in lines)
        log.unlink()
        more = {f"p{name}_us": latencies[int((len(latencies) - 1) * share)] for name, share in QUANTILES.items()}
    return Done(int(counts[1]) * ask.checks, float(rate[1]) * ask.checks, used, more)


QUANTILES = {"50": 0.5, "99": 0.99, "99.9": 0.999}


def spread(programs, server, service, keys, seconds):
    """The example of that name: the same client for Weir and throttlecrab-server. 0 seconds: each key once."""
    command = [programs.release / "examples/spread", "--service", service, "--addr", server.address]
    output, used = run([*command, "--keys", keys, "--seconds", seconds])
    told = dict(pair.split("=") for pair in output.split())
    return Done(float(told["checks"]), float(told["per_second"]), used)


def redis_benchmark(server, arguments, calls, pipeline):
    """Commands of redis-benchmark's making, each for one check."""
    path = server.address.removeprefix("unix:")
    command = ["redis-benchmark", "-s", path, "-n", calls, "-P", pipeline, "-c", 50, "-r", 100_000, "--csv", *arguments]
    before = time.perf_counter()
    _, used = run(command)
    return Done(calls, calls / (time.perf_counter() - before), used)


def machine_seconds():
    """The CPU time that was used on this machine, by all processes."""
    numbers = [int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = numbers[3], numbers[4]
    return (sum(numbers) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def measure(server, load):
    """The server's figures while `load` runs. Weir's metrics verify every answer."""
    servers = [server, *server.beside]
    counted = server.outcomes() if server.pages else None
    before = [it.cpu_seconds() for it in servers]
    machine, clock = machine_seconds(), time.perf_counter()
    done = load()
    machine, clock = machine_seconds() - machine, time.perf_counter() - clock
    used = [it.cpu_seconds() - then for it, then in zip(servers, before)]
    if counted:
        counted = {name: count - counted[name] for name, count in server.outcomes().items()}
    available = clock * os.cpu_count()
    elsewhere, idle = max(0.0, machine - sum(used) - done.cpu_seconds) / available, max(
        0.0, 1 - machine / available
    )
    each = [seconds * 1e6 / done.checks for seconds in used]
    sample = Sample(done.per_second, each[0], each[1] if len(each) > 1 else None, elsewhere, idle, done.more)
    sample.more["outcomes"] = counted
    return sample


def expect(sample, allowed=True):
    """Raises LoadFailed where Weir counted other answers than are measured; with None both are."""
    counted = sample.more.pop("outcomes")
    expected = ("allowed", "limited") if allowed is None else ("allowed",) if allowed else ("limited",)
    wrong = counted and {name: count for name, count in counted.items() if count and name not in expected}
    if wrong:
        raise LoadFailed(f"Weir answered {wrong}")
    return sample


def bench(
    programs,
    server,
    key,
    call="unary",
    keys=1,
    per_second=None,
    seconds=5,
    summary_only=False,
    threads=2,
    may_refuse=False,
    more=(),
):
    """`weir-bench`, which reads every answer; with `per_second` (checks) as an open loop, and with `more` arguments."""
    command = [
        programs.release / "weir-bench",
        "--addr",
        server.address,
        "--call",
        call,
        "--key",
        key,
        "--keys",
        keys,
    ]
    command += ["--connections", CONNECTIONS, "--streams", 1 if call == "stream" else STREAMS, "--threads", threads]
    command += ["--duration", f"{seconds}s", "--warmup", "0s", "--format", "json"]
    command += ["--rate", round(per_second)] if per_second else []
    command += ["--summary-only"] if summary_only else []
    command += more
    output, used = run(command)
    told = json.loads(output)
    if told["errors"]["total"] or told["degraded"] or (told["refused"] and not may_refuse):
        raise LoadFailed(f"weir-bench against {server.name}: {output.strip()}")
    more = {f"p{name}_us": told["latency_us"][f"p{name}"] for name in QUANTILES}
    more |= {"allowed": told["allowed"], "elapsed_s": told["elapsed_s"]}
    return Done(told["checks"], told["checks_per_s"], used, more)
