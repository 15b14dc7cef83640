//! Exports spans to a collector with OpenTelemetry's SDK, on a separate thread: a slow or unreachable collector costs
//! spans, never a check.

mod dial;
mod http;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{
    Protocol as Otlp, SpanExporter, WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter as Export,
        SpanProcessor,
    },
};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use crate::telemetry::{
    Metrics, Spans, TracingSettings,
    spans::{Protocol, SpanMetrics},
};

/// Maximum number of spans in a batch.
const MAX_BATCH: usize = 512;
/// Longest time that a span waits for its batch.
const MAX_BATCH_DELAY: Duration = Duration::from_secs(1);

/// Exports spans while the service runs.
pub(super) struct SpanExport {
    provider: SdkTracerProvider,
    timeout: Duration,
}

impl SpanExport {
    /// Starts the export if the settings name a collector.
    ///
    /// # Errors
    /// A message for an invalid endpoint or an unusable file of CA certificates.
    pub(super) fn start(
        settings: &TracingSettings,
        metrics: &Metrics,
    ) -> Result<(Option<Self>, Option<Spans>), String> {
        if !settings.is_on() {
            return Ok((None, None));
        }
        let timeout = settings.timeout.duration();
        let exporter = exporter(settings, timeout)?;
        let queue = Queue::new(exporter, settings.max_queue, SpanMetrics::new(metrics.registry()));
        let provider = SdkTracerProvider::builder().with_span_processor(queue).with_resource(resource(settings));
        let (spans, provider) = Spans::new(provider, settings.sample_ratio);
        Ok((Some(Self { provider, timeout }), Some(spans)))
    }

    /// Exports the remaining spans within the timeout of a batch, and ends.
    pub(super) async fn finish(self) {
        let ended = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(self.timeout)).await;
        if !matches!(ended, Ok(Ok(()))) {
            warn!("the collector did not accept the last spans in time");
        }
    }
}

/// Checks that spans could be exported, without exporting any.
///
/// # Errors
/// As [`SpanExport::start`].
pub(super) fn check(settings: &TracingSettings) -> Result<(), String> {
    if settings.is_on() { exporter(settings, settings.timeout.duration()).map(drop) } else { Ok(()) }
}

fn exporter(settings: &TracingSettings, timeout: Duration) -> Result<SpanExporter, String> {
    let builder = SpanExporter::builder();
    // Set explicitly, so that no environment variable of the SDK overrides it.
    let exporter = match settings.protocol {
        Protocol::Grpc => {
            let channel = dial::channel(settings, timeout)?;
            builder.with_tonic().with_channel(channel).with_protocol(Otlp::Grpc).with_timeout(timeout).build()
        }
        Protocol::Http => {
            let builder = builder.with_http().with_http_client(http::Sender::new(settings)?);
            let builder = builder.with_endpoint(http::url(settings)).with_protocol(Otlp::HttpBinary);
            builder.with_timeout(timeout).build()
        }
    };
    exporter.map_err(|error| format!("tracing: {error}"))
}

/// Returns the OpenTelemetry resource, which identifies this service in its spans.
fn resource(settings: &TracingSettings) -> Resource {
    let instance = match settings.service_instance_id.as_str() {
        "" => format!("{:032x}", rand::random::<u128>()),
        named => named.to_owned(),
    };
    let attributes =
        [KeyValue::new("service.version", env!("CARGO_PKG_VERSION")), KeyValue::new("service.instance.id", instance)];
    let namespace = Some(settings.service_namespace.clone()).filter(|namespace| !namespace.is_empty());
    let namespace = namespace.map(|namespace| KeyValue::new("service.namespace", namespace));
    let attributes = attributes.into_iter().chain(namespace);
    Resource::builder_empty().with_service_name(settings.service_name.clone()).with_attributes(attributes).build()
}

/// The bounded queue of spans to export. The queue of the SDK drops spans without reporting them when it is full.
#[derive(Debug)]
struct Queue {
    batches: BatchSpanProcessor,
    /// A permit for each span that may be queued or in flight.
    places: Arc<Semaphore>,
    metrics: SpanMetrics,
}

impl Queue {
    fn new(exporter: SpanExporter, max_queue: usize, metrics: SpanMetrics) -> Self {
        let places = Arc::new(Semaphore::new(max_queue));
        let exporter = CountingExporter {
            exporter,
            places: Arc::clone(&places),
            metrics: metrics.clone(),
            has_failed: AtomicBool::new(false),
        };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(max_queue)
            .with_max_export_batch_size(MAX_BATCH)
            .with_scheduled_delay(MAX_BATCH_DELAY)
            .build();
        Self { batches: BatchSpanProcessor::new(exporter, config), places, metrics }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        match self.places.try_acquire() {
            Ok(permit) => {
                permit.forget();
                self.batches.on_end(span);
            }
            Err(_) => self.metrics.dropped.increment(1),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// An exporter that counts spans by result.
#[derive(Debug)]
struct CountingExporter {
    exporter: SpanExporter,
    places: Arc<Semaphore>,
    metrics: SpanMetrics,
    /// Whether the last batch was rejected.
    has_failed: AtomicBool,
}

impl Export for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let taken = self.exporter.export(batch).await;
        self.places.add_permits(count);
        let result = if taken.is_ok() { &self.metrics.exported } else { &self.metrics.failed };
        result.increment(count as u64);
        match (&taken, self.has_failed.swap(taken.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => warn!(%error, "the collector does not accept spans; they are lost until it does"),
            (Ok(()), true) => info!("the collector accepts spans again"),
            _ => {}
        }
        taken
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
