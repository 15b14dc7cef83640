"""Cases, and how they are measured: each from a fresh start, one after the other, in rounds that go back and forth."""

import sys
from dataclasses import dataclass, field
from typing import Callable

import load
import wire

LEVEL = wire.check("user", "alex")
PAIR = wire.check("pair", "alex", "trade")
ONE = wire.unary(LEVEL, levels=1)
NESTED = wire.unary(PAIR, levels=2)
THROTTLE = wire.throttle("user/alex", 1_000_000_000, 1_000, 1)
# Of no limit, so that it leaves no state.
NOTHING = wire.unary(wire.check("nobody"), levels=0)

# Names that several parts use.
BASELINE, WEIR = "baseline, one level", "Weir, one level"
BASELINE_PAIR, WEIR_PAIR = "baseline, nested pair", "Weir, nested pair"
# The same server with generated messages, by tonic's codec.
TONIC, TONIC_PAIR = "tonic baseline, one level", "tonic baseline, nested pair"
THROTTLECRAB = "throttlecrab-server"


@dataclass
class Options:
    """The options of a run."""

    rounds: int = 5
    latency_rounds: int = 9
    seconds: int = 5
    warmup_seconds: int = 1
    many: int = 1_000_000  # keys, where memory is looked at
    scale: int = 100_000  # domains or limits
    idle_seconds: int = 10
    throttlecrab: bool = True
    bench: bool = True
    peers: list = field(default_factory=list)  # names, addresses, pids
    peer_domain: str = "compare"
    peer_descriptor: list = field(default_factory=lambda: [("user", "alex")])


@dataclass
class Case:
    """A server under a load."""

    start: Callable  # a server
    ask: wire.Ask  # verified before and after
    load: Callable  # of the server and a time in seconds
    first: wire.Ask = None  # the readiness check, if it is not `ask`
    allowed: bool = True


class Bench:
    """One run."""

    def __init__(self, programs, options):
        self.programs, self.options, self.taken = programs, options, []

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def hot(self, start, ask, streams=load.STREAMS, connections=load.CONNECTIONS, **more):
        """One body by h2load."""
        directory = self.programs.directory

        def run(server, seconds):
            return load.h2load(directory, server, ask, seconds, streams, connections=connections)

        return Case(start, ask, run, **more)

    def spread(self, start, ask, service, keys=100_000):
        programs = self.programs
        return Case(start, ask, lambda server, seconds: load.spread(programs, server, service, keys, seconds))

    def bench(self, start, ask, key, **more):
        """`weir-bench` on a key in which {} stands for a number."""
        programs = self.programs
        return Case(start, ask, lambda server, seconds: load.bench(programs, server, key, seconds=seconds, **more))

    def sample(self, case):
        options = self.options
        with case.start() as server:
            server.await_answer(case.first or case.ask)
            case.load(server, options.warmup_seconds)
            case.ask.verify(server.address)
            sample = load.measure(server, lambda: case.load(server, options.seconds))
            load.expect(sample, case.allowed)
            sample.more["answer_bytes"] = case.ask.verify(server.address)
        self.taken.append(sample)
        return sample

    def rounds(self, cases, count=None, sample=None):
        """The samples of each case, one a round. Every other round goes backwards: what drifts hits all alike."""
        sample = sample or self.sample
        taken = {name: [] for name in cases}
        for number in range(count or self.options.rounds):
            names = list(cases)
            for name in reversed(names) if number % 2 else names:
                taken[name].append(sample(cases[name]))
                self.say(f"  round {number + 1}: {name}: {describe(taken[name][-1])}")
        return taken

    def baseline(self, levels=1, *arguments):
        return lambda: self.programs.baseline(levels, *arguments)

    def weir(self, **settings):
        return lambda: self.programs.weir(**settings)

    def throttlecrab(self, *arguments):
        return lambda: self.programs.throttlecrab(*arguments)


def describe(sample):
    if isinstance(sample, float):
        return f"{sample:,.4g}"
    if not isinstance(sample, load.Sample):
        return str(sample)
    store = f", Redis {sample.store_us:.2f} µs" if sample.store_us is not None else ""
    of_machine = f"elsewhere {sample.elsewhere:.0%}, idle {sample.idle:.0%}"
    return f"{sample.per_second:,.0f}/s, {sample.cpu_us:.2f} µs{store}, {of_machine}"


def sizes_agree(samples, one, other):
    """Raises WrongAnswer where the answers of two cases differ in length by more than numbers do that change."""
    lengths = [samples[name][-1].more["answer_bytes"] for name in (one, other)]
    if abs(lengths[0] - lengths[1]) > 0.1 * lengths[1]:
        raise wire.WrongAnswer(f"{one} answers with {lengths[0]:.0f} bytes, {other} with {lengths[1]:.0f}")
    return f"An answer has {lengths[0]:.0f} bytes of {one}, {lengths[1]:.0f} of {other}."
