//! Allocations of a check.

#![allow(clippy::expect_used)]

use std::{future::ready, sync::Arc};

use weir_core::{algorithm::Bounds, domain::Key};
use weir_policy::{Domain, Policy, descriptors, file};
use weir_settings::document;
use weir_store::{MemoryStore, SystemClock, memory::MemorySettings};

use allocation_counter::measure;
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, stream};
use prost::Message;
use tonic::{Request, Response, Status, Streaming, body::Body};
use weir::{
    limiter::Limiter,
    proto::CheckRequest,
    telemetry::Metrics,
    transport::{api, check_service::CheckService, grpc},
};

/// Four limits, two of them on one node, found by name and by `*`, one of them under a factor.
const POLICY: &str = "schema: { user: { children: { '*': { limits: [[15, 30, 60], [99, 1, 1]], children: { trade: { factor: \
                      0.5, limits: [5, 10, 15], children: { '*': { limits: [{ fixed_window: { count: 5, calendar: day, \
                      zone: Europe/Berlin } }] } } } } } } } }";

fn domain() -> Domain {
    let document = document::parse(POLICY).expect("YAML").expect("a document");
    file::read(&document, &Bounds::default()).expect("a policy")
}

#[test]
fn resolving_a_key_allocates_nothing() {
    let domain = domain();
    for (segments, levels) in [
        (&["user", "alex", "trade", "a-rather-long-name-of-something-that-is-traded"][..], 4),
        (&["user", "alex", "trade"], 3),
        (&["user", "alex", "elsewhere", "and", "further"], 2),
        (&["group", "alex"], 0),
    ] {
        let key = Key::new("", segments).expect("a key");
        let mut found = 0;
        let counted = measure(|| found = domain.levels(&key, 1, 1.0).map_or(0, |levels| levels.len()));
        assert_eq!(found, levels, "{segments:?}");
        assert_eq!(counted.count_total, 0, "{segments:?}: {counted:?}");
    }
}

#[test]
fn resolving_descriptors_allocates_nothing() {
    let text = "domain: d\ndescriptors: [{ key: user, value: 'a*', rate_limit: { unit: day, requests_per_unit: 1 } }]";
    let document = document::parse(text).expect("YAML").expect("a document");
    let domain = descriptors::file::read(&document, &weir_policy::Rules::default()).expect("a policy");
    let key = Key::new("d", &["user", "alex"]).expect("a key");
    let mut found = 0;
    let counted = measure(|| found = domain.levels(&key, 1, 1.0).map_or(0, |levels| levels.len()));
    assert_eq!((found, counted.count_total), (1, 0), "{counted:?}");
}

#[test]
fn a_short_key_is_built_without_allocation() {
    let counted = measure(|| assert_eq!(Key::new("api", &["user", "alex", "trade"]).map(|key| key.depth()), Ok(3)));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

#[test]
fn a_grpc_check_allocates_only_its_response() {
    let store = MemoryStore::new(MemorySettings::default(), SystemClock::new());
    let limiter = Limiter::new(store, Policy::new([domain()]), Metrics::new());
    let checks = CheckService::new(Arc::new(limiter), Bounds::default());
    for (segments, asked) in [(&["user", "alex", "trade", "metals"][..], 4), (&["user", "alex"], 2)] {
        let key = segments.iter().map(|segment| (*segment).to_owned()).collect();
        let message = Bytes::from(CheckRequest { key, ..Default::default() }.encode_to_vec());
        let check = || api::call::check(&checks, message.clone()).now_or_never().is_some_and(|answer| answer.is_ok());
        // The first checks create the states and thread-local data.
        assert!(check() && check(), "{asked} levels");
        let counted = measure(|| assert!(check()));
        // The bytes of the answer, which grow once if there are many levels, and their owner.
        assert!(counted.count_total <= 3, "{asked} levels: {counted:?}");
    }
}

#[test]
fn a_stream_without_messages_allocates_little() {
    let answers = tower::service_fn(|_: Request<Streaming<Bytes>>| {
        ready(Ok::<_, Status>(Response::new(stream::pending::<Result<BytesMut, Status>>())))
    });
    let request = hyper::Request::new(Body::empty());
    let mut open = None;
    let counted = measure(|| open = grpc::codec::streaming(1 << 20).streaming(answers, request).now_or_never());
    assert!(open.is_some_and(|response| response.status().is_success()));
    assert!(counted.bytes_current <= 4 << 10, "{counted:?}");
}

#[test]
fn allocations_are_counted() {
    assert!(measure(|| drop(std::hint::black_box(vec![1_u8]))).count_total > 0);
}
