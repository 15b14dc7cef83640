//! The status of buckets: the assignment of each Envoy, and the requests that it allowed and denied.

use std::cmp::Reverse;

use serde::Serialize;

use super::{Bucket, Division, QuotaState, Rule};
use crate::transport::rlqs::wire;

/// Maximum number of Envoys in the status of a bucket.
const MAX_ENVOYS: usize = 100;

/// The status of a bucket: its limit, and the Envoys that report it to this replica. Rates are in requests per second.
#[derive(Debug, Serialize)]
pub struct BucketStatus {
    /// Its entries, in the order of their keys.
    pub entries: Vec<(String, String)>,
    /// The lowest rate on its path; `None` if it has no limit.
    pub limit: Option<f64>,
    /// Number of streams that report it.
    pub streams: u32,
    /// The Envoys with the most requests, at most 100.
    pub envoys: Vec<EnvoyStatus>,
}

/// The status of an Envoy in one bucket.
#[derive(Debug, Serialize)]
pub struct EnvoyStatus {
    /// Its address; `None` for a unix socket, and if its stream has ended.
    pub peer: Option<String>,
    /// Its assigned rate; `None` before its first assignment.
    pub assigned: Option<f64>,
    /// Rate of the requests that it allowed, by its last report.
    pub used: f64,
    /// Rate of the requests that it denied, by its last report.
    pub denied: f64,
    /// Whether its stream has ended. Its share is kept until the assignment expires.
    pub has_left: bool,
}

impl QuotaState {
    /// Returns the `most` buckets of a domain with the largest demand.
    pub fn statuses(&self, domain: usize, most: usize) -> Vec<BucketStatus> {
        let demand = |bucket: &Bucket| match &bucket.rule {
            Rule::Divided(division) => self.divider.rate_and_demand(division.bucket).map_or(0, |(_, demand)| demand),
            Rule::AllowAll | Rule::DenyAll => 0,
        };
        let mut found: Vec<_> = self.buckets.values().filter(|bucket| bucket.domain == domain).collect();
        // The id makes the order of equal demands stable between calls.
        found.sort_by_cached_key(|bucket| (Reverse(demand(bucket)), bucket.id.clone()));
        found.truncate(most);
        found.into_iter().map(|bucket| self.status(bucket)).collect()
    }

    fn status(&self, bucket: &Bucket) -> BucketStatus {
        let (limit, envoys) = match &bucket.rule {
            Rule::AllowAll => (None, Vec::new()),
            Rule::DenyAll => (Some(0.0), Vec::new()),
            Rule::Divided(division) => {
                let rate = self.divider.rate_and_demand(division.bucket).map(|(rate, _)| per_second(rate));
                (rate, self.envoys(division))
            }
        };
        let entries = wire::entries(&bucket.id).unwrap_or_default().into_iter().collect();
        BucketStatus { entries, limit, streams: bucket.streams, envoys }
    }

    fn envoys(&self, division: &Division) -> Vec<EnvoyStatus> {
        let mut holders: Vec<_> = self.divider.holders(division.bucket).collect();
        holders.sort_by_key(|holder| (Reverse(holder.allowed + holder.denied), holder.member));
        holders.truncate(MAX_ENVOYS);
        let statuses = holders.into_iter().map(|holder| {
            let stream = division.owners.get(holder.member.index()).and_then(|stream| self.streams.get(stream));
            EnvoyStatus {
                peer: stream.and_then(|stream| stream.peer).map(|peer| peer.to_string()),
                assigned: holder.assigned.map(per_second),
                used: per_second(holder.allowed),
                denied: per_second(holder.denied),
                has_left: holder.has_left,
            }
        });
        statuses.collect()
    }
}

fn per_second(rate: u64) -> f64 {
    rate as f64 / weir_core::quota::UNITS_PER_REQUEST as f64
}
