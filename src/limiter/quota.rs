//! Limits as rates to divide ([`weir_core::quota`]). The store is the authority over the part that each replica may
//! divide.
//!
//! A replica holds a part of a limit's rate: units of a **rate bucket** next to the limit's own state. The bucket is as
//! large as the rate, with one unit for each thousandth of a request per second. The units are held as leases are
//! ([`weir_core::hold`]), but never spent. So all replicas together never hold more than the rate, and the part of a
//! replica that stopped is free again when its hold expires.
//!
//! A replica publishes the demand of its holders in the same way: it holds units of a **demand bucket**, which is
//! practically unbounded. The units that are not free there are the demand of all replicas.

use std::{ptr, sync::LazyLock};

use weir_core::{
    algorithm::{Bounds, Params, find, fixed_window::FixedWindow},
    domain::{Charge, Key, Micros, OnStoreFailure, time::SECOND},
    hold::{Grant, Renewal},
    plan::{Level, Limit, Origin, Plan},
    quota::{MAX_RATE, UNITS_PER_REQUEST},
};
use weir_policy::{Domain, Overrides};
use weir_store::{Failure, Store};

use super::{
    Descriptor, DescriptorsRequest, Limiter, PolicyHandle,
    descriptors::{MatchedLimit, ResolvedDescriptor},
};

/// The demand of a replica that demands a whole limit. The demand bucket has capacity for `MAX_DEMANDS` of them.
pub const WHOLE_DEMAND: u64 = 1 << 20;
const MAX_DEMANDS: u64 = 1 << 12;
/// The lowest rate that can be assigned, in units: one step, and one for the full token bucket of an Envoy that joins.
const MIN_RATE: u64 = 2;

/// A limit whose rate is divided.
#[derive(Clone, Debug)]
pub struct QuotaLevel {
    /// The name of the limit's state for the key, unique among all states.
    pub name: Vec<u8>,
    /// The limit's rate in units, [`UNITS_PER_REQUEST`] for each request per second.
    pub rate: u64,
    key: Key,
    depth: u8,
    anchor: u8,
    of_rate: Limit,
    of_demand: Limit,
}

/// The limits of a bucket, root first, without limits in shadow mode and concurrency limits, which have no rate.
#[derive(Clone, Debug, Default)]
pub struct QuotaPath {
    /// The limits.
    pub levels: Vec<QuotaLevel>,
    /// The decision while the store is unavailable.
    pub on_store_failure: OnStoreFailure,
}

/// The part of a level that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldPart {
    /// A part of the limit's rate.
    Rate,
    /// The demand of this replica's holders, in parts of [`WHOLE_DEMAND`].
    Demand,
}

/// The limit of an operator's ban, which refuses every request.
static BANNED: LazyLock<Limit> = LazyLock::new(|| {
    let nothing = Params::FixedWindow(FixedWindow::in_unit(0, SECOND, false));
    Limit::new(Origin::Request, Some("ban"), "", 0, false, nothing)
});

impl QuotaLevel {
    fn new(key: &Key, depth: u8, anchor: u8, limit: &Limit) -> Option<Self> {
        let rate = rate(&limit.params);
        let name = Level::new(key, depth, anchor, limit, 0).state_name();
        let bucket = |what: &str, capacity: u64| {
            let name = format!("rlqs {what} {}", limit.ident_text());
            Some(Limit::new(Origin::Request, Some(&name), "", 0, false, bucket_of(capacity)?))
        };
        Some(Self {
            name,
            rate,
            key: key.clone(),
            depth,
            anchor,
            of_rate: bucket("rate", rate.max(1))?,
            of_demand: bucket("demand", WHOLE_DEMAND * MAX_DEMANDS)?,
        })
    }

    /// Whether the units held of one level are held of the other one.
    pub fn is_held_as(&self, other: &Self) -> bool {
        (self.rate, self.anchor) == (other.rate, other.anchor)
    }

    /// Returns the demand of all replicas if `free` units of the demand bucket are free.
    pub fn demand_of_all(free: u64) -> u64 {
        (WHOLE_DEMAND * MAX_DEMANDS).saturating_sub(free)
    }

    fn plan(&self, part: HeldPart) -> Plan<'_> {
        let limit = match part {
            HeldPart::Rate => &self.of_rate,
            HeldPart::Demand => &self.of_demand,
        };
        let level = Level::new(&self.key, self.depth, self.anchor, limit, 0);
        Plan::new([level].into_iter().collect(), Charge::AllOrNothing, None)
    }
}

