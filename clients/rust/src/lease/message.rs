//! Conversion between the lease state machine and the messages of the API.

use std::time::Duration;

use weir_core::{
    domain::Micros,
    hold::{Grant, LeaseAnswer, LeaseRequest, Offer, RenewalTotals},
};

use super::entry::Entry;
use crate::{
    Check,
    proto::{self, CheckRequest, CheckResponse, LeaseGrant, LeaseResponse, LeaseTerms},
};

/// Encodes a request. With `levels` the answer to its check contains every limit.
pub(super) fn request(entry: &Entry, request: &LeaseRequest, levels: bool) -> proto::LeaseRequest {
    let LeaseRequest { lease, sequence, spent, kept, want, generation, cost } = *request;
    let CheckRequest { domain, key, .. } = &*entry.key;
    let check = Check::new(key).domain(domain).cost(cost);
    let check = CheckRequest { summary_only: !levels, ..check.into_request() };
    let holder = entry.holder.to_vec();
    proto::LeaseRequest { check: Some(check), holder, lease, sequence, spent, kept, want, generation }
}

/// Decodes an answer. Terms without valid times are ignored.
pub(super) fn answer(answer: &LeaseResponse) -> LeaseAnswer {
    let LeaseResponse { lease, sequence, decision, grant, terms, .. } = answer;
    let grant = grant.as_ref().map(|LeaseGrant { units, free, is_kept, is_recalled, refused_for }| Grant {
        sequence: *sequence,
        units: *units,
        free: *free,
        is_kept: *is_kept,
        is_recalled: *is_recalled,
        refused_for: micros(refused_for.as_ref()).unwrap_or_default(),
        settled: RenewalTotals::default(),
    });
    let offer = terms.as_ref().and_then(|LeaseTerms { generation, ttl, hold_off, scarce }| {
        Some(Offer::new(*generation, micros(ttl.as_ref())?, micros(hold_off.as_ref())?, *scarce))
    });
    let is_refused = decision.as_ref().is_some_and(is_refused_for_now);
    LeaseAnswer { lease: *lease, sequence: *sequence, is_refused, grant, offer }
}

/// Whether a check is refused but may pass later. The service must answer each check that is never admitted.
pub(crate) fn is_refused_for_now(decision: &CheckResponse) -> bool {
    !decision.allowed && !decision.never
}

pub(super) fn micros(duration: Option<&prost_types::Duration>) -> Option<Micros> {
    Micros::try_from(Duration::try_from(*duration?).ok()?.as_micros()).ok()
}

pub(super) fn time(time: Micros) -> Duration {
    Duration::from_micros(time.unsigned_abs())
}
