//! Reservations: the units used obey the limit itself, whenever within the reservation they were used.

use super::{
    simulation::START,
    store::{Limits, Store},
};
use crate::{
    algorithm::{HoldAccuracy, Params, State, properties::examples},
    domain::{Decision, Micros, StepInput},
    hold::{OnExpiry, Outcome, Record, Reservation, ReservationStep, Reservations, decide_with_holds},
    plan::Decisions,
    testing::{OnPanic, cases},
};

/// An oracle that knows only the units actually used, and when.
struct Ideal<'a> {
    params: &'a Params,
    phases: [Micros; 2],
    states: [Option<State>; 2],
}

impl Ideal<'_> {
    fn uses(&mut self, units: u64, now: Micros) {
        for (state, phase) in self.states.iter_mut().zip(self.phases) {
            let input = StepInput { now, cost: units as i64, max_wait: None, phase };
            let (decision, next) = self.params.step(state.as_ref(), &input);
            assert!(decision.allowed, "{units} units used at {now} pass the limit itself");
            *state = next.or(state.take());
        }
    }
}

/// An open reservation of the trace.
struct Open {
    name: [u8; 2],
    units: u64,
    on_expiry: OnExpiry,
    deadline: Micros,
}

struct Trace<'a> {
    limits: Limits,
    store: Store,
    ideal: Ideal<'a>,
    open: Vec<Open>,
    now: Micros,
}

impl<'a> Trace<'a> {
    fn new(params: &'a Params) -> Self {
        let limits = Limits::new(&[params.clone(), params.clone()]);
        let phases = [0, 1].map(|index: usize| limits.plan(0).levels()[index].phase());
        let ideal = Ideal { params, phases, states: [None, None] };
        Self { limits, store: Store::new(false), ideal, open: Vec::new(), now: START }
    }

    fn request(&mut self, cost: u64, name: &[u8], step: ReservationStep) -> (Decisions, Outcome) {
        let reservation = Reservation { name, step };
        let mut plan = self.limits.plan(cost as i64);
        plan.reservation = Some(reservation);
        self.store.at(self.now);
        let (decisions, outcome, _) = decide_with_holds(&plan, &mut self.store, self.now);
        (decisions, outcome.unwrap())
    }

    /// Expires reservations: their units are used at the deadline, or refunded.
    fn expire(&mut self) {
        self.open.sort_by_key(|open| open.deadline);
        while self.open.first().is_some_and(|open| open.deadline <= self.now) {
            let open = self.open.remove(0);
            if open.on_expiry == OnExpiry::Keep {
                self.ideal.uses(open.units, open.deadline);
            }
        }
    }

    fn reserve(&mut self, name: [u8; 2], units: u64, ttl: Micros, on_expiry: OnExpiry) {
        let (decisions, outcome) = self.request(units, &name, ReservationStep::Reserve { ttl, on_expiry });
        let passes = decisions.iter().all(|decision| decision.allowed);
        match outcome {
            Outcome::Reserved { expires_after } => {
                assert!(passes && (ttl - ttl / 16..=ttl).contains(&expires_after), "{expires_after} of {ttl}");
                self.open.push(Open { name, units, on_expiry, deadline: self.now + expires_after });
            }
            outcome => assert_eq!((passes, outcome), (false, Outcome::Refused)),
        }
    }

    fn settle(&mut self, index: usize, actual: u64) {
        let open = self.open.remove(index);
        let (_, outcome) = self.request(0, &open.name, ReservationStep::Commit { actual });
        assert_eq!(outcome, Outcome::Settled { actual, overage: 0, before: false });
        self.ideal.uses(actual, self.now);
        // The first settlement counts, later ones do not.
        let (_, again) = self.request(0, &open.name, ReservationStep::Cancel);
        assert_eq!(again, Outcome::Settled { actual, overage: 0, before: true });
        assert_eq!(self.request(0, &open.name, ReservationStep::Extend { ttl: 1_000_000 }).1, Outcome::Unknown);
    }

    fn decided(&mut self, cost: i64) -> Decisions {
        self.store.at(self.now);
        decide_with_holds(&self.limits.plan(cost), &mut self.store, self.now).0
    }

    fn check(&mut self, cost: u64) {
        if self.decided(cost as i64).iter().all(|decision| decision.allowed) {
            self.ideal.uses(cost, self.now);
        }
    }
}

fn exact_examples() -> impl Iterator<Item = Params> {
    examples().map(|(_, params)| params).filter(|params| params.holdable() == Ok(HoldAccuracy::Exact))
}

