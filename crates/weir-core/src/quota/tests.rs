//! Simulated holders that behave like Envoy's client, and a record of the rates that may be in use, independent of
//! the divider.

mod levels;
mod random;
mod scarce;
mod timeline;

use super::*;

const TTL: Micros = 15 * SECOND;
/// An assignment may arrive so late, and is used for the TTL from then.
const LAG: Micros = SECOND / 2;
/// Interval between the reports of a holder, which cuts it to whole seconds in them.
const REPORT: Micros = 5 * SECOND - SECOND / 1_000;
const TICK: Micros = SECOND / 10;
const REQUEST: u64 = UNITS_PER_REQUEST;

/// One holder, from its own point of view.
#[derive(Clone, Debug)]
struct Holder {
    bucket: BucketId,
    member: Option<MemberId>,
    demand: u64,
    rate: u64,
    /// A higher rate that it may still use, and until when.
    former: (u64, Micros),
    expires: Micros,
    burst: u64,
    /// When it started with a full token bucket, and of how many requests.
    starts: Vec<(Micros, u64)>,
    tokens: f64,
    allowed: f64,
    denied: f64,
    admitted: f64,
    report_at: Micros,
    changes: usize,
    has_left: bool,
}

struct Simulation {
    divider: Divider,
    now: Micros,
    holders: Vec<Holder>,
    /// Whether a lower assignment is lost, as the stream of its holder ends.
    loses_cuts: bool,
    limits: Vec<(LevelId, u64, Vec<BucketId>)>,
}

impl Simulation {
    /// Creates one bucket below a limit of `requests` a second.
    fn new(requests: u64) -> (Self, BucketId) {
        let mut divider = Divider::new(QuotaTiming::default());
        let level = divider.add_level(None, requests * REQUEST);
        divider.set_budget(level, requests * REQUEST, 0);
        let bucket = divider.add_bucket(level);
        let limits = vec![(level, requests * REQUEST, vec![bucket])];
        (Self { divider, now: 0, holders: Vec::new(), loses_cuts: false, limits }, bucket)
    }

    fn join(&mut self, bucket: BucketId, demand: u64, elapsed: Micros) -> usize {
        let usage = Usage {
            allowed: if elapsed > 0 { demand * elapsed as u64 / SECOND as u64 } else { 1 },
            denied: 0,
            elapsed: elapsed / SECOND * SECOND,
        };
        let member = self.divider.join(bucket, &usage, self.now);
        let report_at = self.now + REPORT - (self.holders.len() as Micros * 700_000) % REPORT;
        self.holders.push(Holder {
            bucket,
            member,
            demand,
            rate: 0,
            former: (0, 0),
            expires: 0,
            burst: 0,
            starts: Vec::new(),
            tokens: 0.0,
            allowed: 0.0,
            denied: 0.0,
            admitted: 0.0,
            report_at,
            changes: 0,
            has_left: false,
        });
        self.holders.len() - 1
    }

    fn leave(&mut self, index: usize) {
        let holder = &mut self.holders[index];
        if let Some(member) = holder.member.filter(|_| !holder.has_left) {
            holder.has_left = true;
            self.divider.leave(holder.bucket, member, Micros::MAX, self.now);
        }
    }

