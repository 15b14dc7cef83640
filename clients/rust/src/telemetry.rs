//! Metrics and spans of checks, with the API of OpenTelemetry; a no-op without the feature. They never contain a key.

#[cfg(feature = "opentelemetry")]
pub(crate) use api::{Telemetry, observe_breaker};
#[cfg(not(feature = "opentelemetry"))]
pub(crate) use none::{Telemetry, observe_breaker};

#[cfg(not(feature = "opentelemetry"))]
mod none {
    use std::sync::Arc;

    use crate::{Decision, Error, Source, call::Caller};

    pub(crate) struct Telemetry;

    pub(crate) fn observe_breaker(_target: &str, _caller: &Arc<Caller>) {}

    impl Telemetry {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn count(&self, _domain: &str, _decided: Option<(bool, &Source)>) {}

        pub(crate) fn count_leased(&self, _domain: &str, _allowed: bool, _count: u64) {}

        pub(crate) async fn observe(
            &self,
            _domain: &str,
            check: impl Future<Output = Result<Decision, Error>>,
        ) -> Result<Decision, Error> {
            check.await
        }
    }
}

#[cfg(feature = "opentelemetry")]
mod api {
    use std::{sync::Arc, time::Instant};

    use opentelemetry::{
        KeyValue, global,
        global::{BoxedSpan, BoxedTracer},
        metrics::{Counter, Histogram},
        trace::{Span as _, SpanKind, Status, Tracer as _},
    };

    use crate::{BreakerState, Decision, Error, Source, call::Caller};

    const SCOPE: &str = "weir-client";
    /// Histogram bucket boundaries, the same in all client packages.
    const BOUNDARIES_S: [f64; 13] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0];

    pub(crate) struct Telemetry {
        checks: Counter<u64>,
        duration: Histogram<f64>,
        tracer: BoxedTracer,
    }

    impl Telemetry {
        pub(crate) fn new() -> Self {
            let meter = global::meter(SCOPE);
            Self {
                checks: meter
                    .u64_counter("weir.client.checks")
                    .with_description(
                        "Checks, by outcome (allowed, refused, error) and by who decided (service, lease, fallback).",
                    )
                    .build(),
                duration: meter
                    .f64_histogram("weir.client.duration")
                    .with_unit("s")
                    .with_description("Duration of checks, retries included.")
                    .with_boundaries(BOUNDARIES_S.to_vec())
                    .build(),
                tracer: global::tracer(SCOPE),
            }
        }

        pub(crate) async fn observe(
            &self,
            domain: &str,
            check: impl Future<Output = Result<Decision, Error>>,
        ) -> Result<Decision, Error> {
            let mut span = self.tracer.span_builder("weir.check").with_kind(SpanKind::Client).start(&self.tracer);
            span.set_attribute(KeyValue::new("weir.domain", name(domain).to_owned()));
            let since = Instant::now();
            let result = check.await;
            let label = KeyValue::new("domain", name(domain).to_owned());
            self.duration.record(since.elapsed().as_secs_f64(), &[label]);
            self.count(domain, result.as_ref().ok().map(|decision| (decision.allowed, &decision.source)));
            describe(&mut span, &result);
            span.end();
            result
        }

        /// Counts a check with its outcome and source; `None`: an error.
        pub(crate) fn count(&self, domain: &str, decided: Option<(bool, &Source)>) {
            let source = match decided {
                Some((_, Source::Fallback(_))) => "fallback",
                _ => "service",
            };
            self.add(domain, decided.map_or("error", |(allowed, _)| outcome(allowed)), source, 1);
        }

        /// Counts checks that a lease decided. They have no spans and no durations.
        pub(crate) fn count_leased(&self, domain: &str, allowed: bool, count: u64) {
            self.add(domain, outcome(allowed), "lease", count);
        }

        fn add(&self, domain: &str, outcome: &'static str, source: &'static str, count: u64) {
            let domain = KeyValue::new("domain", name(domain).to_owned());
            self.checks.add(count, &[domain, KeyValue::new("outcome", outcome), KeyValue::new("source", source)]);
        }
    }

    /// Reports the state of a client's circuit breaker, for as long as the client lives.
    pub(crate) fn observe_breaker(target: &str, caller: &Arc<Caller>) {
        let (address, caller) = (KeyValue::new("server.address", target.to_owned()), Arc::downgrade(caller));
        global::meter(SCOPE)
            .u64_observable_gauge("weir.client.breaker")
            .with_description("State of the circuit breaker: 0 closed, 1 half-open (a probe is under way), 2 open.")
            .with_callback(move |observer| {
                let state = match caller.upgrade().map(|caller| caller.breaker.state()) {
                    Some(BreakerState::Closed) => 0,
                    Some(BreakerState::HalfOpen) => 1,
                    Some(BreakerState::Open) => 2,
                    None => return,
                };
                observer.observe(state, std::slice::from_ref(&address));
            })
            .build();
    }

    /// Names the domain like the service's own metrics.
    fn name(domain: &str) -> &str {
        if domain.is_empty() { "default" } else { domain }
    }

    fn outcome(allowed: bool) -> &'static str {
        if allowed { "allowed" } else { "refused" }
    }

    fn describe(span: &mut BoxedSpan, result: &Result<Decision, Error>) {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        match result {
            Ok(decision) => {
                span.set_attribute(KeyValue::new("weir.allowed", decision.allowed));
                span.set_attribute(KeyValue::new("weir.limit", number(decision.limit)));
                span.set_attribute(KeyValue::new("weir.remaining", number(decision.remaining)));
                if let Source::Fallback(error) = &decision.source {
                    span.set_status(Status::error(format!("{:?}", error.code())));
                }
            }
            // The text of an error may quote the request.
            Err(error) => span.set_status(Status::error(format!("{:?}", error.code()))),
        }
    }
}
