"""The parts about checks that are decided in memory."""

import random

import wire
from cases import (
    BASELINE,
    BASELINE_PAIR,
    NESTED,
    ONE,
    THROTTLE,
    THROTTLECRAB,
    TONIC,
    TONIC_PAIR,
    WEIR,
    WEIR_PAIR,
    sizes_agree,
)
from report import Aim, Section, bars, differences, ratios, throughput
from servers import Server

BATCH = 100
# Checks in one call of h2load, which sends a stream's messages in a burst and counts the stream
# when it ends.
STREAM = 1_000
BROUGHT = "Weir, streams, levels, limits in the request"


def cpu(sample):
    return sample.cpu_us


def unary(bench):
    """A call for each check, one hot key: the baselines, Weir, throttlecrab-server."""
    cases = {
        TONIC: bench.hot(bench.baseline(1, "--generated"), ONE),
        BASELINE: bench.hot(bench.baseline(1), ONE),
        WEIR: bench.hot(bench.weir(), ONE),
        TONIC_PAIR: bench.hot(bench.baseline(2, "--generated"), NESTED),
        BASELINE_PAIR: bench.hot(bench.baseline(2), NESTED),
        WEIR_PAIR: bench.hot(bench.weir(), NESTED),
    }
    if bench.options.throttlecrab:
        cases[THROTTLECRAB] = bench.hot(bench.throttlecrab(), THROTTLE)
    taken = bench.rounds(cases)
    aims = [Aim("one level: Weir's throughput over the baseline's", ratios(taken, WEIR, BASELINE), 0.92)]
    if bench.options.throttlecrab:
        aims.append(Aim("one level: over throttlecrab-server's", ratios(taken, WEIR, THROTTLECRAB), 1.6))
    aims += [
        Aim("nested pair: Weir's throughput over the baseline's", ratios(taken, WEIR_PAIR, BASELINE_PAIR), 0.88),
        Aim(
            "one level: Weir's CPU time a check above the baseline's",
            differences(taken, WEIR, BASELINE, cpu),
            0.8,
            False,
            " µs",
        ),
        Aim("nested pair: the same", differences(taken, WEIR_PAIR, BASELINE_PAIR, cpu), 0.8, False, " µs"),
    ]
    pairs = ((WEIR, BASELINE), (TONIC, BASELINE), (WEIR_PAIR, BASELINE_PAIR), (TONIC_PAIR, BASELINE_PAIR))
    notes = [" ".join(sizes_agree(taken, *pair) for pair in pairs)]
    return Section([throughput(taken)], aims, bars(taken), notes)


def forms(bench):
    """Calls, batches of 100 and streams, with the levels in the answer and without them; streams whose checks bring the limit."""
    cases = {}
    for form, summary in (("levels", False), ("summary", True)):
        check = wire.check("user", "alex", summary_only=summary)
        levels = 0 if summary else 1
        asks = {
            "calls": (wire.unary(check, levels=levels), 100),
            f"batches of {BATCH}": (wire.batch([check] * BATCH, levels=levels), 10),
            "streams": (wire.stream(check, STREAM, levels=levels), 4),
        }
        for call, (ask, streams) in asks.items():
            cases[f"tonic baseline, {call}, {form}"] = bench.hot(bench.baseline(1, "--generated"), ask, streams)
            cases[f"baseline, {call}, {form}"] = bench.hot(bench.baseline(1), ask, streams)
            cases[f"Weir, {call}, {form}"] = bench.hot(bench.weir(), ask, streams)
        if bench.options.bench:
            more = {"call": "stream", "summary_only": summary}
            ask = asks["calls"][0]
            cases[f"Weir, long streams, {form}"] = bench.bench(bench.weir(), ask, "user/alex", **more)
    brought = wire.check("user", "alex", limits=wire.gcra(999_999_999, 1_000))
    cases[BROUGHT] = bench.hot(bench.weir(), wire.stream(brought, STREAM, levels=1), 4)
    taken = bench.rounds(cases)
    values = ratios(taken, BROUGHT, "Weir, streams, levels")
    aims = [Aim("streams with the limit in each request over those by the policy", values, 0.58)]
    for form in ("levels", "summary"):
        calls = f"Weir, calls, {form}"
        aims.append(Aim(f"streams over calls, {form}", ratios(taken, f"Weir, streams, {form}", calls), 8))
        if bench.options.bench:
            aims.append(Aim(f"long streams over calls, {form}", ratios(taken, f"Weir, long streams, {form}", calls), 8))
        aims.append(
            Aim(f"batches of {BATCH} over calls, {form}", ratios(taken, f"Weir, batches of {BATCH}, {form}", calls), 6)
        )
    return Section([throughput(taken)], aims, bars(taken))


def spread(bench):
    """A call for each check, keys spread over 100,000."""
    many, duos = wire.unary(wire.check("many", "alex"), levels=1), wire.unary(
        wire.check("duos", "alex", "trade"), levels=2
    )
    throttle = wire.throttle("many/alex", 10_000, 1, 600)
    cases = {f"{WEIR}, by one client": bench.spread(bench.weir(), many, "weir")}
    if bench.options.throttlecrab:
        cases[f"{THROTTLECRAB}, by one client"] = bench.spread(bench.throttlecrab(), throttle, "throttlecrab")
    if bench.options.bench:
        key, pair = "many/{}", "duos/{}/trade"
        cases[f"{BASELINE}, by weir-bench"] = bench.bench(bench.baseline(1), ONE, key, keys=100_000)
        cases[f"{WEIR}, by weir-bench"] = bench.bench(bench.weir(), many, key, keys=100_000)
        cases[f"{BASELINE_PAIR}, by weir-bench"] = bench.bench(bench.baseline(2), NESTED, pair, keys=100_000)
        cases[f"{WEIR_PAIR}, by weir-bench"] = bench.bench(bench.weir(), duos, pair, keys=100_000)
    taken = bench.rounds(cases)
    aims = []
    if bench.options.throttlecrab:
        values = ratios(taken, *list(cases)[:2])
        aims.append(Aim("one level, 100,000 keys: Weir's throughput over throttlecrab-server's", values, 1.6))
    if bench.options.bench:
        names = [f"{name}, by weir-bench" for name in (WEIR, BASELINE, WEIR_PAIR, BASELINE_PAIR)]
        aims.append(Aim("one level, 100,000 keys: over the baseline's", ratios(taken, *names[:2]), 0.92))
        aims.append(Aim("nested pair, 100,000 keys: over the baseline's", ratios(taken, *names[2:]), 0.88))
    return Section([throughput(taken)], aims)


