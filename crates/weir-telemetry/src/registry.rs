//! All series of a process as Prometheus text: the exporter's counters and gauges, and series that render themselves.

use std::{
    borrow::Cow,
    sync::{Arc, Weak},
};

use metrics::{Counter, Gauge, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use parking_lot::Mutex;

use crate::{ShardedCounters, text::sorted};

/// The name of a metric, and its HELP text.
pub type Metric = (&'static str, &'static str);

/// Series that render themselves.
pub trait Render: Send + Sync {
    /// Appends the series as Prometheus text, including HELP and TYPE lines.
    fn render(&self, out: &mut String);
}

/// The registry of all series.
pub struct Registry {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    sharded: Mutex<Vec<Weak<ShardedCounters>>>,
    rendered: Mutex<Vec<Arc<dyn Render>>>,
}

impl Default for Registry {
    fn default() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        Self { handle: recorder.handle(), recorder, sharded: Mutex::default(), rendered: Mutex::default() }
    }
}

impl Registry {
    /// Returns a counter; the same one for the same metric and labels.
    pub fn counter(&self, (name, help): Metric, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder.describe_counter(name.into(), None::<Unit>, help.into());
        self.recorder.register_counter(&key(name, labels), &metadata())
    }

    /// Returns a gauge; the same one for the same metric and labels.
    pub fn gauge(&self, (name, help): Metric, labels: &[(&'static str, &str)]) -> Gauge {
        self.recorder.describe_gauge(name.into(), None::<Unit>, help.into());
        self.recorder.register_gauge(&key(name, labels), &metadata())
    }

    /// Makes sharded counters in front of these, which receive the increments at each rendering and on drop.
    pub fn sharded(&self, counters: Vec<Counter>) -> Arc<ShardedCounters> {
        self.remember(ShardedCounters::of(counters))
    }

    /// Makes `len` sharded counters that start with the first count: `factory` returns the counters
    /// that start with the first count at a position, each with its own position below `len`.
    pub fn sharded_from_first_count(
        &self,
        len: usize,
        factory: impl Fn(usize) -> Vec<(usize, Counter)> + Send + Sync + 'static,
    ) -> Arc<ShardedCounters> {
        self.remember(ShardedCounters::new(len, Box::new(factory)))
    }

    fn remember(&self, sharded: ShardedCounters) -> Arc<ShardedCounters> {
        let sharded = Arc::new(sharded);
        let mut all = self.sharded.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&sharded));
        sharded
    }

    /// Adds series to the rendering.
    pub fn add(&self, series: Arc<dyn Render>) {
        self.rendered.lock().push(series);
    }

    /// Renders all series as Prometheus text, the families by name and the series of each in order.
    pub fn render(&self) -> String {
        self.sharded.lock().iter().filter_map(Weak::upgrade).for_each(|counters| counters.flush());
        self.handle.run_upkeep();
        let mut text = self.handle.render();
        self.rendered.lock().iter().for_each(|series| series.render(&mut text));
        sorted(&text)
    }
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    // The exporter takes `\\` and `\"` in a value for escaped characters: `a"` and `a\"` would be the same series twice.
    let labels = labels.iter().map(|(label, value)| Label::new(*label, value.replace('\\', r"\\")));
    let labels: Vec<_> = labels.collect();
    Key::from_parts(Cow::Borrowed(name), labels)
}

fn metadata() -> Metadata<'static> {
    Metadata::new(module_path!(), Level::INFO, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_value_is_a_series_of_its_own_with_the_escapes_of_prometheus() {
        let registry = Registry::default();
        let escapes = [
            (r#"a""#, r#"a\""#),
            (r#"a\""#, r#"a\\\""#),
            (r"e\f", r"e\\f"),
            (r"e\\f", r"e\\\\f"),
            ("g\\\nh", r"g\\\nh"),
            (r"i\n", r"i\\n"),
            (r"j\", r"j\\"),
        ];
        for (value, _) in escapes {
            registry.counter(("hits_total", "Hits."), &[("key", value)]).increment(1);
        }
        let text = registry.render();
        for (value, escaped) in escapes {
            let line = format!("hits_total{{key=\"{escaped}\"}} 1");
            assert_eq!(text.lines().filter(|series| *series == line).count(), 1, "{value:?}: {text}");
        }
    }
}
