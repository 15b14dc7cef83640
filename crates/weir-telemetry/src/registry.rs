//! Every series of a process, rendered as Prometheus text: the exporter's counters and gauges, and what renders itself.

use std::{
    borrow::Cow,
    sync::{Arc, Weak},
};

use metrics::{Counter, Gauge, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use parking_lot::Mutex;

use crate::{ShardedCounters, text::sorted};

/// Names of metrics with their HELP texts.
pub(crate) type Help = [(&'static str, &'static str)];

/// Series that are not the exporter's.
pub trait Render: Send + Sync {
    /// Appends them in Prometheus text, HELP and TYPE lines included.
    fn render(&self, out: &mut String);
}

/// A registry with nothing counted yet.
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
    /// Says what these counters and gauges mean.
    pub fn describe(&self, counters: &Help, gauges: &Help) {
        for (name, text) in counters {
            self.recorder.describe_counter((*name).into(), None::<Unit>, (*text).into());
        }
        for (name, text) in gauges {
            self.recorder.describe_gauge((*name).into(), None::<Unit>, (*text).into());
        }
    }

    /// A counter; the same one for the same name and labels.
    pub fn counter(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder.register_counter(&key(name, labels), &metadata())
    }

    /// A gauge; the same one for the same name and labels.
    pub fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        self.recorder.register_gauge(&key(name, labels), &metadata())
    }

    /// Counts for these counters, which learn of it when they are rendered or what is returned goes.
    pub fn sharded(&self, counters: Vec<Counter>) -> Arc<ShardedCounters> {
        self.remember(ShardedCounters::of(counters))
    }

    /// Counts for `len` counters likewise, that begin with the first count: `begin` gives those, each with its position below
    /// `len`, that begin with the first count at a position.
    pub fn sharded_from_first_count(
        &self,
        len: usize,
        begin: impl Fn(usize) -> Vec<(usize, Counter)> + Send + Sync + 'static,
    ) -> Arc<ShardedCounters> {
        self.remember(ShardedCounters::new(len, Box::new(begin)))
    }

    fn remember(&self, sharded: ShardedCounters) -> Arc<ShardedCounters> {
        let sharded = Arc::new(sharded);
        let mut all = self.sharded.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&sharded));
        sharded
    }

    /// Renders this too from now on.
    pub fn add(&self, series: Arc<dyn Render>) {
        self.rendered.lock().push(series);
    }

    /// All of it in Prometheus text, the families by name and the series of each in order.
    pub fn render(&self) -> String {
        self.sharded.lock().iter().filter_map(Weak::upgrade).for_each(|counters| counters.settle());
        self.handle.run_upkeep();
        let mut text = self.handle.render();
        self.rendered.lock().iter().for_each(|series| series.render(&mut text));
        sorted(&text)
    }
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let labels: Vec<_> = labels.iter().map(|(label, value)| Label::new(*label, (*value).to_owned())).collect();
    Key::from_parts(Cow::Borrowed(name), labels)
}

fn metadata() -> Metadata<'static> {
    Metadata::new(module_path!(), Level::INFO, None)
}