    fn step(&mut self) {
        let (now, seconds) = (self.now, TICK as f64 / SECOND as f64);
        for holder in &mut self.holders {
            if holder.expires <= now {
                holder.rate = 0;
            }
            let rate = holder.rate as f64 / REQUEST as f64;
            let wanted = holder.demand as f64 * seconds;
            // Requests that arrive within the step may be spent within it.
            let spent = wanted.min(holder.tokens + rate * seconds);
            holder.tokens = (holder.tokens + rate * seconds - spent).min(holder.burst as f64);
            (holder.allowed, holder.denied, holder.admitted) =
                (holder.allowed + spent, holder.denied + wanted - spent, holder.admitted + spent);
            if holder.report_at <= now && !holder.has_left {
                let elapsed = REPORT / SECOND * SECOND;
                let usage = Usage { allowed: holder.allowed as u64, denied: holder.denied as u64, elapsed };
                (holder.allowed, holder.denied, holder.report_at) = (0.0, 0.0, now + REPORT);
                let Some(member) = holder.member else { continue };
                match self.divider.report(holder.bucket, member, &usage, now) {
                    Some(ReportOutcome::Renewed(assignment)) => {
                        assert_eq!(assignment.rate, holder.rate, "a renewed rate is the assigned one");
                        holder.expires = now + TTL + LAG;
                    }
                    Some(ReportOutcome::Waits) => assert_eq!(holder.rate, 0),
                    Some(ReportOutcome::Abandoned) => (holder.member, holder.rate) = (None, 0),
                    None => panic!("a holder that has not left is known"),
                }
            }
        }
        let mut changes = Vec::new();
        self.divider.tick(now, &mut changes);
        let mut gone = Vec::new();
        for Change { bucket, member, assignment } in changes {
            let is_told = |it: &Holder| it.bucket == bucket && it.member == Some(member) && !it.has_left;
            let index = self.holders.iter().position(is_told).expect("the receiver is a holder");
            let holder = &mut self.holders[index];
            if self.loses_cuts && assignment.rate < holder.rate {
                gone.push(index);
                continue;
            }
            let in_use = holder.rate.max(if holder.former.1 > now { holder.former.0 } else { 0 });
            if assignment.rate < in_use {
                holder.former = (in_use, now + QuotaTiming::default().lag);
            }
            if holder.rate == 0 {
                holder.tokens = assignment.burst as f64;
                holder.starts.push((now, assignment.burst));
            } else if assignment.rate == 0 {
                assert_eq!(assignment.burst, 0, "a denied holder stores nothing");
            } else {
                assert_eq!(assignment.burst, holder.burst, "the bucket of a holder does not change while it spends");
            }
            (holder.rate, holder.burst, holder.expires) = (assignment.rate, assignment.burst, now + TTL + LAG);
            holder.changes += 1;
        }
        gone.into_iter().for_each(|index| self.leave(index));
        for (_, budget, buckets) in &self.limits {
            let below = self.holders.iter().filter(|holder| buckets.contains(&holder.bucket) && holder.expires > now);
            let in_use: u64 = below.map(|it| it.rate.max(if it.former.1 > now { it.former.0 } else { 0 })).sum();
            assert!(in_use <= *budget, "{in_use} of {budget} at {now}");
        }
        self.now += TICK;
    }

    fn run(&mut self, seconds: i64) {
        let end = self.now + seconds * SECOND;
        while self.now < end {
            self.step();
        }
    }

    fn admitted(&self) -> f64 {
        self.holders.iter().map(|holder| holder.admitted).sum()
    }

    fn rates(&self) -> Vec<u64> {
        self.holders.iter().map(|holder| holder.rate / REQUEST).collect()
    }
}

#[test]
fn demand_that_moves_is_followed_within_two_reports() {
    let (mut simulation, bucket) = Simulation::new(1_000);
    let demands = [1_080, 60, 60];
    for demand in demands {
        simulation.join(bucket, demand, 0);
    }
    simulation.run(20);
    for turn in 1..6 {
        for index in 0..3 {
            simulation.holders[index].demand = demands[(index + turn) % 3];
        }
        // Two reports, and the lag of the holders that shrink.
        simulation.run(11);
        for (index, rate) in simulation.rates().into_iter().enumerate() {
            let fair = [880, 60, 60][(index + turn) % 3];
            assert!(rate >= fair * 97 / 100, "{:?} in turn {turn}", simulation.rates());
        }
        let before = simulation.admitted();
        simulation.run(9);
        assert!(simulation.admitted() - before >= 0.95 * 9_000.0, "{}", simulation.admitted() - before);
    }
    let bursts: u64 = simulation.holders.iter().map(|holder| holder.burst).sum();
    assert!(simulation.admitted() <= 1_000.0 * 120.0 + bursts as f64);
}

