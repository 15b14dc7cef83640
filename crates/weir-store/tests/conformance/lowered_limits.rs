//! Limits that are lowered while units are held, and raised again: the raised limit counts what it would count if it had
//! been in force throughout.

use std::sync::Arc;

use super::{
    holds::{Authority, Limits, START, in_memory, on_redis},
    redis::{OnRedis, number},
    seeds,
};
use weir_core::{
    algorithm::{Params, Spent, State},
    domain::{ManualClock, Micros, StepInput, time::SECOND},
    hold::{HoldId, OnExpiry, Renewal, Reservation, ReservationStep},
    testing::{Random, parse},
};
use weir_test_redis::{Options, Server};

const TRACES: u64 = 20;
const STEPS: usize = 24;
/// The limit that is lowered, and those to which it is lowered.
const HIGH: usize = 1_000;
const LOW: [usize; 8] = [500, 400, 300, 200, 100, 60, 20, 2];

type Sized = fn(&str) -> Params;

/// Limits of different sizes with equal rates.
const ALGORITHMS: [Sized; 6] = [
    |size| parse("token_bucket", &[("capacity", size), ("count", "1"), ("period", "1s")]),
    |size| parse("gcra", &[("burst", size), ("count", "1"), ("period", "1s")]),
    |size| parse("leaky_bucket", &[("size", size), ("drip_rate", "1s")]),
    |size| parse("sliding_log", &[("count", size), ("period", "1h")]),
    |size| parse("fixed_window", &[("count", size), ("period", "1d")]),
    |size| parse("sliding_buckets", &[("count", size), ("period", "1d"), ("resolution", "1h")]),
];

fn limits(sized: Sized, size: usize) -> Limits {
    // The parent admits everything.
    let parent = parse("token_bucket", &[("capacity", "1000000"), ("count", "1000"), ("period", "1s")]);
    Limits::new(&[parent, sized(&size.to_string())])
}

/// The limit as if it had never been lowered: only what it admitted, at the time of its settlement.
struct Model {
    params: Params,
    state: Option<State>,
    phase: Micros,
    held: u64,
}

impl Model {
    fn spend(&mut self, units: u64, now: Micros) {
        let spent = Spent { units, held: 0 };
        self.state = self.params.charge(self.state.as_ref(), spent, now, self.phase).or(self.state.take());
    }

    fn remaining(&self, now: Micros) -> u64 {
        let input = StepInput { now, cost: 0, max_wait: None, phase: self.phase };
        self.params.step(self.state.as_ref(), &input).0.remaining - self.held
    }
}

/// Settles, cancels and extends reservations and returns leases of the high limit under lower ones.
async fn story(store: &mut Authority, clock: &Arc<ManualClock>, sized: Sized, random: &mut Random) {
    let (high, lower) = (limits(sized, HIGH), LOW.map(|size| limits(sized, size)));
    let phase = high.plan(0, 0).levels()[1].phase();
    let mut model = Model { params: sized(&HIGH.to_string()), state: None, phase, held: 0 };
    let (mut now, mut reserved, mut events) = (START, Vec::new(), Vec::new());
    let mut lease =
        Renewal { id: HoldId { owner: 9, number: 9 }, sequence: 0, spent: 0, kept: 0, want: 0, ttl: SECOND };
    // With none open, nothing but the state itself says for how long it is kept.
    let most = random.pick(&[1, 1, STEPS]);
    store.forget(clock).await;
    for number in 0..STEPS as u8 {
        now += random.pick(&[0, 0, 1, SECOND, 7 * SECOND]);
        clock.set(now);
        store.upkeep(clock, random);
        let low = &lower[random.below(lower.len())];
        let units = random.within(0, model.remaining(now).min(300) as i64).unsigned_abs();
        let reservation = async |limits: &Limits, number: u8, cost: u64, step| {
            let name = [number];
            let mut plan = limits.plan(0, cost as i64);
            plan.reservation = Some(Reservation { name: &name, step });
            store.verdict(&plan).await.decisions[1].allowed
        };
        match random.below(8) {
            0 => {
                events.push(format!("{units} spent"));
                assert!(store.verdict(&high.plan(0, units as i64)).await.decisions[1].allowed, "{events:?}");
                model.spend(units, now);
            }
            1..4 if reserved.len() < most => {
                events.push(format!("{units} reserved"));
                let step = ReservationStep::Reserve { ttl: 100_000 * SECOND, on_expiry: OnExpiry::Keep };
                assert!(reservation(&high, number, units, step).await, "{events:?}");
                reserved.push((number, units));
                model.held += units;
            }
            4 => {
                let mut renew = async |limits: &Limits, spent, want| {
                    lease = Renewal { sequence: lease.sequence + 1, spent: lease.spent + spent, want, ..lease };
                    let mut plan = limits.plan(0, 0);
                    plan.renewal = Some(&lease);
                    store.verdict(&plan).await.grant.expect("a grant").units
                };
                let granted = renew(&high, 0, 50).await;
                let spent = random.pick(&[0, granted / 2, granted]);
                events.push(format!("{granted} leased, {spent} spent"));
                renew(low, spent, 0).await;
                model.spend(spent, now);
            }
            _ if reserved.is_empty() => {}
            kind => {
                let (number, units) = reserved.swap_remove(random.below(reserved.len()));
                let actual = random.pick(&[0, units / 2, units]);
                let step = match kind {
                    5 => ReservationStep::Extend { ttl: 200_000 * SECOND },
                    _ if actual == 0 => ReservationStep::Cancel,
                    _ => ReservationStep::Commit { actual },
                };
                reservation(low, number, 0, step).await;
                events.push(format!("{step:?} of {units} under {:?}", low.plan(0, 0).levels()[1].limit.params));
                if kind == 5 {
                    reserved.push((number, units));
                } else {
                    model.held -= units;
                    model.spend(actual, now);
                }
            }
        }
        let counted = store.verdict(&high.plan(0, 0)).await.decisions[1].remaining;
        assert_eq!(counted, model.remaining(now), "{now}: {events:#?}");
    }
}

