#!/usr/bin/env python3
"""Three Envoys that decide by quotas, two replicas of Weir and a Redis, behind an open-loop load
that moves. The admitted requests are compared with the limit over every stretch of time. Then the
same with quota.yaml's own behaviours, while Weir is unavailable for longer than assignments last.

usage: quota.py WEIR ENVOY [--rate N] [--turn SECONDS]
"""

import argparse
import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "quota.yaml"
CONNECTIONS = 24
# Of one and a fifth of the limit.
DEMANDS = (0.9, 0.05, 0.05)
LEAST_USED = 0.95
CONVERGED_IN = 11.0
# The same after a replica was killed or stopped: its assignments are used up first (docs/rlqs.md).
KILLED_IN, STOPPED_IN = 30.0, 25.0
# Requests a second of each Envoy by the fallback of quota.yaml, and how many its token bucket stores.
FALLBACK = 10
# When the last assignment has certainly expired after Weir was killed: it is renewed every 5 s for 15 s.
EXPIRED_IN = 16.0
# How long a program may take until it listens.
LISTENS_IN = 60.0
# An answer that takes longer is slow, and at most this part of all answers may be: a slow machine
# is not an outage.
SLOW, SLOW_AT_MOST = 5.0, 0.01
# Stored tokens of three Envoys that join one after the other, in seconds of the limit; and the lag of a busy machine.
STORED, LAG = 0.1 * (1 + 1 / 2 + 1 / 3), 0.5


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Process:
    """A program that may be killed, paused and started again."""

    def __init__(self, log, args, env=None):
        self.log, self.args, self.env, self.child = log, args, env, None
        self.start()

    def start(self):
        self.child = subprocess.Popen(self.args, env=self.env, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def end(self, how=signal.SIGKILL):
        self.child.send_signal(how)
        self.child.wait()


async def listening(name, process, port):
    """Waits until a program accepts connections."""
    deadline = time.monotonic() + LISTENS_IN
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        if process.child.poll() is not None or time.monotonic() > deadline:
            raise NotListening(f"{name} does not listen: it {'runs' if process.child.poll() is None else 'has ended'}")
        await asyncio.sleep(0.05)


class NotListening(Exception):
    pass


class Envoy:
    """A proxy, its load, and the results of each second. `failed`: the start and end of each failed request."""

    def __init__(self, process, port, user):
        self.process, self.port, self.user = process, port, user
        self.demand = 0.0
        self.admitted, self.denied, self.slow, self.failed = [], 0, 0, []
        self.idle = []

    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        return reader, writer

    async def ask(self, reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: shop\r\nx-user: " + self.user + b"\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        if length:
            await reader.readexactly(length)
        return head

    async def one(self):
        started = time.monotonic()
        pair = self.idle.pop() if self.idle else None
        try:
            if pair is None:
                pair = await self.connect()
            head = await asyncio.wait_for(self.ask(*pair), SLOW)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
            if isinstance(error, asyncio.TimeoutError):
                self.slow += 1
            else:
                self.failed.append((started, time.monotonic()))
            if pair is not None:
                pair[1].close()
            return
        if head.startswith(b"HTTP/1.1 200"):
            self.admitted.append(time.monotonic())
        else:
            self.denied += 1
        if len(self.idle) < CONNECTIONS:
            self.idle.append(pair)
        else:
            pair[1].close()

    async def load(self):
        due, running = time.monotonic(), set()
        while True:
            now = time.monotonic()
            if self.demand == 0:
                due = now
            while due <= now and self.demand > 0:
                task = asyncio.create_task(self.one())
                running.add(task)
                task.add_done_callback(running.discard)
                due += 1 / self.demand
            await asyncio.sleep(0.005)


class Drill:
    def __init__(self, arguments, folder, is_strict):
        self.rate, self.turn, self.is_strict = arguments.rate, arguments.turn, is_strict
        self.programs = arguments.weir, arguments.envoy
        self.problems = []
        self.folder, self.log = folder, open(folder / "log", "wb")
        self.redis_port, self.grpc = free_port(), [free_port(), free_port()]
        self.redis = Process(self.log, ["redis-server", "--port", str(self.redis_port), "--save", "", "--dir", str(folder)])
        self.replicas, self.envoys = [], []

    async def start(self):
        """Starts each program when those that it needs listen: a replica that does not find Redis decides without it at first."""
        await listening("Redis", self.redis, self.redis_port)
        weir, proxy = self.programs
        policy = self.folder / "limits.yaml"
        limit = f"{{ token_bucket: {{ capacity: {self.rate}, count: {self.rate}, period: 1s }} }}"
        policy.write_text(f"domain: quota\nschema: {{ user: {{ children: {{ '*': {{ limits: [{limit}] }} }} }} }}\n")
        for port in self.grpc:
            env = {
                "WEIR_GRPC__LISTEN": f"127.0.0.1:{port}",
                "WEIR_HTTP__LISTEN": "127.0.0.1:0",
                "WEIR_RLQS__DOMAINS": "quota=user",
                "WEIR_STORE__URL": f"redis://127.0.0.1:{self.redis_port}",
                "WEIR_SHUTDOWN__DELAY": "0s",
            }
            self.replicas.append(Process(self.log, [weir, "serve", "--limits", str(policy)], env))
        for port, replica in zip(self.grpc, self.replicas):
            await listening("a replica", replica, port)
        for number in range(3):
            self.envoys.append(self.envoy(proxy, number))
        for envoy in self.envoys:
            await listening("an Envoy", envoy.process, envoy.port)

    def envoy(self, program, number):
        port = free_port()
        text = EXAMPLE.read_text().replace("port_value: 10000", f"port_value: {port}")
        text = text.replace("port_value: 9901", f"port_value: {free_port()}")
        if self.is_strict:
            # Requests that pass without an assignment are not measured.
            behaviors = text[text.index("no_assignment_behavior:"):text.index("                  - name: envoy.filters.http.router")]
            text = text.replace(behaviors, "no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }\n")
        # Both replicas, this Envoy's first one first.
        endpoint = "              - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {} }} }} }}"
        ports = self.grpc[number % 2:] + self.grpc[:number % 2]
        text = text.replace(endpoint.format(8081), "\n".join(endpoint.format(port) for port in ports))
        config = self.folder / f"envoy{number}.yaml"
        config.write_text(text)
        args = [program, "--config-path", str(config), "--disable-hot-restart", "--concurrency", "1", "--log-level", "error"]
        return Envoy(Process(self.log, args), port, b"alex")

    def demands(self, turn):
        for index, envoy in enumerate(self.envoys):
            envoy.demand = 1.2 * self.rate * DEMANDS[(index + turn) % 3]

    def between(self, start, end):
        return sum(start <= moment < end for envoy in self.envoys for moment in envoy.admitted)

    async def pass_turn(self, what, seconds=None, settled=None):
        """Lets time pass. If the limit must be used, `settled` seconds are left to convergence."""
        start = time.monotonic()
        await asyncio.sleep(seconds or self.turn)
        end = time.monotonic()
        shares = [sum(start <= moment < end for moment in envoy.admitted) for envoy in self.envoys]
        used = sum(shares) / (self.rate * (end - start))
        line = f"{what:<44} used {used:6.1%}   by Envoy {shares}"
        if settled is not None:
            converged = self.converged(start, end)
            late = self.between(start + settled, end) / (self.rate * (end - start - settled))
            line += f"   converged in {converged:4.1f} s, used {late:6.1%} from then on"
            if late < LEAST_USED or converged > settled:
                self.problems.append(f"{what}: {late:.1%} used, converged in {converged:.1f} s")
        print(line, flush=True)

    def converged(self, start, end):
        """From when on each two seconds use the limit."""
        moment, last = end - 2, end
        while moment >= start and self.between(moment, moment + 2) >= LEAST_USED * 2 * self.rate:
            last, moment = moment, moment - 0.5
        return last - start if moment >= start else 0.0

    def excess(self):
        """The most that was admitted beyond the limit in any stretch of time, in requests."""
        moments = sorted(moment for envoy in self.envoys for moment in envoy.admitted)
        most, least, start = 0.0, None, moments[0]
        for count, moment in enumerate(moments):
            level = count - self.rate * (moment - start)
            least = level if least is None else min(least, level)
            most = max(most, level + 1 - least)
        return most

    async def run(self):
        await self.start()
        loads = [asyncio.create_task(envoy.load()) for envoy in self.envoys]
        self.demands(0)
        await self.pass_turn("begin")
        await (self.story() if self.is_strict else self.away())
        for load in loads:
            load.cancel()
        self.problems += [f"{process.args[0]} has ended" for process in self.processes() if process.child.poll() is not None]

    async def away(self):
        """Weir is unavailable: Envoys use their assignments, then their fallback, until it returns."""
        for replica in self.replicas:
            replica.end()
        await self.pass_turn("Weir is killed", EXPIRED_IN)
        start = time.monotonic()
        await self.pass_turn("the fallback of quota.yaml")
        end = time.monotonic()
        for number, envoy in enumerate(self.envoys):
            admitted, due = sum(start <= moment < end for moment in envoy.admitted), FALLBACK * (end - start)
            if not LEAST_USED * due - FALLBACK <= admitted <= due + FALLBACK:
                self.problems.append(f"Envoy {number} admitted {admitted} by its fallback, of {due:.0f}")
        for replica in self.replicas:
            replica.start()
        await self.pass_turn("Weir is back", 40, settled=KILLED_IN)

    async def story(self):
        for turn in range(1, 5):
            self.demands(turn)
            await self.pass_turn(f"demand moves ({turn})", settled=CONVERGED_IN)
        first = self.envoys[1]
        killed = time.monotonic()
        first.process.end()
        await self.pass_turn("an Envoy is killed")
        first.process.start()
        await listening("the Envoy that was killed", first.process, first.port)
        back = time.monotonic()
        await self.pass_turn("the Envoy is back", 25, settled=CONVERGED_IN)
        self.replicas[0].end()
        await self.pass_turn("a replica is killed", 40, settled=KILLED_IN)
        self.replicas[0].start()
        await self.pass_turn("the replica is back", settled=CONVERGED_IN)
        self.redis.end()
        await self.pass_turn("Redis is killed", 35)
        self.redis.start()
        await self.pass_turn("Redis is back, empty", settled=CONVERGED_IN)
        if self.stored() == 0:
            self.problems.append("the replicas do not use Redis again")
        # So that the one that was killed has to serve.
        self.replicas[1].end(signal.SIGTERM)
        await self.pass_turn("the other replica is shut down", 35, settled=STOPPED_IN)
        self.replicas[1].start()
        await self.pass_turn("the replica is back", settled=CONVERGED_IN)
        self.compare(killed, back)

    def compare(self, killed, back):
        """Compares all that was admitted with the limit. Requests to the first Envoy may fail between `killed` and `back`."""
        first = self.envoys[1]
        excess, bound = self.excess(), (STORED + LAG) * self.rate
        print(f"over the limit of {self.rate}/s, in any stretch of time: {excess:.0f} requests, of at most {bound:.0f}: "
              f"{STORED * self.rate:.0f} stored and {LAG * self.rate:.0f} by lag")
        wrong = sum(envoy is not first or ended < killed or started > back for envoy in self.envoys for started, ended in envoy.failed)
        denied, slow = sum(envoy.denied for envoy in self.envoys), sum(envoy.slow for envoy in self.envoys)
        slow_at_most = SLOW_AT_MOST * (denied + sum(len(envoy.admitted) for envoy in self.envoys))
        print(f"failed {len(first.failed)} of the Envoy that was killed, {wrong} others, refused {denied}, "
              f"without an answer in {SLOW:.0f} s {slow}, of at most {slow_at_most:.0f}")
        if wrong:
            self.problems.append(f"{wrong} requests failed while their Envoy ran")
        if slow > slow_at_most:
            self.problems.append(f"{slow} requests without an answer in {SLOW:.0f} s, of at most {slow_at_most:.0f}")
        if excess > bound:
            self.problems.append(f"{excess:.0f} requests over the limit, of at most {bound:.0f}")

    def stored(self):
        """The number of keys in Redis; 0 where it does not answer."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.redis_port), timeout=5) as redis:
            redis.sendall(b"DBSIZE\r\n")
            return int(redis.recv(64)[1:])
        return 0

    def processes(self):
        return [envoy.process for envoy in self.envoys] + self.replicas + [self.redis]

    def end(self):
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                process.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weir")
    parser.add_argument("envoy")
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--turn", type=float, default=20)
    arguments = parser.parse_args()
    problems = []
    for is_strict in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            drill = Drill(arguments, Path(folder), is_strict)
            try:
                asyncio.run(drill.run())
            except NotListening as error:
                drill.problems.append(str(error))
            finally:
                drill.end()
            if drill.problems:
                sys.stderr.write((Path(folder) / "log").read_text(errors="replace")[-4_000:])
            problems += drill.problems
    for problem in problems:
        print(f"FAILED {problem}", file=sys.stderr)
    sys.exit(bool(problems))


main()
