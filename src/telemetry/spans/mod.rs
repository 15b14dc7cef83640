//! Spans of requests, for a collector: whose are made, and the queue in which they wait to be sent.

mod settings;

use std::time::{Duration, SystemTime};

use metrics::Counter;
use tokio::sync::mpsc;

pub use settings::TracingSettings;
pub use weir_telemetry::request::{Context, SpanId};

use super::{
    Metrics,
    trail::{Ending, Surface, Told},
};

const SPANS: &str = "weir_trace_spans_total";

/// The counters, with what they mean.
pub const COUNTERS: &[(&str, &str)] = &[(
    SPANS,
    "Spans made for the collector, by what became of them: exported, dropped (the queue was full), failed (not taken).",
)];

/// One request, as a collector is told of it.
#[derive(Debug)]
pub struct Span {
    /// The trace that it is part of.
    pub context: Context,
    /// Its own number.
    pub id: SpanId,
    /// What was called.
    pub surface: Surface,
    /// When it came.
    pub start: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// What was decided.
    pub told: Told,
    /// How it ended.
    pub ending: Ending,
}

/// What becomes of spans.
#[derive(Clone)]
pub struct SpanMeter {
    /// Taken by the collector.
    pub exported: Counter,
    /// Not even queued, as there was no room.
    pub dropped: Counter,
    /// Sent, and not taken.
    pub failed: Counter,
}

/// Who makes spans.
pub struct Spans {
    queue: mpsc::Sender<Span>,
    /// Of the traces that begin here, those whose number is below this one have a span; of `u64::MAX` all.
    threshold: u64,
    dropped: Counter,
}

impl Spans {
    /// Who makes them by these settings, and where they arrive.
    pub fn new(settings: &TracingSettings, meter: &SpanMeter) -> (Self, mpsc::Receiver<Span>) {
        let (queue, arrived) = mpsc::channel(settings.max_queue);
        // From 1.0 on the product is past the largest number, and `as` stops there.
        let threshold = (settings.sample_ratio * 2.0_f64.powi(64)) as u64;
        (Self { queue, threshold, dropped: meter.dropped.clone() }, arrived)
    }

    /// The trace and the number of the span of a request that comes with this context, where it has one: what the caller says
    /// counts, and who says nothing begins a trace, of which a part has spans.
    pub fn begin(&self, given: Option<&Context>) -> Option<(Context, SpanId)> {
        let context = match given {
            Some(context) => context.sampled.then(|| context.clone())?,
            None => Context::root().filter(|context| self.takes(context))?,
        };
        Some((context, rand::random()))
    }

    fn takes(&self, root: &Context) -> bool {
        self.threshold == u64::MAX || root.chance() < self.threshold
    }

    /// Queues a span, or drops it where there is no room.
    pub fn end(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.dropped.increment(1);
        }
    }
}

impl Metrics {
    /// What counts spans.
    pub fn spans(&self) -> SpanMeter {
        let of = |result| self.counter(SPANS, &[("result", result)]);
        SpanMeter { exported: of("exported"), dropped: of("dropped"), failed: of("failed") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(sample_ratio: f64) -> Spans {
        let settings = TracingSettings { sample_ratio, ..TracingSettings::default() };
        Spans::new(&settings, &Metrics::new().spans()).0
    }

    #[test]
    fn what_the_caller_says_stands_above_the_ratio() {
        let of = |flag| Context::read(&format!("00-{:032x}-{:016x}-{flag}", 7, 9)).unwrap();
        let (context, id) = spans(0.0).begin(Some(&of("01"))).unwrap();
        assert_eq!((context.trace_id, context.parent), (7_u128.to_be_bytes(), 9_u64.to_be_bytes()));
        assert_ne!(id, context.parent);
        assert!(spans(1.0).begin(Some(&of("00"))).is_none());
    }

    #[test]
    fn of_the_traces_that_begin_here_a_part_has_spans() {
        let part = |ratio| {
            let spans = spans(ratio);
            (0..10_000).filter(|_| spans.begin(None).is_some()).count()
        };
        assert_eq!((part(0.0), part(1.0)), (0, 10_000));
        // Further away than this is a chance of less than 1 in 10^20.
        assert!((2_000..3_000).contains(&part(0.25)));
    }
}
