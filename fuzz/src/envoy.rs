//! Requests of Envoy, as messages and as JSON.

use futures_util::FutureExt;
use prost::Message;
use tonic::Code;
use weir::{
    limiter::descriptors::{DescriptorLimit, MAX_DESCRIPTORS},
    transport::rls::{EnvoySettings, Headers, Rls, pb, wire::RateLimitRequest},
};
use weir_core::domain::{Unit, request::MAX_COST};

use super::{fixture, http, messages::nests_groups};

/// A request is read if prost reads it, with the same result, and answered unless it is empty.
pub fn ratelimit(bytes: &[u8]) {
    let read = RateLimitRequest::read(bytes).ok();
    if let Ok(known) = pb::RateLimitRequest::decode(bytes) {
        match &read {
            Some(read) => compare(read, &known),
            None => assert!(nests_groups(bytes), "prost reads {known:?}"),
        }
    }
    let Some(request) = read else { return };
    assert_eq!(request.query.descriptors.len(), request.own_hits.len());
    let settings = EnvoySettings { headers: Headers::Both, dynamic_metadata: true, ..EnvoySettings::default() };
    let service = Rls::new(fixture::checks(), settings);
    match service.answer(&request).now_or_never().expect("memory answers at once") {
        Ok(answer) => assert_eq!(answer.statuses.len(), request.query.descriptors.len()),
        Err(refused) => assert_eq!(refused.code, Code::InvalidArgument, "{}", refused.message),
    }
}

fn compare(read: &RateLimitRequest, known: &pb::RateLimitRequest) {
    let (query, hits_of_all) = (&read.query, known.hits_addend.max(1));
    assert_eq!((&query.domain, read.hits_addend), (&known.domain, known.hits_addend));
    assert_eq!(query.descriptors.len(), known.descriptors.len().min(MAX_DESCRIPTORS + 1));
    for ((read, own_hits), known) in query.descriptors.iter().zip(&read.own_hits).zip(&known.descriptors) {
        assert_eq!(*own_hits, known.hits_addend.is_some());
        let hits = known.hits_addend.unwrap_or(hits_of_all.into()).min(MAX_COST as u64) as i64;
        assert_eq!(read.hits, if known.is_negative_hits { -hits } else { hits });
        let over = known.limit.as_ref().and_then(|limit| {
            // Units are those of answers: an override's own have no week.
            let unit = pb::rate_limit_response::rate_limit::Unit::try_from(limit.unit).ok()?;
            let unit = Unit::named(&unit.as_str_name().to_lowercase())?;
            Some(DescriptorLimit { requests_per_unit: limit.requests_per_unit, unit })
        });
        assert_eq!(read.over, over);
        // If there are more entries than any rule has, only some are kept: a hash of the others follows the last value.
        let kept = read.entries.len();
        assert!(kept == known.entries.len() || kept < known.entries.len().min(20));
        for (at, ((key, value), known_entry)) in read.entries.iter().zip(&known.entries).enumerate() {
            let is_last = at + 1 == kept && kept < known.entries.len();
            let rest = value.strip_prefix(&*known_entry.value).expect("the value");
            assert!(*key == known_entry.key && rest.len() == if is_last { 65 } else { 0 });
        }
    }
}

/// A body of `/json` is answered with an error for invalid input or with a decision.
pub fn json(bytes: &[u8]) {
    http::post("/json", bytes);
}