impl<S: Store> Limiter<S> {
    /// Returns the limits of a bucket, which is named as a descriptor is: by its entries, in their order.
    pub fn quota_path(&self, handle: &PolicyHandle, domain: &str, entries: Vec<(String, String)>) -> Option<QuotaPath> {
        let descriptor = Descriptor { entries, hits: 0, over: None };
        let query = DescriptorsRequest { domain: domain.to_owned(), descriptors: vec![descriptor] };
        // One descriptor is never too many.
        let resolved = query.resolve(&handle.policy).ok()?;
        let (Some(domain), Some(found)) = (resolved.domain, resolved.descriptors.first()) else {
            return Some(QuotaPath::default());
        };
        let banned = resolved.banned().and_then(|key| QuotaLevel::new(&key, key.depth() as u8, domain.anchor, &BANNED));
        let levels = banned.into_iter().chain(levels(domain, found, handle.policy.overrides())).collect();
        Some(QuotaPath { levels, on_store_failure: domain.on_store_failure })
    }

    /// Serves a renewal of a part of a level.
    ///
    /// # Errors
    /// [`Failure`] if the store fails.
    pub async fn renew(&self, level: &QuotaLevel, part: HeldPart, renewal: &Renewal) -> Result<Grant, Failure> {
        self.store.renew(&level.plan(part), renewal).await
    }
}

/// Returns the levels of a bucket. If values share a count (`share_threshold`), all of them have the same shared level;
/// the change of an override of one of them is a separate level below.
fn levels<'a>(domain: &'a Domain, found: &ResolvedDescriptor<'a>, overrides: &'a Overrides) -> Vec<QuotaLevel> {
    let Some(key) = &found.key else { return Vec::new() };
    let is_divided = |matched: &MatchedLimit<'_>| !domain.shadow && matched.limit.params.as_concurrency().is_none();
    let level =
        |key: &Key, matched: &MatchedLimit<'_>| QuotaLevel::new(key, matched.depth, domain.anchor, matched.limit);
    let own: Vec<_> = found.enforced().filter(is_divided).collect();
    let is_overridden = found.overridden.is_some() && !own.is_empty();
    let Some(shared) = is_overridden.then(|| found.of_all_values(domain, overrides)).flatten() else {
        return own.iter().filter_map(|own| level(key, own)).collect();
    };
    let of_all: Vec<_> = shared.enforced().filter(is_divided).collect();
    let own_key = found.descriptor.key(&domain.name);
    // The value that is the pattern's text does not have its own key.
    let is_own = |own: &&MatchedLimit<'_>| own_key != *key && !of_all.iter().any(|all| ptr::eq(all.limit, own.limit));
    let own = own.iter().filter(is_own).filter_map(|own| level(&own_key, own));
    of_all.iter().filter_map(|all| level(key, all)).chain(own).collect()
}

/// Returns the rate that a limit admits in the long run, in units; 0 if it is too low to be assigned.
fn rate(params: &Params) -> u64 {
    let (count, period) = params.long_run();
    let a_second = u128::from(count) * u128::from(UNITS_PER_REQUEST) * SECOND as u128;
    let rate = (a_second / period.max(1) as u128).min(u128::from(MAX_RATE)) as u64;
    if rate < MIN_RATE { 0 } else { rate }
}

