"""The part about checks that Redis decides."""

import subprocess

import load
import wire
from cases import Case, NESTED
from report import Aim, Section, bars, table, throughput, spread, hundredths, whole

# As short as the algorithm can be written for Redis. Every call passes and writes, as the checks do.
GCRA = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + ARGV[1]
if tat - now > tonumber(ARGV[2]) then return tat - now - ARGV[2] end
redis.call('SET', KEYS[1], string.format('%.0f', tat), 'PX', math.ceil((tat - now) / 1000))
return 0
"""
# Calls of one connection that redis-benchmark has under way.
PIPELINES = (1, 64)
HOT = "gcra:alex"


def redis(bench):
    """Nested pairs over Redis on the same machine, one hot key and 100,000, by calls and by streams; beside it one GCRA
    script call for each check, by redis-benchmark."""
    programs, options = bench.programs, bench.options
    start, pair = programs.weir_over_redis, wire.check("pair", "alex", "trade")
    duos = wire.unary(wire.check("duos", "alex", "trade"), levels=2)
    # Short, as h2load counts a stream when it ends.
    stream = wire.stream(pair, 200, levels=2)
    cases = {
        "Weir, calls, one key": bench.hot(start, NESTED),
        "Weir, streams, one key": bench.hot(start, stream, 4),
    }
    if options.bench:
        for call in ("unary", "stream"):
            more = {"call": call, "keys": 100_000}
            name = f"Weir, {'calls' if call == 'unary' else 'streams'}, 100,000 keys"
            cases[name] = bench.bench(start, duos, "duos/{}/trade", **more)
    baselines = {}
    for keys, name in (("one key", HOT), ("100,000 keys", "gcra:__rand_int__")):
        for pipeline in PIPELINES:
            baselines[f"a script call each, {keys}, {pipeline} in flight"] = (name, pipeline)
    cases |= baselines
    taken = bench.rounds(
        cases, sample=lambda case: bench.sample(case) if isinstance(case, Case) else baseline(bench, *case)
    )
    weir = [name for name in cases if name not in baselines]
    aims = [Aim(name, [it.per_second for it in taken[name]], 90_000, form=whole, unit="/s") for name in weir]
    for name in weir:
        for pipeline in PIPELINES:
            under = f"a script call each, {name.split(', ')[-1]}, {pipeline} in flight"
            values = [a.store_us / b.cpu_us for a, b in zip(taken[name], taken[under])]
            what = f"{name}: Redis's CPU time over that of script calls, {pipeline} in flight"
            aims.append(Aim(what, values, 1, False))
    figures = (lambda sample: sample.per_second, whole), (lambda sample: sample.cpu_us, hundredths)
    rows = [[name, *(spread([of(it) for it in taken[name]], form) for of, form in figures)] for name in baselines]
    beside = table(["beside it, by redis-benchmark", "checks a second", "Redis's CPU time a check, µs"], rows)
    return Section([throughput(taken, weir), beside], aims, bars(taken, weir))


def baseline(bench, key, pipeline):
    """A call of the script for each check."""
    with bench.programs.redis() as server:
        cli = ["redis-cli", "-s", server.address.removeprefix("unix:")]

        def ask(*arguments):
            return subprocess.run([*cli, *arguments], capture_output=True, text=True, check=True).stdout.strip()

        interval_us = "1000" if key == HOT else "600000000"
        script = ["EVALSHA", ask("SCRIPT", "LOAD", GCRA), "1", key, interval_us, "1000000000000000"]
        if (told := ask(*script)) != "0":
            raise wire.WrongAnswer(f"the script answers {told}")
        calls = bench.options.seconds * (50_000 if pipeline == 1 else 200_000)
        return load.measure(server, lambda: load.redis_benchmark(server, script, calls, pipeline))
