"""The part about latency: open loops at half of the most that a server does."""

import statistics

import load
from cases import Case, BASELINE, NESTED, ONE, THROTTLE, THROTTLECRAB, WEIR, WEIR_PAIR
from report import Aim, Section, spread, table, whole


def latency(bench):
    """p50, p99 and p99.9 at half of the maximum: by `weir-bench`, from the moment at which each check was due; and by
    h2load's own pace, which speaks to throttlecrab-server as well."""
    section = Section()
    if bench.options.bench:
        by_bench(bench, section)
    by_h2load(bench, section)
    return section


def maximum(bench, case):
    """The median of three samples at full load."""
    return statistics.median(bench.sample(case).per_second for _ in range(3 if bench.options.rounds > 1 else 1))


def by_bench(bench, section):
    key, pair = "user/alex", "pair/alex/trade"
    rate = maximum(bench, bench.bench(bench.weir(), ONE, key)) / 2
    cases = {
        BASELINE: bench.bench(bench.baseline(1), ONE, key, per_second=rate),
        WEIR: bench.bench(bench.weir(), ONE, key, per_second=rate),
        WEIR_PAIR: bench.bench(bench.weir(), NESTED, pair, per_second=rate),
    }
    taken = bench.rounds(cases, bench.options.latency_rounds)
    section.tables.append(quantiles(f"by weir-bench, {rate:,.0f}/s", taken))
    section.aims.append(Aim("one level: Weir's p99 over the baseline's", ratios_of(taken, "p99_us"), 1.25, False))


def by_h2load(bench, section):
    directory = bench.programs.directory
    starts = {BASELINE: (bench.baseline(1), ONE), WEIR: (bench.weir(), ONE)}
    if bench.options.throttlecrab:
        starts[THROTTLECRAB] = (bench.throttlecrab(), THROTTLE)
    cases, half = {}, maximum(bench, bench.hot(bench.weir(), ONE)) / 2
    for name, (start, ask) in starts.items():
        # More than throttlecrab-server can do would measure its queue.
        rate = min(half, maximum(bench, bench.hot(start, ask)) / 2) if name == THROTTLECRAB else half
        paced = lambda server, seconds, ask=ask, rate=rate: load.h2load(
            directory, server, ask, seconds, per_second=rate
        )
        cases[f"{name}, {rate:,.0f}/s"] = Case(start, ask, paced)
    taken = bench.rounds(cases, bench.options.latency_rounds)
    section.tables.append(quantiles("by h2load", taken))


def ratios_of(taken, quantile):
    return [weir.more[quantile] / baseline.more[quantile] for weir, baseline in zip(taken[WEIR], taken[BASELINE])]


def quantiles(head, taken):
    rows = [
        [name, *(spread([it.more[f"p{quantile}_us"] for it in samples], whole) for quantile in load.QUANTILES)]
        for name, samples in taken.items()
    ]
    return table([head, *(f"p{quantile}, µs" for quantile in load.QUANTILES)], rows)
