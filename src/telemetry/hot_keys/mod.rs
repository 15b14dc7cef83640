//! Hot keys, and keys near their limits: a sketch of bounded size with exponential decay, fed by a sample of the
//! requests.

mod sampler;
mod space_saving;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use parking_lot::Mutex;
use weir_core::domain::Decision;

use space_saving::{Entry, SpaceSaving};

/// The half-life of a weight, in seconds.
const HALF_LIFE_SECONDS: f64 = 10.0;
/// Seconds after its last sample at which a key leaves the lists, since its decayed weight is never 0.
const KEPT_SECONDS: f64 = 60.0;
/// Seconds after which the weights are rescaled, long before they exceed the range of a float.
const RESCALE_SECONDS: f64 = 500.0 * HALF_LIFE_SECONDS;
/// Maximum length of the name of a state, and of a key, in bytes; longer ones are ignored.
const MAX_NAME_BYTES: usize = 512;

/// The hot keys of a service, and the keys near their limits.
pub struct HotKeys {
    origin: Instant,
    /// Incremented by each read, so that every thread samples its next request, however rare requests have become.
    pulse: AtomicU32,
    sketches: Mutex<Sketches>,
}

struct Sketches {
    /// The second at which the weight of a request is 1.
    since: f64,
    hot: SpaceSaving<KeyStats>,
    near: SpaceSaving<KeyStats>,
    name: Vec<u8>,
}

/// The decision of one limit on one key.
pub struct Sample<'a> {
    /// The domain.
    pub domain: &'a str,
    /// The limit's name.
    pub limit: &'a str,
    /// Whether the limit is in shadow mode.
    pub shadow: bool,
    /// The parts of the name of its state.
    pub name: [&'a [u8]; 2],
    /// The decision.
    pub decision: Decision,
}

impl Sample<'_> {
    /// Whether the request was refused, or left less than a tenth of the limit.
    fn is_near(&self) -> bool {
        !self.decision.allowed || self.decision.remaining.saturating_mul(10) < self.decision.limit
    }
}

/// A key at one limit, as of its last sample.
#[derive(Clone, Debug)]
struct KeyStats {
    domain: Box<str>,
    limit: Box<str>,
    shadow: bool,
    segments: Box<[Box<str>]>,
    decision: Decision,
    refused: f64,
    /// The time of the last sample, and of the last one that was refused.
    at: f64,
    refused_at: f64,
}

/// A hot key at one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// The domain.
    pub domain: Box<str>,
    /// The limit's name.
    pub limit: Box<str>,
    /// Whether the limit is in shadow mode.
    pub shadow: bool,
    /// The key, as far as the limit covers it.
    pub segments: Box<[Box<str>]>,
    /// Recent requests per second that the limit decided, estimated; for keys near their limits only requests that were
    /// refused or left less than a tenth.
    pub per_second: f64,
    /// The part of `per_second` that may belong to other keys.
    pub error_per_second: f64,
    /// Recent refusals per second, estimated.
    pub refused_per_second: f64,
    /// The last sampled decision.
    pub decision: Decision,
    /// Age of that decision, in seconds.
    pub seconds_ago: f64,
}

impl HotKey {
    /// Whether both are the same key at the same limit.
    fn is_of(&self, other: &Self) -> bool {
        self.segments == other.segments && self.limit == other.limit && self.domain == other.domain
    }
}

impl HotKeys {
    /// Creates a sketch of at most `most` hot keys, and as many keys near their limits.
    pub fn new(most: usize) -> Self {
        let sketches =
            Sketches { since: 0.0, hot: SpaceSaving::new(most), near: SpaceSaving::new(most), name: Vec::new() };
        Self { origin: Instant::now(), pulse: AtomicU32::new(0), sketches: Mutex::new(sketches) }
    }

    /// Whether to sample this request, and the number of requests that the sample represents.
    #[inline]
    pub fn sample_weight(&self) -> Option<u32> {
        sampler::take(self.pulse.load(Ordering::Relaxed))
    }

    /// Records the decision of a limit on a sampled request, which represents `weight` requests. `segments` are the key
    /// segments that the limit covers.
    pub fn record<'s>(&self, weight: u32, sample: &Sample<'_>, segments: impl Iterator<Item = &'s str> + Clone) {
        // The lock is held for microseconds. A request that does not get it immediately is not recorded.
        let Some(mut sketches) = self.sketches.try_lock() else { return };
        sketches.add(self.origin.elapsed().as_secs_f64(), f64::from(weight), sample, segments);
    }

    /// Returns the hottest keys of a domain, and those most often near their limits; at most `most` of each that
    /// `wanted` accepts, in descending order.
    pub fn read(&self, domain: &str, most: usize, wanted: impl Fn(&[Box<str>]) -> bool) -> (Vec<HotKey>, Vec<HotKey>) {
        self.pulse.fetch_add(1, Ordering::Relaxed);
        let now = self.origin.elapsed().as_secs_f64();
        let sketches = self.sketches.lock();
        let wanted = |stats: &KeyStats| &*stats.domain == domain && wanted(&stats.segments);
        (sketches.top(&sketches.hot, now, most, wanted), sketches.top(&sketches.near, now, most, wanted))
    }

    /// Returns at most `most` of the hottest keys of all domains, and as many keys near their limits, those refused
    /// most often.
    pub fn hottest(&self, most: usize) -> Vec<HotKey> {
        self.pulse.fetch_add(1, Ordering::Relaxed);
        let now = self.origin.elapsed().as_secs_f64();
        let sketches = self.sketches.lock();
        let mut hottest = sketches.top(&sketches.hot, now, most, |_| true);
        let mut near = sketches.top(&sketches.near, now, usize::MAX, |_| true);
        drop(sketches);
        near.retain(|key| key.refused_per_second > 0.0);
        near.sort_by(|one, other| other.refused_per_second.total_cmp(&one.refused_per_second));
        near.truncate(most);
        near.retain(|near| !hottest.iter().any(|hot| hot.is_of(near)));
        hottest.extend(near);
        hottest
    }
}

