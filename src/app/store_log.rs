//! Logs the impact of a failing or full store on decisions. An outage is logged when it starts, once a minute while it
//! lasts, and when it is over; a full memory store at most once a minute.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};
use weir_core::domain::OnStoreFailure;
use weir_store::{
    AnyStore, SharedStore,
    outage_charges::{ChargeOutcome, OutageCharges},
};
use weir_telemetry::LogLimit;

use crate::limiter::Limiter;

/// Interval between polls of the stores.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between log lines about a condition that lasts.
const REPEAT_EVERY: Duration = Duration::from_secs(60);
/// Time that the store must answer all checks before an outage is over; a relapse within it continues the outage.
const OVER_AFTER: Duration = Duration::from_secs(5);
/// Time with degraded checks in every second after which, although the circuit breaker is closed, it is an outage.
/// Single failures are logged elsewhere.
const OUTAGE_AFTER: Duration = Duration::from_secs(3);

/// Degraded checks by rule.
type Counts = [u64; OnStoreFailure::ALL.len()];

/// Polls the stores until it is dropped.
pub(super) async fn run(limiter: Arc<Limiter<AnyStore>>, when_full: &'static str, max_keys: usize) {
    let (mut outages, mut before) = (Outages::default(), Charges::default());
    let (full_lines, mut logged) = (LogLimit::every(REPEAT_EVERY), 0);
    let mut polls = interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        polls.tick().await;
        let (store, now) = (limiter.store(), Instant::now());
        if let Some(shared) = store.shared() {
            let event = outages.poll(now, shared.redis().is_up(), shared.degraded());
            let charges = Charges::of(shared);
            log_outage(event, &limiter, charges.since(&before));
            if outages.current.is_none() {
                before = charges;
            }
        }
        if let Some(checks) = unlogged(store.memory().stats().capacity_misses, &mut logged, &full_lines, now) {
            warn!(checks, when_full, max_keys, "memory store full: {}", effect_of_full(when_full));
        }
    }
}

fn effect_of_full(rule: &str) -> &'static str {
    match rule {
        "deny" => "checks of new keys are refused",
        "allow" => "checks of new keys are allowed and not counted",
        _ => "checks of new keys evict the counts of others",
    }
}

/// Units that were admitted without the store, by outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Charges {
    charged: u64,
    lost: u64,
}

impl Charges {
    fn of(shared: &SharedStore) -> Self {
        let Some(charges) = shared.outage_charges() else { return Self::default() };
        let units = |outcome| OutageCharges::units(charges, outcome);
        Self { charged: units(ChargeOutcome::Charged), lost: ChargeOutcome::LOST.map(units).into_iter().sum() }
    }

    fn since(self, before: &Self) -> Self {
        Self { charged: self.charged - before.charged, lost: self.lost - before.lost }
    }
}

fn log_outage(event: Option<OutageEvent>, limiter: &Limiter<AnyStore>, charges: Charges) {
    let Some(OutageEvent { phase, lasted, counts }) = event else { return };
    let [local, allow, deny, error] = counts;
    let seconds = lasted.as_secs();
    match phase {
        Phase::Started => {
            for rule in rules(limiter) {
                warn!(on_store_failure = rule.name(), "store outage: {}", effect(rule));
            }
        }
        Phase::Ongoing => {
            let rules = rules(limiter).map(OnStoreFailure::name).collect::<Vec<_>>().join(",");
            warn!(on_store_failure = rules, seconds, local, allow, deny, error, "store outage continues");
        }
        Phase::Over => {
            let Charges { charged, lost } = charges;
            info!(
                seconds,
                local,
                allow,
                deny,
                error,
                units_charged_afterwards = charged,
                units_lost = lost,
                "store outage over: deciding by the shared store"
            );
        }
    }
}

/// Returns the `on_store_failure` rules of the policy in force.
fn rules(limiter: &Limiter<AnyStore>) -> impl Iterator<Item = OnStoreFailure> + use<> {
    let handle = limiter.policy();
    OnStoreFailure::ALL
        .into_iter()
        .filter(move |rule| handle.policy.domains().any(|domain| domain.on_store_failure == *rule))
}

fn effect(rule: OnStoreFailure) -> &'static str {
    match rule {
        OnStoreFailure::Local => "deciding locally, each replica by its own counts",
        OnStoreFailure::Allow => "allowing checks",
        OnStoreFailure::Deny => "refusing checks",
        OnStoreFailure::Error => "failing checks",
    }
}

/// Detects the outages of the shared store, one after the other.
#[derive(Default)]
struct Outages {
    current: Option<Outage>,
    /// Total of degraded checks at the last poll.
    counts: Counts,
    /// Start of the current series of polls that all found trouble, and the degraded checks before it.
    degraded_since: Option<(Instant, Counts)>,
}