#[test]
fn usage_of_reservations_obeys_the_limit() {
    cases(8, |seed| {
        for (index, params) in exact_examples().enumerate() {
            let mut random = seed.fork(index as u64);
            let mut trace = Trace::new(&params);
            let max = params.step(None, &StepInput { now: START, cost: 0, max_wait: None, phase: 0 }).0.limit;
            let span = params.window().clamp(1_000, 1 << 35);
            for step in 0..60_u8 {
                let _context = OnPanic(|| format!("{params:?}, step {step}"));
                trace.now += random.pick(&[0, 1, random.clone().magnitude(span / 8), random.clone().magnitude(span)]);
                trace.expire();
                let units = random.magnitude(max.min(1 << 40) as i64).unsigned_abs();
                match random.below(5) {
                    0 | 1 => {
                        let ttl = 10_000 + random.magnitude((2 * span).min(80_000_000_000));
                        let on_expiry = random.pick(&[OnExpiry::Keep, OnExpiry::Release]);
                        trace.reserve([step, 0], units, ttl, on_expiry);
                    }
                    2 => trace.check(units),
                    _ if trace.open.is_empty() => {}
                    3 => {
                        let index = random.below(trace.open.len());
                        let actual = random.magnitude(trace.open[index].units as i64).unsigned_abs();
                        trace.settle(index, actual);
                    }
                    _ => {
                        let (index, ttl) =
                            (random.below(trace.open.len()), 10_000 + random.magnitude(span.min(80_000_000_000)));
                        let name = trace.open[index].name;
                        let (_, outcome) = trace.request(0, &name, ReservationStep::Extend { ttl });
                        let Outcome::Extended { expires_after } = outcome else { panic!("{outcome:?}") };
                        trace.open[index].deadline = trace.now + expires_after;
                    }
                }
            }
        }
    });
}

#[test]
fn more_than_was_reserved_is_charged_in_any_case_and_waited_for() {
    for params in exact_examples() {
        let mut trace = Trace::new(&params);
        let _context = OnPanic(|| format!("{params:?}"));
        let max = params.step(None, &StepInput { now: START, cost: 0, max_wait: None, phase: 0 }).0.limit;
        trace.reserve([1, 0], 1, 1_000_000, OnExpiry::Keep);
        let (decisions, outcome) = trace.request(0, &[1, 0], ReservationStep::Commit { actual: max });
        assert_eq!(outcome, Outcome::Settled { actual: max, overage: max - 1, before: false });
        assert!(decisions.iter().all(|decision| decision.remaining == 0), "{decisions:?}");
        assert!(matches!(trace.store.record(&[1, 0]), Some(Record::Settled { .. })));
    }
}

#[test]
fn a_reservation_that_was_never_made_or_has_expired_is_unknown() {
    let params = exact_examples().next().unwrap();
    let mut trace = Trace::new(&params);
    assert_eq!(trace.request(0, b"no", ReservationStep::Commit { actual: 1 }).1, Outcome::Unknown);
    for on_expiry in [OnExpiry::Keep, OnExpiry::Release] {
        let left = |trace: &mut Trace<'_>| trace.request(0, b"no", ReservationStep::Cancel).0[0].remaining;
        let before = left(&mut trace);
        trace.reserve([1, 0], 2, 100_000, on_expiry);
        assert_eq!(left(&mut trace), before - 2);
        trace.now += 100_000;
        assert_eq!(trace.request(0, &[1, 0], ReservationStep::Cancel).1, Outcome::Unknown);
        assert_eq!(left(&mut trace), if on_expiry == OnExpiry::Keep { before - 2 } else { before });
    }
}

#[test]
fn a_refund_reports_what_is_left_besides_reservations() {
    for (_, params) in examples().filter(|(_, params)| params.holdable().is_ok() && params.as_concurrency().is_none()) {
        let mut trace = Trace::new(&params);
        let max = trace.decided(0)[0].remaining;
        trace.reserve([0, 0], max.div_ceil(2), 60_000_000, OnExpiry::Keep);
        trace.decided(1);
        let (refunded, stands) = (trace.decided(-(max as i64)), trace.decided(0));
        for (refunded, stands) in refunded.iter().zip(&stands) {
            let told = |it: &Decision| (it.remaining, it.next_after, it.reset_after);
            assert!(refunded.allowed && told(refunded) == told(stands), "{refunded:?}, then {stands:?}: {params:?}");
        }
    }
}
