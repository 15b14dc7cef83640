"""Starts and stops the measured servers, each in a process on a free loopback port; reads their usage."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import wire

REPOSITORY = Path(__file__).resolve().parents[2]
THROTTLECRAB = "0.4.40"

# Hot keys: the bucket of a billion is never empty, and is used up faster than it fills, so that every check writes.
# Spread keys: a state lives for ten minutes, so that it is there when its key is asked again.
POLICY = """
schema:
  user: { children: { "*": { limits: [HOT] } } }
  pair: { children: { "*": { limits: [HOT], children: { trade: { limits: [HOT2] } } } } }
  many: { children: { "*": { limits: [SPREAD] } } }
  duos: { children: { "*": { limits: [SPREAD], children: { trade: { limits: [SPREAD] } } } } }
  spent: { children: { "*": { limits: [0, 1, 86400] } } }
  bound: { children: { "*": { limits: [BOUND], children: { trade: { limits: [BOUND] } } } } }
"""
# Far below the rate of requests.
BOUND_CAPACITY, BOUND_PER_SECOND = 1_000, 5_000
LIMITS = {
    "HOT2": "{ token_bucket: { capacity: 1000000000, count: 1000, period: 1s } }",
    "HOT": "{ gcra: { burst: 999999999, count: 1000, period: 1s } }",
    "SPREAD": "[9999, 1, 600]",
    "BOUND": f"{{ token_bucket: {{ capacity: {BOUND_CAPACITY}, count: {BOUND_PER_SECOND}, period: 1s }} }}",
}


# On a machine that load and service share with Redis a check waits for them; no answer is to be a degraded one.
PATIENT = {"store__redis__command_timeout": "1s"}


class Missing(Exception):
    """A program is needed that is not there."""


def policy(text=POLICY):
    for name, limit in LIMITS.items():
        text = text.replace(name, limit)
    return text


def url_of(redis):
    return f"redis+unix://{redis.address.removeprefix('unix:')}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_seconds(pid):
    """The CPU time that a process has used so far, its threads that have ended included."""
    # The number that clock_getcpuclockid(3) makes: the same as utime and stime in /proc, but in nanoseconds.
    return time.clock_gettime(((~pid) << 3) | 2)


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024


class Server:
    """A running server; leaving its context stops it. A peer that others run has no process, and perhaps no pid."""

    def __init__(self, name, address, process=None, pid=None, pages=None, beside=()):
        self.name, self.address, self.process, self.beside = name, address, process, list(beside)
        self.pages = pages  # where Weir's /metrics are
        self.pid = process.pid if process else pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        for server in self.beside:
            server.stop()

    def cpu_seconds(self):
        return cpu_seconds(self.pid) if self.pid else float("nan")

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.pages}/metrics", timeout=10) as page:
            return page.read().decode().splitlines()

    def outcomes(self):
        """What Weir has answered so far: checks by outcome, and how many of them without its store."""
        counts = {"allowed": 0, "limited": 0, "error": 0, "degraded": 0}
        for line in self.metrics():
            if line.startswith("weir_checks_total{"):
                counts[re.search('outcome="([a-z]+)"', line)[1]] += float(line.split()[-1])
            elif line.startswith("weir_degraded_total{"):
                counts["degraded"] += float(line.split()[-1])
        return counts

    def leased(self):
        """Checks that Weir has decided from leases so far."""
        lines = (line for line in self.metrics() if line.startswith("weir_leases_decisions_total{"))
        return sum(float(line.split()[-1]) for line in lines)

    def await_answer(self, ask, timeout=120.0):
        """Asks until there is an answer; when it came."""
        until = time.perf_counter() + timeout
        while True:
            try:
                ask.verify(self.address)
                return time.perf_counter()
            except OSError:
                if self.process and self.process.poll() is not None:
                    raise RuntimeError(f"{self.name} ended with {self.process.returncode}") from None
                if time.perf_counter() > until:
                    raise RuntimeError(f"{self.name} does not answer at {self.address}") from None
                time.sleep(0.002)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Replicas(Server):
    """Several replicas of Weir, as one server; readiness is checked on each."""

    def __init__(self, replicas, beside=()):
        super().__init__("replicas", replicas[0].address, pages=replicas[0].pages, beside=beside)
        self.replicas = replicas

    def cpu_seconds(self):
        return sum(replica.cpu_seconds() for replica in self.replicas)

    def outcomes(self):
        counts = [replica.outcomes() for replica in self.replicas]
        return {name: sum(count[name] for count in counts) for name in counts[0]}

    def leased(self):
        return sum(replica.leased() for replica in self.replicas)

    def await_answer(self, ask, timeout=120.0):
        return max(replica.await_answer(ask, timeout) for replica in self.replicas)

    def stop(self):
        for replica in self.replicas:
            replica.stop()


class Programs:
    """Builds and finds the programs, and starts servers in a separate directory."""

    def __init__(self, directory, throttlecrab=None):
        self.directory = Path(directory)
        target = REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target")
        self.release = target / "release"
        installed = target / "peers/bin/throttlecrab-server"
        self.throttlecrab_program = throttlecrab or (str(installed) if installed.exists() else "throttlecrab-server")
        self.limits = self.write_policy("limits", {"default": policy()})

    def build(self):
        print("building", file=sys.stderr)
        build = ["cargo", "build", "--quiet", "--release", "--workspace", "--bin", "weir", "--bin", "weir-bench"]
        build += ["--example", "baseline", "--example", "spread"]
        subprocess.run(build, cwd=REPOSITORY, check=True)

    def find_all(self, throttlecrab, redis, bench):
        """Raises Missing for the first that is not there, of those that are wanted."""
        needed = {"h2load": "apt-get install nghttp2-client"}
        if redis:
            needed |= dict.fromkeys(
                ("redis-server", "redis-cli", "redis-benchmark"), "apt-get install redis, or say --skip-redis"
            )
        if throttlecrab:
            install = f"cargo install throttlecrab-server --version {THROTTLECRAB} --locked"
            protoc = "that needs protoc, apt-get install protobuf-compiler"
            how = f"{install} --root {self.release.parent}/peers; {protoc}; or say --skip-throttlecrab"
            needed[self.throttlecrab_program] = how
        for program, how in needed.items():
            if not shutil.which(program):
                raise Missing(f"{program} is missing ({how})")
        if bench and not shutil.which(self.release / "weir-bench"):
            raise Missing("there is no weir-bench beside this weir; say --skip-bench")

    policy = staticmethod(policy)

    def write_policy(self, name, files):
        """A directory of policies, by the names of their domains."""
        directory = self.directory / name
        directory.mkdir()
        for file, text in files.items():
            (directory / f"{file}.yaml").write_text(text)
        return directory

    def start(self, name, command, address, environment=(), **more):
        log = open(self.directory / f"{name}.log", "w")
        environment = {**os.environ, **dict(environment)}
        process = subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=log, cwd=self.directory)
        log.close()
        return Server(name, address, process, **more)

    def baseline(self, levels=1, *arguments):
        address = f"127.0.0.1:{free_port()}"
        command = [self.release / "examples/baseline", "--listen", address, "--levels", levels, *arguments]
        return self.start("baseline", command, address)

    def weir(self, limits=None, store=None, beside=(), **settings):
        """Weir with its default settings, but for the given ones: `store__max_keys` for `store.max_keys`."""
        address, pages = (f"127.0.0.1:{free_port()}" for _ in range(2))
        settings = {"grpc__listen": address, "http__listen": pages, "shutdown__delay": "1ms", **settings}
        environment = {f"WEIR_{key.upper()}": str(value) for key, value in settings.items()}
        command = [self.release / "weir", "serve", "--limits", limits or self.limits]
        command += ["--store", store] if store else []
        return self.start("weir", command, address, environment, pages=pages, beside=beside)

    def throttlecrab(self, *arguments):
        port = free_port()
        command = [self.throttlecrab_program, "--grpc", "--grpc-host", "127.0.0.1", "--grpc-port", port, *arguments]
        return self.start("throttlecrab-server", command, f"127.0.0.1:{port}")

    def redis(self):
        path = self.directory / "redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
        redis = self.start("redis-server", command, f"unix:{path}")
        while True:
            try:
                with wire.connect(redis.address, 5.0) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(64).startswith(b"+PONG"):
                        return redis
            except OSError:
                if redis.process.poll() is not None:
                    raise RuntimeError("redis-server ended at once") from None
            time.sleep(0.01)

    def weir_over_redis(self):
        redis = self.redis()
        return self.weir(store=url_of(redis), beside=[redis], **PATIENT)

    def replicas_over_redis(self, limits=None, count=2):
        redis = self.redis()
        return Replicas([self.weir(limits, url_of(redis), **PATIENT) for _ in range(count)], [redis])

    def replicas_apart(self, count=2):
        return Replicas([self.weir() for _ in range(count)])
