"""The parts about processes: memory, idle CPU time, start."""

import time
from dataclasses import dataclass

import load
import servers
from cases import NOTHING, ONE, THROTTLE, THROTTLECRAB
from report import Aim, Section, hundredths, spread, table, tenths, thousandths, whole


def memory(bench):
    """The growth of a process when each of a million keys is checked once."""
    count = bench.options.many
    room = {"store__max_keys": count}
    cases = {"Weir": (bench.weir(**room), NOTHING, "weir")}
    if bench.options.throttlecrab:
        cases[THROTTLECRAB] = (bench.throttlecrab(), THROTTLE, "throttlecrab")
        sized = f"{THROTTLECRAB}, told to expect {count:,}"
        cases[sized] = (bench.throttlecrab("--store-capacity", count), THROTTLE, "throttlecrab")

    def fill(case):
        start, ask, service = case
        with start() as server:
            server.await_answer(ask)
            before = servers.resident_bytes(server.pid)
            load.spread(bench.programs, server, service, count, 0)
            # For memory that is still to be released.
            time.sleep(1)
            after = servers.resident_bytes(server.pid)
            if server.pages and (counted := server.outcomes())["allowed"] != count + 1:
                raise load.LoadFailed(f"Weir answered {counted}")
        return Filled(before / 1e6, after / 1e6, (after - before) / count)

    taken = bench.rounds(cases, min(3, bench.options.rounds), fill)
    rows = [
        [name, *(spread([getattr(it, what) for it in filled], form) for what, form in FILLED)]
        for name, filled in taken.items()
    ]
    heads = ["", "before, MB", f"with {count:,} keys of 24 bytes, MB", "growth a key, bytes"]
    aims = []
    for name in list(cases)[1:]:
        values = [weir.after / peer.after for weir, peer in zip(taken["Weir"], taken[name])]
        aims.append(Aim(f"Weir's memory over that of {name}", values, 1, False))
    return Section([table(heads, rows)], aims)


@dataclass
class Filled:
    """The memory of a server before it was asked for its keys and after it, in MB; its growth a key, in bytes."""

    before: float
    after: float
    each: float

    def __str__(self):
        return f"{self.before:,.1f} MB, then {self.after:,.1f} MB"


FILLED = (("before", tenths), ("after", tenths), ("each", tenths))


def idle(bench):
    """CPU time of a server without requests."""
    options = bench.options
    cases = {
        "baseline": (bench.baseline(1), ONE, None),
        "Weir": (bench.weir(), NOTHING, None),
        f"Weir, {options.many:,} keys": (bench.weir(store__max_keys=options.many), NOTHING, "weir"),
    }
    if options.throttlecrab:
        cases[THROTTLECRAB] = (bench.throttlecrab(), THROTTLE, None)

    def rest(case):
        start, ask, fill = case
        with start() as server:
            server.await_answer(ask)
            if fill:
                load.spread(bench.programs, server, fill, options.many, 0)
            time.sleep(2)
            before, since = server.cpu_seconds(), time.perf_counter()
            time.sleep(options.idle_seconds)
            return 100 * (server.cpu_seconds() - before) / (time.perf_counter() - since)

    taken = bench.rounds(cases, min(3, options.rounds), rest)
    rows = [[name, spread(shares, thousandths)] for name, shares in taken.items()]
    aims = [
        Aim(f"{name}, idle", taken[name], 0.2, False, " %", thousandths) for name in cases if name.startswith("Weir")
    ]
    return Section([table(["", f"of one core over {options.idle_seconds} s, %"], rows)], aims)


def start(bench):
    """From the start of the process to the first answer of a check."""
    count, programs = bench.options.many, bench.programs
    keeps = {
        "store__snapshot__path": programs.directory / "snapshot",
        "store__snapshot__every": "1d",
        "store__max_keys": count,
    }
    with programs.weir(**keeps) as server:
        server.await_answer(NOTHING)
        load.spread(programs, server, "weir", count, 0)
    length = (programs.directory / "snapshot").stat().st_size
    snapshot = f"Weir, with a snapshot of {count:,} keys ({length / 1e6:,.0f} MB)"
    cases = {
        "baseline": (bench.baseline(1), ONE),
        "Weir": (bench.weir(), NOTHING),
        snapshot: (bench.weir(**keeps), NOTHING),
    }
    if bench.options.throttlecrab:
        cases[THROTTLECRAB] = (bench.throttlecrab(), THROTTLE)

    def first(case):
        begin, ask = case
        since = time.perf_counter()
        with begin() as server:
            return server.await_answer(ask) - since

    taken = bench.rounds(cases, None, first)
    rows = [[name, spread([it * 1e3 for it in times], whole)] for name, times in taken.items()]
    aims = [
        Aim("Weir's first answer", taken["Weir"], 0.1, False, " s", thousandths),
        Aim("the same, with the snapshot", taken[snapshot], 1, False, " s", hundredths),
    ]
    return Section([table(["", "to the first answer, ms"], rows)], aims)
