//! Holders without a simulation: what changes at which moment, by time alone and by reports.

use super::*;

const RATE: u64 = 1_000 * REQUEST;
const TIMING: QuotaTiming =
    QuotaTiming { ttl: 15 * SECOND, lag: SECOND / 2, interval: SECOND / 2, reports: 6 * SECOND, idle: 300 * SECOND };

struct Timeline {
    divider: Divider,
    level: LevelId,
    bucket: BucketId,
}

impl Timeline {
    /// Creates one bucket below a limit of this rate, with this budget.
    fn new(rate: u64, budget: u64) -> Self {
        let mut divider = Divider::new(TIMING);
        let level = divider.add_level(None, rate);
        divider.set_budget(level, budget, 0);
        let bucket = divider.add_bucket(level);
        Self { divider, level, bucket }
    }

    fn join(&mut self, allowed: u64, denied: u64, elapsed: Micros, now: Micros) -> MemberId {
        self.divider.join(self.bucket, &Usage { allowed, denied, elapsed }, now).unwrap()
    }

    fn report(&mut self, member: MemberId, allowed: u64, denied: u64, now: Micros) -> Option<ReportOutcome> {
        self.divider.report(self.bucket, member, &Usage { allowed, denied, elapsed: 5 * SECOND }, now)
    }

    /// Returns the holders whose assignment changes now, with their rates.
    fn tick(&mut self, now: Micros) -> Vec<(MemberId, u64)> {
        let mut changes = Vec::new();
        self.divider.tick(now, &mut changes);
        changes.into_iter().map(|change| (change.member, change.assignment.rate)).collect()
    }

    fn demand(&self) -> u64 {
        self.divider.rate_and_demand(self.bucket).unwrap().1
    }

    fn live(&self) -> u64 {
        self.divider.load(self.level).live
    }
}

/// The first report of a holder says whether it may continue on an assignment from elsewhere: it is then confirmed with
/// its usage. A newcomer gets all that is free, less the burst of its token bucket.
#[test]
fn the_first_report_distinguishes_newcomers_from_returning_holders() {
    let newcomer = 900 * REQUEST;
    for (allowed, denied, elapsed, rate) in [
        (1, 0, 0, newcomer),
        (0, 5_000, 4 * SECOND, newcomer),
        (0, 0, 4 * SECOND, REQUEST),
        (50, 5_000, 4 * SECOND, 10 * REQUEST),
        // Most of its usage fits.
        (5_500, 0, 4 * SECOND, newcomer),
    ] {
        let mut timeline = Timeline::new(RATE, RATE);
        let member = timeline.join(allowed, denied, elapsed, 0);
        assert_eq!(timeline.tick(0), [(member, rate)], "{allowed} allowed, {denied} denied");
    }
}

#[test]
fn a_newcomer_has_its_floor_until_its_second_report() {
    let mut timeline = Timeline::new(RATE, RATE);
    let member = timeline.join(0, 0, 0, 0);
    timeline.tick(0);
    assert_eq!(timeline.demand(), RATE / 4);
    timeline.report(member, 0, 0, 5 * SECOND);
    timeline.tick(5 * SECOND);
    assert_eq!(timeline.demand(), RATE / 50);
}

#[test]
fn reported_rates_are_bounded() {
    let mut timeline = Timeline::new(RATE, RATE);
    let member = timeline.join(u32::MAX.into(), u32::MAX.into(), SECOND, 0);
    let status = |timeline: &Timeline| {
        let HolderStatus { allowed, denied, .. } = timeline.divider.holders(timeline.bucket).next().unwrap();
        (allowed, denied)
    };
    assert_eq!(status(&timeline), (MAX_RATE, 0));
    // Counted over at least 1/4 s.
    timeline.report(member, 10, 20, 1);
    assert_eq!(status(&timeline), (40 * REQUEST, 80 * REQUEST));
}

#[test]
fn a_holder_is_abandoned_after_the_idle_time_without_hits() {
    let mut timeline = Timeline::new(RATE, RATE);
    let member = timeline.join(1, 0, 0, 0);
    timeline.tick(0);
    // Denied hits count too.
    for (denied, now, is_kept) in [(1, 299 * SECOND, true), (0, 599 * SECOND - 1, true), (0, 599 * SECOND, false)] {
        let outcome = timeline.report(member, 0, denied, now);
        assert_eq!(outcome != Some(ReportOutcome::Abandoned), is_kept, "at {now}");
    }
    assert_eq!(timeline.report(member, 1, 0, 599 * SECOND), None);
}