impl Sketches {
    fn add<'s>(&mut self, now: f64, count: f64, sample: &Sample<'_>, segments: impl Iterator<Item = &'s str> + Clone) {
        let bytes: usize = segments.clone().map(str::len).sum();
        if bytes.max(sample.name.iter().map(|part| part.len()).sum()) > MAX_NAME_BYTES {
            return;
        }
        if now - self.since > RESCALE_SECONDS {
            let by = decay(now - self.since);
            for keys in [&mut self.hot, &mut self.near] {
                keys.scale(by, |stats| stats.refused *= by);
            }
            self.since = now;
        }
        let weight = count / decay(now - self.since);
        self.name.clear();
        sample.name.iter().for_each(|part| self.name.extend_from_slice(part));
        let make = || KeyStats {
            domain: sample.domain.into(),
            limit: sample.limit.into(),
            shadow: sample.shadow,
            segments: segments.clone().map(Box::from).collect(),
            decision: sample.decision,
            refused: 0.0,
            at: now,
            refused_at: f64::NEG_INFINITY,
        };
        let keep = |stats: &mut KeyStats| {
            (stats.decision, stats.shadow, stats.at) = (sample.decision, sample.shadow, now);
            if !sample.decision.allowed {
                stats.refused += weight;
                stats.refused_at = now;
            }
        };
        keep(self.hot.add(&self.name, weight, make));
        if sample.is_near() {
            keep(self.near.add(&self.name, weight, make));
        }
    }

    fn top(
        &self,
        keys: &SpaceSaving<KeyStats>,
        now: f64,
        most: usize,
        wanted: impl Fn(&KeyStats) -> bool,
    ) -> Vec<HotKey> {
        let is_recent = |at: f64| now - at < KEPT_SECONDS;
        let is_listed = |entry: &&Entry<KeyStats>| is_recent(entry.value.at) && wanted(&entry.value);
        let mut found: Vec<_> = keys.entries().iter().filter(is_listed).collect();
        found.sort_by(|one, other| other.weight.total_cmp(&one.weight));
        // All weights decay at the same rate. Early on, their sum has not yet reached its steady state.
        let seconds = HALF_LIFE_SECONDS / std::f64::consts::LN_2 * (1.0 - decay(now)).max(f64::EPSILON);
        let per_second = decay(now - self.since) / seconds;
        let hot_key = |entry: &Entry<KeyStats>| {
            let KeyStats { domain, limit, shadow, segments, decision, refused, at, refused_at } = entry.value.clone();
            HotKey {
                domain,
                limit,
                shadow,
                segments,
                per_second: entry.weight * per_second,
                error_per_second: entry.error * per_second,
                refused_per_second: if is_recent(refused_at) { refused * per_second } else { 0.0 },
                decision,
                seconds_ago: now - at,
            }
        };
        found.into_iter().take(most).map(hot_key).collect()
    }
}