struct Outage {
    since: Instant,
    last_line: Instant,
    last_degraded: Instant,
    /// Total of degraded checks before the outage.
    before: Counts,
}

/// A line to log about an outage: its duration, and its degraded checks.
#[derive(Debug, PartialEq, Eq)]
struct OutageEvent {
    phase: Phase,
    lasted: Duration,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Started,
    Ongoing,
    Over,
}

impl Outages {
    fn poll(&mut self, now: Instant, is_up: bool, counts: Counts) -> Option<OutageEvent> {
        let before = std::mem::replace(&mut self.counts, counts);
        let is_degraded = !is_up || counts != before;
        self.degraded_since = is_degraded.then(|| self.degraded_since.unwrap_or((now, before)));
        let Some(outage) = &mut self.current else {
            let (since, before) = self.degraded_since?;
            if is_up && now - since < OUTAGE_AFTER {
                return None;
            }
            self.current = Some(Outage { since, last_line: now, last_degraded: now, before });
            return Some(OutageEvent {
                phase: Phase::Started,
                lasted: now - since,
                counts: difference(&before, &counts),
            });
        };
        if is_degraded {
            outage.last_degraded = now;
        }
        let event = |phase, until: Instant| OutageEvent {
            phase,
            lasted: until - outage.since,
            counts: difference(&outage.before, &counts),
        };
        if now - outage.last_degraded >= OVER_AFTER {
            let over = event(Phase::Over, outage.last_degraded);
            self.current = None;
            return Some(over);
        }
        let ongoing = (now - outage.last_line >= REPEAT_EVERY).then(|| event(Phase::Ongoing, now));
        if ongoing.is_some() {
            outage.last_line = now;
        }
        ongoing
    }
}

fn difference(before: &Counts, counts: &Counts) -> Counts {
    std::array::from_fn(|rule| counts[rule] - before[rule])
}

/// Returns the number of checks since the last line, if there are any and a line is due.
fn unlogged(checks: usize, logged: &mut usize, lines: &LogLimit, now: Instant) -> Option<usize> {
    (checks != *logged && lines.allows(now.into_std())).then(|| checks - std::mem::replace(logged, checks))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls once a second. An item is whether the store was up, and the number of checks decided locally in that
    /// second.
    fn lines(seconds: impl IntoIterator<Item = (bool, u64)>) -> Vec<(u64, Phase, u64, u64)> {
        let (mut outages, start, mut local) = (Outages::default(), Instant::now(), 0);
        let events = seconds.into_iter().enumerate().filter_map(|(second, (is_up, checks))| {
            local += checks;
            let second = second as u64;
            let event = outages.poll(start + Duration::from_secs(second), is_up, [local, 0, 0, 0])?;
            Some((second, event.phase, event.lasted.as_secs(), event.counts[0]))
        });
        events.collect()
    }

    #[test]
    fn an_outage_is_logged_at_its_start_every_minute_and_at_its_end() {
        let down = std::iter::repeat_n((false, 10), 130);
        let seconds = [(true, 0); 3].into_iter().chain(down).chain([(true, 0); 20]);
        let expected = [
            (3, Phase::Started, 0, 10),
            (63, Phase::Ongoing, 60, 610),
            (123, Phase::Ongoing, 120, 1_210),
            (137, Phase::Over, 129, 1_300),
        ];
        assert_eq!(lines(seconds), expected);
    }

    #[test]
    fn a_relapse_continues_an_outage_and_the_next_one_counts_from_zero() {
        let once =
            [(false, 5), (true, 0), (true, 0), (false, 5), (true, 0), (true, 0), (true, 0), (true, 0), (true, 0)];
        let expected =
            [(0, Phase::Started, 0, 5), (8, Phase::Over, 3, 10), (9, Phase::Started, 0, 5), (17, Phase::Over, 3, 10)];
        assert_eq!(lines([once, once].concat()), expected);
    }

    #[test]
    fn a_store_that_always_fails_is_an_outage_with_a_closed_breaker() {
        assert_eq!(lines([(true, 1), (true, 0), (true, 1), (true, 1), (true, 0)]), []);
        let seconds = std::iter::repeat_n((true, 1), 4).chain([(true, 0); 5]);
        assert_eq!(lines(seconds), [(3, Phase::Started, 3, 4), (8, Phase::Over, 3, 4)]);
    }

    #[test]
    fn full_memory_is_logged_at_most_once_a_minute() {
        let (lines, mut logged, start) = (LogLimit::every(REPEAT_EVERY), 0, Instant::now());
        let mut poll = |second, checks| unlogged(checks, &mut logged, &lines, start + Duration::from_secs(second));
        assert_eq!(
            [poll(0, 0), poll(1, 3), poll(2, 9), poll(60, 20), poll(61, 20), poll(62, 20)],
            [None, Some(3), None, None, Some(17), None]
        );
        assert_eq!(poll(500, 20), None);
    }
}
