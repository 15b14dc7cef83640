//! Metrics of descriptors.

use std::sync::Arc;

use weir_core::domain::ManualClock;

use futures_util::FutureExt;
use weir::{
    limiter::{Descriptor, DescriptorsRequest, Limiter, descriptors::MAX_LIMITS},
    telemetry::{Metrics, MetricsSettings},
};

use crate::{
    stores::memory,
    table::{START, policy},
};

const FILE: &str = "
domain: d
descriptors:
  - { key: plain, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: full, detailed_metric: true, value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 1, name: n } }
  - key: some
    value: 's*'
    value_to_metric: true
    descriptors:
      - { key: x, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: shared, value: 'a*', share_threshold: true, detailed_metric: true, rate_limit: { unit: day, requests_per_unit: 9 } }
  - key: three
    rate_limit: [{ unit: day }, { unit: hour }, { unit: minute }]
";

struct Asker(Limiter<weir_store::MemoryStore<Arc<ManualClock>>>);

impl Asker {
    fn new(max_series: usize) -> Self {
        let metrics = Metrics::with_settings(&MetricsSettings { max_series, ..MetricsSettings::default() });
        Self(Limiter::new(memory(Arc::new(ManualClock::new(START))), policy(&[FILE]), metrics))
    }

    fn ask(&self, descriptors: &[&[(&str, &str)]]) {
        let descriptor = |entries: &&[(&str, &str)]| Descriptor {
            entries: entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            hits: 1,
            over: None,
        };
        let request =
            DescriptorsRequest { domain: "d".to_owned(), descriptors: descriptors.iter().map(descriptor).collect() };
        let handle = self.0.policy();
        let resolved = request.resolve(&handle.policy).expect("not too many");
        let answer =
            self.0.check_descriptors(&handle, &resolved).outcome(&handle).now_or_never().expect("memory does not wait");
        answer.expect("an answer");
    }

    fn has(&self, line: &str) {
        let text = self.0.metrics().render();
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
}

#[test]
fn limits_are_labelled_by_pattern_or_with_values_on_request() {
    let asker = Asker::new(1_000);
    for _ in 0..2 {
        asker.ask(&[&[("plain", "a")], &[("shadow", "a")], &[("full", "v")], &[("some", "s1"), ("x", "y")]]);
    }
    asker.ask(&[&[("shared", "a1")]]);
    for limit in ["plain/*#fixed_window0", "full/v#n", "some/s1/x/*#fixed_window0"] {
        asker.has(&format!("weir_charged_units_total{{domain=\"d\",limit=\"{limit}\"}} 2"));
    }
    for (limit, outcome, count) in [
        ("plain/*#fixed_window0", "allowed", 1),
        ("plain/*#fixed_window0", "limited", 1),
        ("shadow/*#fixed_window0", "shadow_limited", 1),
        ("shadow/*#fixed_window0", "limited", 0),
        ("full/v#n", "limited", 1),
        ("some/s1/x/*#fixed_window0", "allowed", 1),
        ("shared/a*#fixed_window0", "allowed", 1),
    ] {
        asker.has(&format!("weir_decisions_total{{domain=\"d\",limit=\"{limit}\",outcome=\"{outcome}\"}} {count}"));
    }
    let text = asker.0.metrics().render();
    assert!(
        !text.contains("limit=\"n\"") && !text.contains("limit=\"some/s*/"),
        "these count with their values:\n{text}"
    );
}

#[test]
fn the_number_of_series_with_values_is_limited() {
    let asker = Asker::new(3);
    for number in 0..10 {
        asker.ask(&[&[("full", &number.to_string())]]);
    }
    asker.ask(&[&[("full", "0")]]);
    asker.has("weir_decisions_total{domain=\"d\",limit=\"full/0#n\",outcome=\"limited\"} 1");
    asker.has("weir_decisions_total{domain=\"d\",limit=\"other\",outcome=\"allowed\"} 7");
    asker.has("weir_decisions_without_series_total 7");
    assert!(!asker.0.metrics().render().contains("full/3"));
}

#[test]
fn long_values_are_truncated() {
    let asker = Asker::new(10);
    asker.ask(&[&[("full", &"é".repeat(100_000))]]);
    let text = asker.0.metrics().render();
    assert!(text.lines().all(|line| line.len() < 500) && text.contains("full/é"));
}

#[test]
fn descriptors_above_the_limit_bound_are_counted() {
    let asker = Asker::new(10);
    // Three limits each.
    asker.ask(&vec![&[("three", "a")][..]; MAX_LIMITS / 3 + 5]);
    asker.has("weir_descriptors_ignored_total 5");
}