#[test]
fn a_newcomer_gets_its_floor_at_once_and_an_equal_share_within_two_reports() {
    let (mut simulation, bucket) = Simulation::new(900);
    simulation.join(bucket, 2_000, 0);
    simulation.join(bucket, 2_000, 0);
    simulation.run(20);
    let newcomer = simulation.join(bucket, 2_000, 0);
    simulation.run(2);
    assert!(simulation.rates()[newcomer] >= 900 / 3 / 4, "{:?}", simulation.rates());
    simulation.run(9);
    assert!(simulation.rates().iter().all(|rate| (290..=310).contains(rate)), "{:?}", simulation.rates());
}

#[test]
fn shares_stay_while_demand_varies_within_them() {
    let (mut simulation, bucket) = Simulation::new(1_000);
    for demand in [500, 200, 100] {
        simulation.join(bucket, demand, 0);
    }
    simulation.run(20);
    let before: Vec<usize> = simulation.holders.iter().map(|holder| holder.changes).collect();
    for turn in 0..10 {
        for (holder, demand) in simulation.holders.iter_mut().zip([500_u64, 200, 100]) {
            holder.demand = demand * (98 + turn % 5) / 100;
        }
        simulation.run(5);
    }
    assert_eq!(simulation.holders.iter().map(|holder| holder.changes).collect::<Vec<_>>(), before);
}

#[test]
fn a_leaving_holder_keeps_its_share_until_it_expires() {
    let (mut simulation, bucket) = Simulation::new(100);
    simulation.join(bucket, 1_000, 0);
    simulation.join(bucket, 1_000, 0);
    simulation.run(20);
    assert_eq!(simulation.rates(), [50, 50]);
    simulation.leave(0);
    simulation.run(9);
    assert_eq!(simulation.rates()[1], 50);
    simulation.run(8);
    assert_eq!(simulation.rates(), [0, 100]);
}

#[test]
fn a_share_that_was_lowered_as_its_holder_left_counts_until_it_expires() {
    let (mut simulation, bucket) = Simulation::new(1_000);
    simulation.join(bucket, 2_000, 0);
    simulation.run(20);
    simulation.loses_cuts = true;
    simulation.join(bucket, 2_000, 0);
    simulation.run(40);
    assert!(simulation.holders[0].has_left && simulation.rates()[1] > 900, "{:?}", simulation.rates());
}

#[test]
fn a_returning_holder_keeps_what_it_uses() {
    let (mut simulation, bucket) = Simulation::new(1_000);
    // Their server has restarted and lost its state.
    let returning = [700, 200].map(|demand| simulation.join(bucket, demand, REPORT));
    simulation.run(1);
    let rates = simulation.rates();
    assert!(rates[returning[0]] >= 700 && rates[returning[1]] >= 200, "{rates:?}");
    // A holder whose share another one holds continues on its own at first. Then it is assigned at
    // most its usage: here one step, since it denies hits that it has no assignment for.
    let late = simulation.join(bucket, 100, REPORT);
    simulation.run(4);
    assert_eq!(simulation.rates()[late], 0);
    simulation.run(3);
    assert!(simulation.rates()[late] <= 1, "{:?}", simulation.rates());
    simulation.run(11);
    assert!(simulation.rates()[late] >= 100, "{:?}", simulation.rates());
}

#[test]
fn holders_that_passed_all_before_their_server_started_are_assigned_at_once() {
    for (requests, demands) in [(1_000, &[2_000][..]), (5_000, &[1_000; 10]), (1_000, &[400, 400, 400])] {
        let (mut simulation, bucket) = Simulation::new(requests);
        for demand in demands {
            simulation.join(bucket, *demand, REPORT);
            // Each reports at its own time.
            (0..4).for_each(|_| simulation.step());
        }
        simulation.run(2);
        let (rates, even) = (simulation.rates(), requests / demands.len() as u64);
        assert!(rates.iter().all(|rate| *rate >= even * 9 / 10), "{rates:?} of {requests}");
    }
}

#[test]
fn a_holder_that_denied_all_before_its_server_started_is_a_newcomer() {
    let mut divider = Divider::new(QuotaTiming::default());
    let level = divider.add_level(None, 1_000 * REQUEST);
    divider.set_budget(level, 1_000 * REQUEST, 0);
    let bucket = divider.add_bucket(level);
    divider.join(bucket, &Usage { allowed: 0, denied: 5_000, elapsed: 4 * SECOND }, 0);
    let mut changes = Vec::new();
    divider.tick(0, &mut changes);
    assert!(changes[0].assignment.rate >= 800 * REQUEST, "{changes:?}");
}

