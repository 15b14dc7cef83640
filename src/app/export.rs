//! Sends spans to a collector, by OTLP over gRPC. It has a task of its own: a collector that is slow or away costs spans, never a check.

mod dial;
mod message;

use std::{error::Error, pin::pin, time::Duration};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, trace_service_client::TraceServiceClient},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans},
};
use tokio::{
    sync::mpsc::{self, Receiver},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tracing::{info, warn};

use crate::telemetry::{
    Metrics, Spans, TracingSettings,
    spans::{Span, SpanMeter},
};

/// Most spans that are sent together.
const MAX_BATCH: usize = 512;
/// How long a span waits for others at most.
const EVERY: Duration = Duration::from_secs(1);
/// How long nothing is sent after the collector has not taken something.
const PAUSE: Duration = Duration::from_secs(1);

/// What sends spans while the service runs.
pub struct Exporting {
    end: CancellationToken,
    task: JoinHandle<()>,
    timeout: Duration,
}

impl Exporting {
    /// Begins, where the settings name a collector; who makes the spans is told.
    ///
    /// # Errors
    /// A sentence, for an endpoint that is none and a file of authorities that cannot be used.
    pub fn start(settings: &TracingSettings, metrics: &Metrics) -> Result<(Option<Self>, Option<Spans>), String> {
        if !settings.is_on() {
            return Ok((None, None));
        }
        let timeout = settings.timeout.duration();
        let channel = dial::channel(settings, timeout)?;
        let meter = metrics.spans();
        let (spans, arrived) = Spans::new(settings, &meter);
        let exporter = Exporter {
            client: TraceServiceClient::new(channel),
            resource: message::resource(&settings.service_name),
            arrived,
            meter,
            end: CancellationToken::new(),
            has_failed: false,
        };
        let end = exporter.end.clone();
        Ok((Some(Self { end, task: tokio::spawn(exporter.run()), timeout }), Some(spans)))
    }

    /// Sends what is left, for as long as a batch may take, and ends.
    pub async fn finish(mut self) {
        self.end.cancel();
        if timeout(self.timeout, &mut self.task).await.is_err() {
            warn!("the collector did not take the last spans in time");
            self.task.abort();
        }
    }
}

struct Exporter {
    client: TraceServiceClient<Channel>,
    resource: Resource,
    arrived: Receiver<Span>,
    meter: SpanMeter,
    end: CancellationToken,
    /// The last batch was not taken.
    has_failed: bool,
}

impl Exporter {
    async fn run(mut self) {
        loop {
            let batch = self.batch().await;
            if batch.is_empty() {
                return;
            }
            self.export(&batch).await;
            if self.has_failed {
                let _ = timeout(PAUSE, self.end.cancelled()).await;
            }
        }
    }

    /// The next spans, once there are many or the first has waited long enough; none when it is time to end.
    async fn batch(&mut self) -> Vec<Span> {
        let mut batch = Vec::new();
        if more(&mut self.arrived, &self.end, &mut batch).await {
            let mut over = pin!(sleep(EVERY));
            while batch.len() < MAX_BATCH {
                tokio::select! {
                    biased;
                    () = over.as_mut() => break,
                    came = more(&mut self.arrived, &self.end, &mut batch) => if !came { break },
                }
            }
        }
        batch
    }

    async fn export(&mut self, batch: &[Span]) {
        let (count, sent) = (batch.len() as u64, message::spans(batch));
        let scope_spans = vec![ScopeSpans { scope: Some(message::scope()), spans: sent, ..Default::default() }];
        let resource = Some(self.resource.clone());
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { resource, scope_spans, ..Default::default() }],
        };
        match self.client.export(request).await {
            Ok(answer) => {
                let partial = answer.into_inner().partial_success.unwrap_or_default();
                // A span of ours may be two of theirs.
                let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(count);
                self.meter.exported.increment(count - rejected);
                self.meter.failed.increment(rejected);
                if std::mem::take(&mut self.has_failed) {
                    info!("the collector takes spans again");
                }
            }
            Err(status) => {
                self.meter.failed.increment(count);
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!(
                        error = &status as &dyn Error,
                        "the collector does not take spans; they are lost until it does"
                    );
                }
            }
        }
    }
}

/// Waits for more spans; `false` when there will be none.
async fn more(arrived: &mut mpsc::Receiver<Span>, end: &CancellationToken, batch: &mut Vec<Span>) -> bool {
    let room = MAX_BATCH - batch.len();
    if !end.is_cancelled() {
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            came = arrived.recv_many(batch, room) => return came > 0,
        }
    }
    arrived.close();
    arrived.recv_many(batch, room).await > 0
}
