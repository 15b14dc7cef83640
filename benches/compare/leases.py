"""The part about keys that two replicas share."""

import time
from concurrent.futures import ThreadPoolExecutor

import load
import wire
from cases import Case, NESTED
from checks import cpu
from report import Aim, Section, bars, ratios, spread, table, thousandths, throughput
from servers import BOUND_CAPACITY, BOUND_PER_SECOND, Server, policy

MEMORY, PLAIN, LEASED = "each in its memory", "over Redis", "over Redis with leases"
HOT, ZIPF, BOUND = "one key", "100,000 keys by Zipf's law", "one key at its limit"


def leases(bench):
    """Two replicas over one Redis, with leases and without, and each with its own memory: nested pairs, one hot key,
    100,000 by Zipf's law, and one at its limit. A call for each check, by weir-bench."""
    programs, options = bench.programs, bench.options
    leased = programs.write_policy("leases", {"default": "lease: true\n" + policy()})
    starts = {
        MEMORY: programs.replicas_apart,
        PLAIN: programs.replicas_over_redis,
        LEASED: lambda: programs.replicas_over_redis(leased),
    }
    zipf = ("--distribution", "zipf", "--exponent", "1")
    loads = {
        HOT: (starts, NESTED, {"key": "pair/alex/trade"}),
        ZIPF: (starts, NESTED, {"key": "pair/{}/trade", "keys": 100_000, "more": zipf}),
        # In their memories they would admit twice as much.
        BOUND: ((PLAIN, LEASED), NESTED, {"key": "bound/alex/trade", "may_refuse": True}),
    }
    cases = {}
    for name, (modes, ask, more) in loads.items():
        allowed = None if "may_refuse" in more else True
        for mode in modes:
            cases[f"{name}, {mode}"] = Case(starts[mode], ask, both(programs, more), allowed=allowed)
    for name, address, pid in options.peers:
        cases[f"{HOT}, {name}"] = peer(bench, name, address, pid)
    taken = bench.rounds(cases)

    def over(name, mode, other, value=lambda sample: sample.per_second):
        return ratios(taken, f"{name}, {mode}", f"{name}, {other}", value)

    local = {name: [it.more.get("local") for it in taken[name]] for name in cases if name.endswith(LEASED)}
    admitted = [it.more["allowed"] / it.more["elapsed_s"] / BOUND_PER_SECOND for it in taken[f"{BOUND}, {LEASED}"]]
    aims = [
        Aim(f"{HOT}: throughput with leases over that in memory", over(HOT, LEASED, MEMORY), 0.9),
        Aim(f"{HOT}: CPU time a check with leases over that in memory", over(HOT, LEASED, MEMORY, cpu), 1.11, False),
        Aim(f"{HOT}: Redis's CPU time with leases over that without", over(HOT, LEASED, PLAIN, store), 0.05, False),
        Aim(f"{ZIPF}: decided from leases", local[f"{ZIPF}, {LEASED}"], 1 / 3, form=thousandths),
        Aim(f"{BOUND}: admitted, of what the limit admits", admitted, 0.97, form=thousandths),
        Aim(f"{BOUND}: units beyond the limit", [it.more["over"] for it in taken[f"{BOUND}, {LEASED}"]], 0, False),
    ]
    rows = [[name, spread(values, lambda share: f"{share:.1%}")] for name, values in local.items()]
    return Section([throughput(taken), table(["", "decided from leases"], rows)], aims, bars(taken))


def store(sample):
    return sample.store_us


def both(programs, more):
    """`weir-bench` on all replicas concurrently."""

    def run(server, seconds):
        def one(replica):
            return load.bench(programs, replica, seconds=seconds, threads=1, **more)

        leased, before = server.leased(), time.perf_counter()
        with ThreadPoolExecutor() as threads:
            done = list(threads.map(one, server.replicas))
        checks, allowed = sum(it.checks for it in done), sum(it.more["allowed"] for it in done)
        # From the server's first load on: the warm-up has used up the bucket.
        account = vars(server).setdefault("account", {"since": before, "allowed": 0})
        account["allowed"] += allowed
        bound = BOUND_CAPACITY + BOUND_PER_SECOND * (time.perf_counter() - account["since"])
        told = {
            "allowed": allowed,
            "elapsed_s": max(it.more["elapsed_s"] for it in done),
            "local": (server.leased() - leased) / checks,
            "over": max(0.0, account["allowed"] - bound),
        }
        return load.Done(checks, sum(it.per_second for it in done), sum(it.cpu_seconds for it in done), told)

    return run


def peer(bench, name, address, pid):
    """A server of Envoy's RPC that runs already."""
    options = bench.options
    ask = wire.envoy(options.peer_domain, options.peer_descriptor)
    key = "/".join(part for entry in options.peer_descriptor for part in entry)
    more = {"call": "envoy", "more": ("--domain", options.peer_domain)}
    return bench.bench(lambda: Server(name, address, None, pid), ask, key, **more)
