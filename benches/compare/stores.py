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
PIPELINED = 64


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
    for keys, name in (("one key", "gcra:alex"), ("100,000 keys", "gcra:__rand_int__")):
        for pipeline in (1, PIPELINED):
            baselines[f"a script call each, {keys}, {pipeline} at once"] = (name, pipeline)
    cases |= baselines
    taken = bench.rounds(
        cases, sample=lambda case: bench.sample(case) if isinstance(case, Case) else baseline(bench, *case)
    )
    weir = [name for name in cases if name not in baselines]
    aims = [Aim(name, [it.per_second for it in taken[name]], 90_000, form=whole, unit="/s") for name in weir]
    for name in weir:
        keys = name.split(", ")[-1] if name.endswith("one key") else "100,000 keys"
        under = f"a script call each, {keys}, {PIPELINED} at once"
        values = [a.store_us / b.processor_us for a, b in zip(taken[name], taken[under])]
        aims.append(Aim(f"{name}: Redis's processor time over {PIPELINED} script calls at once", values, 1, False))
    rows = [
        [
            name,
            spread([it.per_second for it in taken[name]], whole),
            spread([it.processor_us for it in taken[name]], hundredths),
        ]
        for name in baselines
    ]
    beside = table(["beside it, by redis-benchmark", "checks a second", "Redis's processor time a check, µs"], rows)
    return Section([throughput(taken, weir), beside], aims, bars(taken, weir))


def baseline(bench, key, pipeline):
    """A call of the script for each check."""
    with bench.programs.redis() as server:
        socket = server.address.removeprefix("unix:")
        loaded = subprocess.run(
            ["redis-cli", "-s", socket, "SCRIPT", "LOAD", GCRA], capture_output=True, text=True, check=True
        )
        arguments = [
            "EVALSHA",
            loaded.stdout.strip(),
            "1",
            key,
            "1000" if key == "gcra:alex" else "600000000",
            "1000000000000000",
        ]
        told = subprocess.run(
            ["redis-cli", "-s", socket, *arguments], capture_output=True, text=True, check=True
        ).stdout
        if told.strip() != "0":
            raise wire.WrongAnswer(f"the script answers {told.strip()}")
        calls = bench.options.seconds * (50_000 if pipeline == 1 else 200_000)
        return load.measure(server, lambda: load.redis_benchmark(server, arguments, calls, pipeline))