/// Returns the fraction of a weight that remains after this many seconds of decay.
fn decay(seconds: f64) -> f64 {
    (-seconds / HALF_LIFE_SECONDS).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sketches: &mut Sketches, now: f64, key: &str, allowed: bool, remaining: u64) {
        let decision =
            if allowed { Decision::pass(100, remaining, 1) } else { Decision::refuse(100, remaining, Some(1), 1) };
        let name = [key.as_bytes(), b"#limit".as_slice()];
        let sample = Sample { domain: "d", limit: "limit", shadow: false, name, decision };
        sketches.add(now, 1.0, &sample, [key].into_iter());
    }

    fn all(_: &KeyStats) -> bool {
        true
    }

    fn keys(top: &[HotKey]) -> Vec<&str> {
        top.iter().map(|key| &*key.segments[0]).collect()
    }

    #[test]
    fn rates_follow_the_stream_and_decay() {
        let hot = HotKeys::new(10);
        let mut sketches = hot.sketches.lock();
        let mut at = 0.0;
        // Long enough for weights to be rescaled on the way.
        for turn in 0..120_000 {
            at = f64::from(turn) * 0.05;
            record(&mut sketches, at, "steady", true, 50);
            if turn % 4 == 0 {
                record(&mut sketches, at, "refused", false, 0);
            }
        }
        let top = sketches.top(&sketches.hot, at, 9, all);
        assert_eq!(keys(&top), ["steady", "refused"]);
        assert!((top[0].per_second - 20.0).abs() < 1.0, "{top:?}");
        assert!((top[1].per_second - 5.0).abs() < 0.5 && (top[1].refused_per_second - 5.0).abs() < 0.5, "{top:?}");
        let near = sketches.top(&sketches.near, at, 9, all);
        assert_eq!(keys(&near), ["refused"]);
        let later = sketches.top(&sketches.hot, at + 2.0 * HALF_LIFE_SECONDS, 9, all);
        assert!((later[0].per_second - 5.0).abs() < 0.5 && later[0].seconds_ago >= 20.0, "{later:?}");
        assert!(sketches.top(&sketches.hot, at, 9, |stats| &*stats.segments[0] == "other").is_empty());
    }

    #[test]
    fn keys_leave_the_lists_a_minute_after_their_last_request() {
        let hot = HotKeys::new(10);
        let mut sketches = hot.sketches.lock();
        for _ in 0..9_000 {
            record(&mut sketches, 1.0, "refused", false, 0);
        }
        let last = 1.0 + KEPT_SECONDS;
        let lists = |sketches: &Sketches, now| {
            [&sketches.hot, &sketches.near].map(|list| sketches.top(list, now, 9, all).len())
        };
        assert_eq!([lists(&sketches, last - 0.1), lists(&sketches, last)], [[1, 1], [0, 0]]);
        record(&mut sketches, last, "refused", true, 50);
        assert_eq!(lists(&sketches, last), [1, 0]);
        assert_eq!(sketches.top(&sketches.hot, last, 9, all)[0].refused_per_second, 0.0, "its refusals are as old");
    }

    #[test]
    fn keys_below_ten_percent_remaining_are_near_their_limit() {
        let hot = HotKeys::new(10);
        let mut sketches = hot.sketches.lock();
        record(&mut sketches, 1.0, "far", true, 10);
        record(&mut sketches, 1.0, "near", true, 9);
        record(&mut sketches, 1.5, "near", true, 8);
        let near = sketches.top(&sketches.near, 2.0, 9, all);
        assert_eq!((keys(&near), near[0].decision.remaining, near[0].seconds_ago), (vec!["near"], 8, 0.5));
    }

    #[test]
    fn tracked_keys_are_bounded_in_number_and_length() {
        let hot = HotKeys::new(50);
        let mut sketches = hot.sketches.lock();
        for key in 0..10_000 {
            record(&mut sketches, 1.0, &key.to_string(), false, 0);
        }
        record(&mut sketches, 1.0, &"x".repeat(MAX_NAME_BYTES + 1), true, 0);
        assert_eq!((sketches.hot.entries().len(), sketches.near.entries().len()), (50, 50));
        assert!(sketches.top(&sketches.hot, 1.0, 99, all).iter().all(|key| key.segments[0].len() < 9));
        assert_eq!(sketches.top(&sketches.hot, 1.0, 7, all).len(), 7);
    }

    #[test]
    fn the_hottest_are_the_busiest_and_the_most_refused() {
        let hot = HotKeys::new(50);
        for _ in 0..9 {
            record(&mut hot.sketches.lock(), 1.0, "busy", true, 50);
        }
        for key in 0..40 {
            record(&mut hot.sketches.lock(), 1.0, &format!("near{key}"), true, 1);
        }
        record(&mut hot.sketches.lock(), 1.0, "refused", false, 0);
        let hottest = hot.hottest(1);
        assert_eq!(keys(&hottest), ["busy", "refused"]);
        assert!(hottest[1].refused_per_second > 0.0);
        record(&mut hot.sketches.lock(), 1.0, "busy", false, 0);
        assert_eq!(keys(&hot.hottest(2)).iter().filter(|key| **key == "busy").count(), 1);
    }

    #[test]
    fn samples_of_concurrent_threads_are_merged() {
        let hot = HotKeys::new(50);
        let decision = Decision::pass(100, 50, 1);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let hot = &hot;
                scope.spawn(move || {
                    for turn in 0..5_000 {
                        let Some(weight) = hot.sample_weight() else { continue };
                        let key = if turn % 2 == 0 { "hot".to_owned() } else { format!("{thread}-{turn}") };
                        let name = [key.as_bytes(), b"#limit".as_slice()];
                        let sample = Sample { domain: "", limit: "limit", shadow: false, name, decision };
                        hot.record(weight, &sample, [&*key].into_iter());
                    }
                });
            }
        });
        let (hottest, near) = hot.read("", 5, |_| true);
        assert!(hot.read("other", 5, |_| true).0.is_empty() && hot.read("", 5, |_| false).0.is_empty());
        assert_eq!((&*hottest[0].segments[0], near.len()), ("hot", 0));
    }
}