async fn stories(store: &mut Authority, clock: &Arc<ManualClock>) {
    for seed in seeds(TRACES) {
        for (stream, sized) in ALGORITHMS.into_iter().enumerate() {
            story(store, clock, sized, &mut Random::new(seed).fork(stream as u64)).await;
        }
    }
}

#[tokio::test]
async fn in_memory_a_raised_limit_counts_what_lower_ones_settled() {
    let clock = Arc::new(ManualClock::default());
    stories(&mut Authority::Memory(in_memory(&clock)), &clock).await;
}

#[tokio::test]
async fn on_redis_a_raised_limit_counts_what_lower_ones_settled() {
    let (server, clock) = (Server::start(Options::socket()), Arc::new(ManualClock::default()));
    stories(&mut on_redis(&server.url(), &clock), &clock).await;
}

/// Units that are held until their deadline outlast a lower limit that has used the ledger: a sweep must not delete them.
#[tokio::test]
async fn a_lower_limit_keeps_units_that_expire_later() {
    let (server, clock) = (Server::start(Options::socket()), Arc::new(ManualClock::default()));
    let on_server = OnRedis::new("Redis", &server.url(), vec![&server]);
    for sized in ALGORITHMS {
        for mut store in [Authority::Memory(in_memory(&clock)), on_redis(&server.url(), &clock)] {
            for is_cancelled in [true, false] {
                store.forget(&clock).await;
                let [high, low] = [HIGH, 2].map(|size| limits(sized, size));
                let reservation = async |limits: &Limits, name: &[u8], cost, step| {
                    let mut plan = limits.plan(0, cost);
                    plan.reservation = Some(Reservation { name, step });
                    store.verdict(&plan).await.decisions[1].allowed
                };
                let reserve = |seconds| ReservationStep::Reserve { ttl: seconds * SECOND, on_expiry: OnExpiry::Keep };
                clock.set(START);
                assert!(reservation(&high, b"left", 800, reserve(4)).await);
                assert!(reservation(&high, b"settled", 1, reserve(30)).await);
                if is_cancelled {
                    reservation(&low, b"settled", 0, ReservationStep::Cancel).await;
                }
                // Refused, which stores a clamped state.
                assert!(!store.verdict(&low.plan(0, 2)).await.decisions[1].allowed);
                let now = START + 20 * SECOND;
                clock.set(now);
                if let Authority::Memory(store) = &store {
                    store.sweep(store.shard_count());
                }
                // The child's state, which a sweep deletes once it has expired.
                let values = on_server.fields().into_iter().filter(|(_, field, _)| field.ends_with(b"child"));
                for (.., value) in values {
                    assert!(number(&mut &value[..]) > now as f64, "expired: {:?}", sized("1000"));
                }
                let remaining = store.verdict(&high.plan(0, 0)).await.decisions[1].remaining;
                assert!(remaining <= 1_000 - 800 + 21, "{remaining} of {:?}", sized("1000"));
            }
        }
    }
}
