//! How buckets stand: what is assigned to each Envoy, what it used and denied.

use std::cmp::Reverse;

use super::{Book, Bucket, Division, Rule};
use crate::transport::rlqs::wire;

/// Most Envoys of one bucket that are told.
const MAX_ENVOYS: usize = 100;

/// A bucket, its limit, and the Envoys that report it to this replica. Rates are in requests a second.
#[derive(Debug)]
pub struct BucketStanding {
    /// Its entries, in the order of their keys.
    pub entries: Vec<(String, String)>,
    /// The least rate on its path; `None`: it has no limit.
    pub limit: Option<f64>,
    /// The streams that report it.
    pub streams: u32,
    /// Those with the largest demand, at most 100.
    pub envoys: Vec<EnvoyStanding>,
}

/// An Envoy in one bucket.
#[derive(Debug)]
pub struct EnvoyStanding {
    /// Its address; `None` for a unix socket, and for one whose stream has ended.
    pub peer: Option<String>,
    /// Its assignment; `None`: none yet.
    pub assigned: Option<f64>,
    /// Requests that it allowed, by its last report.
    pub used: f64,
    /// Requests that it denied, by its last report.
    pub denied: f64,
    /// Whether its stream has ended: it keeps its share until that is over.
    pub has_left: bool,
}

impl Book {
    /// The buckets of a domain with the largest demand, at most so many.
    pub fn standings(&self, domain: usize, most: usize) -> Vec<BucketStanding> {
        let demand = |bucket: &Bucket| match &bucket.rule {
            Rule::Divided(division) => self.divider.rate_and_demand(division.bucket).map_or(0, |(_, demand)| demand),
            Rule::AllowAll | Rule::DenyAll => 0,
        };
        let mut found: Vec<_> = self.buckets.values().filter(|bucket| bucket.domain == domain).collect();
        // Equal ones keep their places between two looks.
        found.sort_by_cached_key(|bucket| (Reverse(demand(bucket)), bucket.id.clone()));
        found.truncate(most);
        found.into_iter().map(|bucket| self.standing(bucket)).collect()
    }

    fn standing(&self, bucket: &Bucket) -> BucketStanding {
        let (limit, envoys) = match &bucket.rule {
            Rule::AllowAll => (None, Vec::new()),
            Rule::DenyAll => (Some(0.0), Vec::new()),
            Rule::Divided(division) => {
                let rate = self.divider.rate_and_demand(division.bucket).map(|(rate, _)| per_second(rate));
                (rate, self.envoys(division))
            }
        };
        let entries = wire::entries(&bucket.id).unwrap_or_default().into_iter().collect();
        BucketStanding { entries, limit, streams: bucket.streams, envoys }
    }

    fn envoys(&self, division: &Division) -> Vec<EnvoyStanding> {
        let mut holders: Vec<_> = self.divider.holders(division.bucket).collect();
        holders.sort_by_key(|holder| (Reverse(holder.allowed + holder.denied), holder.member));
        holders.truncate(MAX_ENVOYS);
        let standing = holders.into_iter().map(|holder| {
            let stream = division.owners.get(holder.member.index()).and_then(|stream| self.streams.get(stream));
            EnvoyStanding {
                peer: stream.and_then(|stream| stream.peer).map(|peer| peer.to_string()),
                assigned: holder.assigned.map(per_second),
                used: per_second(holder.allowed),
                denied: per_second(holder.denied),
                has_left: holder.has_left,
            }
        });
        standing.collect()
    }
}

fn per_second(rate: u64) -> f64 {
    rate as f64 / weir_core::quota::UNITS_PER_REQUEST as f64
}