#[test]
fn the_burst_of_a_holder_counts_until_it_is_spent_and_an_earlier_larger_one_with_it() {
    let mut timeline = Timeline::new(RATE, RATE);
    timeline.join(1, 0, 0, 0);
    timeline.tick(0);
    assert_eq!(timeline.live(), RATE);
    let spent = SECOND + TIMING.lag;
    timeline.tick(spent - 1);
    assert_eq!(timeline.live(), RATE);
    timeline.divider.set_budget(timeline.level, 0, spent - 1);
    timeline.tick(spent);
    assert_eq!(timeline.live(), 900 * REQUEST, "its rate, which may be in use for the lag");

    let mut timeline = Timeline::new(RATE, RATE);
    timeline.join(1, 0, 0, 0);
    timeline.tick(0);
    timeline.divider.set_budget(timeline.level, 0, 1);
    timeline.tick(1);
    for _ in 0..9 {
        timeline.join(1, 0, 0, 2);
    }
    timeline.divider.set_budget(timeline.level, RATE, 2 + TIMING.lag);
    let started = timeline.tick(2 + TIMING.lag);
    let rates: u64 = started.iter().map(|(_, rate)| rate).sum();
    // The first one's burst of 100, and eight of 10. The last holder waits.
    assert_eq!((started.len(), timeline.live()), (9, rates + (100 + 8 * 10) * REQUEST));
}

#[test]
fn what_one_holder_loses_another_gets_after_the_lag_without_any_report() {
    let mut timeline = Timeline::new(RATE, RATE);
    let [one, other] = [(); 2].map(|()| timeline.join(1, 0, 0, 0));
    for half in 0..10 {
        timeline.tick(half * SECOND / 2);
    }
    let now = 5 * SECOND;
    timeline.report(one, 10, 0, now);
    timeline.report(other, 5_000, 5_000, now);
    let cut = timeline.tick(now);
    assert!(matches!(cut[..], [(member, rate)] if member == one && rate < RATE / 2), "{cut:?}");
    assert_eq!(timeline.tick(now + TIMING.lag - 1), []);
    let grown = timeline.tick(now + TIMING.lag);
    assert_eq!(grown, [(other, RATE - cut[0].1)]);
}

#[test]
fn without_a_budget_a_holder_is_denied_after_the_ttl_without_any_report() {
    // Also with more holders than steps, and as many.
    for (rate, now) in [RATE, 3, 2].into_iter().flat_map(|rate| [(rate, TIMING.ttl - 1), (rate, TIMING.ttl)]) {
        let mut timeline = Timeline::new(rate, 0);
        let members = [(); 3].map(|()| timeline.join(1, 0, 0, 0));
        assert_eq!(timeline.tick(0), [], "{rate}");
        let denied = if now < TIMING.ttl { Vec::new() } else { members.map(|member| (member, 0)).to_vec() };
        assert_eq!(timeline.tick(now), denied, "{rate} at {now}");
    }
}

#[test]
fn the_rate_of_a_gone_holder_is_demanded_until_it_expires() {
    let expired = 8 * SECOND + TIMING.lag;
    for (now, is_gone) in [(6 * SECOND, false), (expired - 1, false), (expired, true)] {
        let mut timeline = Timeline::new(RATE, RATE);
        let [gone, other] = [(); 2].map(|()| timeline.join(1, 0, 0, 0));
        for half in 0..10 {
            timeline.tick(half * SECOND / 2);
        }
        timeline.divider.leave(timeline.bucket, gone, 3 * SECOND, 5 * SECOND);
        timeline.report(other, 1, 0, 5 * SECOND);
        timeline.tick(now);
        let demand = RATE / 50 + if is_gone { 0 } else { RATE / 2 };
        assert_eq!((timeline.demand(), timeline.divider.counts().1), (demand, 2 - usize::from(is_gone)), "at {now}");
    }
}

#[test]
fn a_returning_holder_takes_precedence_over_a_newcomer() {
    let mut timeline = Timeline::new(RATE, RATE);
    let newcomer = timeline.join(1, 0, 0, 0);
    let returning = timeline.join(700 * 5, 0, 4 * SECOND, 0);
    let changes = timeline.tick(0);
    assert!(changes.contains(&(returning, 700 * REQUEST)), "{changes:?}");
    assert!(matches!(changes[0], (member, 150_000..) if member == newcomer), "{changes:?}");
    // It gets more once all have reported.
    let share =
        |timeline: &Timeline| timeline.divider.holders(timeline.bucket).filter_map(|it| it.assigned).sum::<u64>();
    assert!(share(&timeline) < RATE);
    timeline.tick(TIMING.reports);
    timeline.tick(TIMING.reports + TIMING.lag);
    assert_eq!(share(&timeline), RATE);
}