/// Returns a bucket of `capacity` units. Units of an expired hold drain within about a second.
fn bucket_of(capacity: u64) -> Option<Params> {
    /// Microseconds in a second. `count` is a multiple of it: a whole number of units per microsecond keeps the bucket
    /// exact at any capacity.
    const A_SECOND: u64 = SECOND as Micros as u64;
    let count = capacity.div_ceil(A_SECOND).max(1) * A_SECOND;
    let (capacity, count) = (capacity.to_string(), count.min(MAX_RATE / A_SECOND * A_SECOND).to_string());
    let fields: &[(&str, &str)] = &[("capacity", &capacity), ("count", &count), ("period", "1s")];
    (find("token_bucket")?.parse)(fields, &Bounds::default()).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::Metrics;
    use weir_core::{domain::ManualClock, testing::parse};
    use weir_policy::{
        Policy, Rules,
        overrides::{Change, Override},
    };
    use weir_store::{MemoryStore, memory::MemorySettings};

    /// Returns the levels of buckets of users, each as the last segment of its key and its requests per second.
    fn paths(overrides: &[(&str, Change)], users: &[&str]) -> Vec<Vec<(String, u64)>> {
        let clock = Arc::new(ManualClock::new(0));
        let text = "domain: d\ndescriptors: [{ key: user, value: 'f*', share_threshold: true, rate_limit: { unit: second, requests_per_unit: 100 } }]";
        let mut compiled = Overrides::new(Arc::<ManualClock>::clone(&clock));
        for (user, change) in overrides {
            compiled.put(Arc::new(Override {
                id: "o".into(),
                domain: "d".into(),
                pattern: ["user", user].map(Into::into).into(),
                change: change.clone(),
                reason: "a test".into(),
                author: "me".into(),
                set_at: 0,
                start: 0,
                end: None,
            }));
        }
        let policy: Policy = weir_policy::parse(text, &Rules::default()).unwrap().overridden(compiled);
        let limiter = Limiter::new(MemoryStore::new(MemorySettings::default(), clock), policy, Metrics::new());
        let level = |level: QuotaLevel| {
            (String::from_utf8(level.key.segment(1).to_vec()).unwrap(), level.rate / UNITS_PER_REQUEST)
        };
        let path = |user: &&str| {
            let entries = vec![("user".to_owned(), (*user).to_owned())];
            let path = limiter.quota_path(&limiter.policy(), "d", entries).unwrap();
            path.levels.into_iter().map(level).collect()
        };
        users.iter().map(path).collect()
    }

    #[test]
    fn values_that_share_a_limit_share_its_rate_whatever_overrides_one_of_them() {
        let of =
            |levels: &[(&str, u64)]| levels.iter().map(|(key, rate)| ((*key).to_owned(), *rate)).collect::<Vec<_>>();
        let shared = of(&[("f*", 100)]);
        for (user, change, expected) in [
            ("f1", Change::Factor(0.1), of(&[("f*", 100), ("f1", 1_000)])),
            ("f1", Change::Factor(10.0), of(&[("f*", 100), ("f1", 10)])),
            ("f1", Change::Unlimited, of(&[])),
            ("f1", Change::Shadow, of(&[])),
            ("f1", Change::Ban, of(&[("f1", 0)])),
            // It acts only on the value that is the pattern's text, which does not have its own key.
            ("f*", Change::Factor(0.1), shared.clone()),
        ] {
            let paths = paths(&[(user, change.clone())], &["f1", "f2", "f*"]);
            assert_eq!(paths, [expected, shared.clone(), shared.clone()], "{user} {change:?}");
        }
        let all = [("*", Change::Factor(0.5)), ("f1", Change::Factor(4.0))];
        assert_eq!(paths(&all, &["f1", "f2"]), [of(&[("f*", 200), ("f1", 25)]), of(&[("f*", 200)])]);
        assert_eq!(paths(&all[..1], &["f1"]), [of(&[("f*", 200)])]);
    }

    #[test]
    fn a_limit_has_the_rate_that_it_admits_in_the_long_run() {
        for (algorithm, fields, thousandths) in [
            ("token_bucket", &[("capacity", "5"), ("count", "1000"), ("period", "1s")][..], 1_000_000),
            ("gcra", &[("burst", "15"), ("count", "30"), ("period", "60s")], 500),
            ("fixed_window", &[("count", "5000"), ("period", "1h")], 1_388),
            ("fixed_window", &[("count", "173"), ("period", "1d")], 2),
            ("fixed_window", &[("count", "172"), ("period", "1d")], 0),
            ("sliding_window", &[("count", "100"), ("period", "10s")], 10_000),
            ("leaky_bucket", &[("size", "10"), ("drip_rate", "100ms")], 10_000),
            ("token_bucket", &[("capacity", "1"), ("count", "4294967296"), ("period", "1s")], MAX_RATE),
        ] {
            assert_eq!(rate(&parse(algorithm, fields)), thousandths, "{algorithm} {fields:?}");
        }
    }

    #[test]
    fn a_bucket_of_any_rate_is_exact() {
        for capacity in [1, 50, 999_983, 1_000_003, 123_456_789, MAX_RATE - 1, MAX_RATE] {
            let bucket = bucket_of(capacity).unwrap();
            assert_eq!(bucket.at_once(), capacity);
            assert!(bucket.window() <= SECOND + 1_000, "{capacity} drains in {}", bucket.window());
        }
    }
}