#[test]
fn what_returning_holders_are_said_to_need_confirms_them() {
    let mut divider = Divider::new(QuotaTiming::default());
    let level = divider.add_level(None, 500 * REQUEST);
    let bucket = divider.add_bucket(level);
    for _ in 0..2 {
        divider.join(bucket, &Usage { allowed: 50, denied: 100, elapsed: 4 * SECOND }, 0);
    }
    let mut changes = Vec::new();
    divider.tick(0, &mut changes);
    divider.set_budget(level, divider.load(level).returning, 0);
    divider.tick(0, &mut changes);
    let rates: Vec<u64> = changes.iter().map(|change| change.assignment.rate / REQUEST).collect();
    assert_eq!(rates, [10, 10]);
}

#[test]
fn a_lower_budget_shrinks_everybody_and_none_denies() {
    let (mut simulation, bucket) = Simulation::new(1_000);
    simulation.join(bucket, 800, 0);
    simulation.join(bucket, 800, 0);
    simulation.run(12);
    let level = simulation.limits[0].0;
    simulation.divider.set_budget(level, 100 * REQUEST, simulation.now);
    simulation.run(1);
    simulation.limits[0].1 = 100 * REQUEST;
    simulation.run(1);
    assert_eq!(simulation.rates(), [50, 50]);
    simulation.divider.set_budget(level, 0, simulation.now);
    simulation.run(1);
    assert_eq!(simulation.rates(), [0, 0]);
    let late = simulation.join(bucket, 800, 0);
    simulation.run(16);
    assert_eq!((simulation.holders[late].changes, simulation.holders[late].rate), (1, 0), "denied after a while");
}

#[test]
fn low_rates_are_divided_in_longer_times() {
    for (rate, fill_seconds, quantum) in
        [(1_000 * REQUEST, 1, 1_000), (99 * REQUEST, 10, 100), (5 * REQUEST, 100, 10), (50, 1_000, 1)]
    {
        let steps = Steps::of(rate);
        assert_eq!((steps.fill_seconds, steps.quantum), (fill_seconds, quantum));
        assert!(steps.requests(rate) >= 50, "{rate}");
    }
    let mut divider = Divider::new(QuotaTiming::default());
    let level = divider.add_level(None, 50);
    divider.set_budget(level, 50, 0);
    let bucket = divider.add_bucket(level);
    let members: Vec<_> = (0..3).filter_map(|_| divider.join(bucket, &Usage::default(), 0)).collect();
    let mut changes = Vec::new();
    (0..30).for_each(|tick| divider.tick(tick * SECOND, &mut changes));
    for member in members {
        let held = divider.renew(bucket, member, 30 * SECOND).unwrap();
        assert!(held.rate >= 10 && held.burst == 1, "{held:?}");
    }
}

#[test]
fn a_hundred_that_join_together_store_a_tenth_of_a_second_together() {
    let (mut simulation, bucket) = Simulation::new(10_000);
    for _ in 0..100 {
        simulation.join(bucket, 1_000, 0);
    }
    simulation.run(3);
    assert!(simulation.holders.iter().all(|holder| holder.rate > 0 && holder.burst == 10));
    simulation.run(10);
    assert!(simulation.rates().iter().all(|rate| (95..=105).contains(rate)), "{:?}", simulation.rates());
}

#[test]
fn idle_holders_are_removed() {
    let (mut simulation, bucket) = Simulation::new(100);
    let idle = simulation.join(bucket, 50, 0);
    simulation.run(10);
    simulation.holders[idle].demand = 0;
    simulation.run(290);
    assert!(simulation.holders[idle].member.is_some(), "idle for less than five minutes");
    simulation.run(30);
    assert_eq!((simulation.holders[idle].member, simulation.divider.counts()), (None, (1, 0)));
    assert_eq!(simulation.divider.remove_empty_buckets(), [bucket]);
    assert_eq!(simulation.divider.remove_empty_levels(), [simulation.limits[0].0].into());
}
