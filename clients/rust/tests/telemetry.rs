//! Metrics and spans, through the OpenTelemetry SDK. The SDK's providers are global, so this test is a separate
//! process.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

#[path = "client/support.rs"]
mod support;

use std::{collections::BTreeMap, time::Duration};

use opentelemetry::{KeyValue, global};
use opentelemetry_sdk::{
    metrics::{
        InMemoryMetricExporter, PeriodicReader, SdkMeterProvider,
        data::{AggregatedMetrics, MetricData},
    },
    trace::{InMemorySpanExporter, SdkTracerProvider},
};
use weir_client::{BreakerSettings, Check, OnFailure, Reserve};

use support::{TRADE, Weir, dir, eventually, patient};

/// The same in all client packages.
const BOUNDARIES_S: [f64; 13] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0];

fn labels<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
    let labels: BTreeMap<_, _> = attributes.map(|label| (label.key.as_str(), label.value.to_string())).collect();
    labels.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// Returns the last value of each series; the count of a histogram.
fn series(exporter: &InMemoryMetricExporter) -> BTreeMap<String, u64> {
    let mut series = BTreeMap::new();
    for metrics in exporter.get_finished_metrics().expect("exported") {
        for metric in metrics.scope_metrics().flat_map(|scope| scope.metrics()) {
            let name = |labels| format!("{}{{{labels}}}", metric.name());
            match metric.data() {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    series.extend(sum.data_points().map(|point| (name(labels(point.attributes())), point.value())));
                }
                AggregatedMetrics::U64(MetricData::Gauge(gauge)) => {
                    series.extend(gauge.data_points().map(|point| (name(labels(point.attributes())), point.value())));
                }
                AggregatedMetrics::F64(MetricData::Histogram(timed)) => {
                    for point in timed.data_points() {
                        assert_eq!(point.bounds().collect::<Vec<_>>(), BOUNDARIES_S);
                    }
                    series.extend(timed.data_points().map(|point| (name(labels(point.attributes())), point.count())));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    series
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_are_counted_timed_and_traced() {
    let (metrics, spans) = (InMemoryMetricExporter::default(), InMemorySpanExporter::default());
    let meters = SdkMeterProvider::builder().with_reader(PeriodicReader::builder(metrics.clone()).build()).build();
    global::set_meter_provider(meters.clone());
    global::set_tracer_provider(SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build());

    let dir = dir();
    let service = Weir::start(&dir);
    let breaker = BreakerSettings { failures: 3, ..BreakerSettings::default() };
    let address = service.address.clone();
    let weir = patient(&address).retries(0).breaker(breaker).build().unwrap();
    weir.check(Check::new(TRADE).cost(3)).await.unwrap();
    weir.check(TRADE).await.unwrap();
    weir.check(Check::new(TRADE).domain("unknown")).await.unwrap_err();
    let batch = weir.check_batch([Check::new(TRADE), Check::new(TRADE).domain("unknown")]).await;
    assert!(batch[0].is_ok() && batch[1].is_err(), "{batch:?}");
    assert!(!weir.check_all([TRADE, ["user", "berta", "trade"]]).await.unwrap().allowed);
    weir.reserve(Reserve::new(["user", "cleo"]).ttl(Duration::from_secs(9))).await.unwrap().into_result().unwrap();
    drop(service);
    weir.check(TRADE).await.unwrap_err();
    weir.check(Check::new(TRADE).on_failure(OnFailure::Allow)).await.unwrap();
    weir.reset(TRADE).await.unwrap_err();
    let other = patient("127.0.0.1:1").build().unwrap();
    drop(patient("localhost:2").build().unwrap());

    // A dropped client is reported no longer, once its tasks have ended.
    let series = eventually("without the dropped client", async || {
        metrics.reset();
        meters.force_flush().unwrap();
        Some(series(&metrics)).filter(|series| series.keys().all(|name| !name.contains("localhost:2")))
    })
    .await;
    drop(other);
    let breaker = format!("weir.client.breaker{{server.address={address}}}");
    let expected = [
        (&*breaker, 2),
        ("weir.client.breaker{server.address=127.0.0.1:1}", 0),
        ("weir.client.checks{domain=default,outcome=allowed,source=fallback}", 1),
        ("weir.client.checks{domain=default,outcome=allowed,source=service}", 3),
        ("weir.client.checks{domain=default,outcome=error,source=service}", 1),
        ("weir.client.checks{domain=default,outcome=refused,source=service}", 3),
        ("weir.client.checks{domain=unknown,outcome=error,source=service}", 2),
        ("weir.client.duration{domain=default}", 5),
        ("weir.client.duration{domain=unknown}", 1),
    ];
    assert_eq!(series, expected.map(|(name, value)| (name.to_owned(), value)).into());

    let spans = spans.get_finished_spans().unwrap();
    assert!(spans.iter().all(|span| span.name == "weir.check"), "{spans:?}");
    let labels: Vec<_> = spans.iter().map(|span| labels(span.attributes.iter())).collect();
    assert_eq!(
        labels[..3],
        [
            "weir.allowed=true,weir.domain=default,weir.limit=3,weir.remaining=0",
            "weir.allowed=false,weir.domain=default,weir.limit=3,weir.remaining=0",
            "weir.domain=unknown",
        ]
    );
    // No span contains the key, not even in an outage.
    assert!(!format!("{spans:?}").contains("alex"));
    assert_eq!(spans.len(), 6);
}
