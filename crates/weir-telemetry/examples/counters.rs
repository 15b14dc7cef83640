//! Counts on four threads and prints what Prometheus would scrape.

use std::thread;

use weir_telemetry::{Metric, Registry};

const REQUESTS: Metric = ("requests_total", "Requests, by outcome.");

fn main() {
    let registry = Registry::default();
    let counter = |outcome| registry.counter(REQUESTS, &[("outcome", outcome)]);
    let counters = registry.sharded(vec![counter("allowed"), counter("limited")]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1_000).for_each(|number| counters.add(number % 10 / 9)));
        }
    });
    print!("{}", registry.render());
}