def listener(bench):
    """Connections dealt to the thread that has the fewest, or shared out by the system (SO_REUSEPORT): the baseline."""
    cases = {}
    for connections, streams in ((1, 100), (3, 100), (8, 100), (64, 12)):
        for name, arguments in (("dealt", ()), ("by the system", ("--reuse-port",))):
            start = bench.baseline(1, *arguments)
            cases[f"{connections} connections, {name}"] = bench.hot(start, ONE, streams, connections)
    return Section([throughput(bench.rounds(cases))])


def refusals(bench):
    """A key that may pass, and one that may not."""
    spent = wire.check("spent", "alex")
    first, refused = wire.unary(spent, levels=1), wire.unary(spent, allowed=False, levels=1)
    names = "Weir, all pass", "Weir, all are refused"
    taken = bench.rounds(
        {
            names[0]: bench.hot(bench.weir(), ONE),
            names[1]: bench.hot(bench.weir(), refused, first=first, allowed=False),
        }
    )
    values = ratios(taken, names[1], names[0], cpu)
    return Section([throughput(taken)], [Aim("refusals' CPU time over passes'", values, 1, False)])


def scale(bench):
    """One limit, many limits in one domain, many domains: one hot key, and batches that ask for many at random."""
    count, chosen = bench.options.scale, random.Random(1)
    numbers = [f"{number:019}" for number in range(count)]
    asked = [chosen.choice(numbers) for _ in range(STREAM)]
    head = 'domain: "{}"\nschema:\n  user:\n    children:\n'
    any_user = head + '      "*": {{ limits: [HOT] }}\n'
    each_user = head + "".join(f'      "{number}": {{{{ limits: [HOT] }}}}\n' for number in numbers)
    one, limits, domains = "one limit", f"{count:,} limits", f"{count:,} domains"
    policies = {one: {"one": any_user.format(numbers[0])}, limits: {"one": each_user.format(numbers[0])}}
    policies[domains] = {number: any_user.format(number) for number in numbers}
    cases = {}
    for index, (name, files) in enumerate(policies.items()):
        path = bench.programs.write_policy(
            f"scale-{index}", {file: bench.programs.policy(text) for file, text in files.items()}
        )
        # The same keys everywhere, and names of domains that are as long, so that nothing else differs.
        domain_of = (lambda number: number) if name == domains else (lambda _: numbers[0])
        checks = [wire.check("user", number, domain=domain_of(number), summary_only=True) for number in asked]
        hot = wire.unary(wire.check("user", asked[0], domain=domain_of(asked[0])), levels=1)
        cases[f"Weir, {name}, one key"] = bench.hot(bench.weir(limits=path), hot)
        cases[f"Weir, {name}, batches over {STREAM}"] = bench.hot(bench.weir(limits=path), wire.batch(checks), 2)
    taken = bench.rounds(cases)
    aims = []
    for load in ("one key", f"batches over {STREAM}"):
        for name in (limits, domains):
            values = ratios(taken, f"Weir, {name}, {load}", f"Weir, {one}, {load}", cpu)
            aims.append(Aim(f"{name} over one, {load}: CPU time a check", values, 1.1, False))
    return Section([throughput(taken)], aims)


def envoy(bench):
    """Envoy's RPC, one hot descriptor: the baselines, Weir, and the peers that were named."""
    options = bench.options
    ask = wire.envoy(options.peer_domain, options.peer_descriptor)
    key, value = options.peer_descriptor[-1]
    rule = f'key: "{key}"\nvalue: "{value}"\nrate_limit: {{ unit: hour, requests_per_unit: 4000000000 }}'
    for key, value in reversed(options.peer_descriptor[:-1]):
        rule = f'key: "{key}"\nvalue: "{value}"\ndescriptors:\n  - ' + rule.replace("\n", "\n    ")
    text = f'domain: "{options.peer_domain}"\ndescriptors:\n  - ' + rule.replace("\n", "\n    ") + "\n"
    limits = bench.programs.write_policy("envoy", {"envoy": text})
    cases = {
        TONIC: bench.hot(bench.baseline(1, "--generated"), ask),
        BASELINE: bench.hot(bench.baseline(1), ask),
        WEIR: bench.hot(bench.weir(limits=limits), ask),
    }
    for name, address, pid in options.peers:
        cases[name] = bench.hot(lambda peer=(name, address, None, pid): Server(*peer), ask)
    taken = bench.rounds(cases)
    aims = [Aim("Weir's throughput over the baseline's", ratios(taken, WEIR, BASELINE), 0.92)]
    aims += [
        Aim(f"Weir's throughput over that of {name}", ratios(taken, WEIR, name), 1) for name, _, _ in options.peers
    ]
    return Section([throughput(taken)], aims, bars(taken))
