//! Units granted to a key: in any window, over many windows, and under a clock that steps back.

use super::{
    spec::{Example, Spec},
    trace::examples,
};
use crate::{
    algorithm::{Params, State},
    domain::{Micros, StepInput, request::MAX_WAIT, time::SECOND},
    testing::{Random, cases},
};

/// The only client of a key.
struct Client<'a> {
    params: &'a Params,
    state: Option<State>,
    input: StepInput,
    /// The times at which units started to be served, and their number.
    granted: Vec<(Micros, u64)>,
}

impl<'a> Client<'a> {
    fn new(params: &'a Params, random: &mut Random) -> Self {
        let phase = params.phase_period().map_or(0, |period| random.within(0, period - 1));
        let now = 1_790_000_000_000_000 + random.within(0, 1 << 40);
        Self { params, state: None, input: StepInput { now, cost: 0, max_wait: None, phase }, granted: Vec::new() }
    }

    /// Requests `cost` units, and returns the time until the next try: 0 if it passed.
    fn request(&mut self, cost: u64) -> Option<Micros> {
        self.input.cost = cost as i64;
        let (decision, next) = self.params.step(self.state.as_ref(), &self.input);
        self.state = next.or(self.state.take());
        if decision.allowed {
            self.granted.push((self.input.now + decision.wait, cost));
            return Some(0);
        }
        decision.retry_after
    }

    fn peek(&self) -> (u64, u64, Micros) {
        let peek = self.params.step(self.state.as_ref(), &StepInput { cost: 0, ..self.input }).0;
        (peek.limit, peek.remaining, peek.reset_after)
    }

    /// Takes units as soon as they are available.
    fn greedy(&mut self, random: &mut Random) {
        let (limit, remaining, _) = self.peek();
        let input = StepInput { cost: 0, ..self.input };
        let next = self.params.step(self.state.as_ref(), &input).0.next_after;
        // A refused request would be charged.
        if let Some(next) = next.filter(|_| self.params.charges_denied()) {
            self.input.now += next;
            return;
        }
        let cost = if remaining > 0 { remaining } else { random.pick(&[1, 1, 1, 2, limit]).min(limit) };
        self.input.now += self.request(cost).unwrap_or(0);
    }

    /// Requests any cost at any time, accepting any wait.
    fn random(&mut self, random: &mut Random) {
        self.input.max_wait = random.pick(&[None, Some(0), Some(random.clone().magnitude(MAX_WAIT))]);
        let (limit, remaining, reset) = self.peek();
        self.input.now += match random.below(4) {
            0 | 1 => 0,
            2 => random.magnitude(2 * reset + 2),
            _ => random.within(0, reset + 1),
        };
        let cost = match random.below(4) {
            0 => 1,
            1 => random.within(1, 2 * limit as i64) as u64,
            2 => remaining.max(1),
            _ => random.magnitude(limit as i64).max(1) as u64,
        };
        self.request(cost);
    }

    /// Panics if any window has more than its bound. The tightest windows start with one grant and
    /// end just after another. Returns whether a window longer than a moment reached its bound, and
    /// the most units granted within any window just longer than `elapsed`.
    fn assert_bound(&mut self, bound: impl Fn(Micros, u64) -> u128, elapsed: Micros) -> (bool, u128) {
        self.granted.sort_unstable();
        let largest = self.granted.iter().map(|(_, cost)| *cost).max().unwrap_or(0);
        let (mut full, mut worst) = (false, 0);
        for (first, (from, _)) in self.granted.iter().enumerate() {
            let mut units = 0;
            for (to, cost) in &self.granted[first..] {
                units += u128::from(*cost);
                let max = bound(to - from, largest);
                let params = self.params;
                assert!(units <= max, "{units} in {} us, at most {max}: {params:?} {:?}", to - from, self.granted);
                full |= units == max && to > from;
                worst = if to - from <= elapsed { worst.max(units) } else { worst };
            }
        }
        (full, worst)
    }
}

/// The most units found for one example, and the bound.
#[derive(Clone, Copy, Default)]
struct Worst {
    found: u128,
    bound: u128,
}

/// `PROPERTIES_EFFORT=80` covers over 20,000 patterns of every algorithm. `--nocapture` shows the worst cases.
#[test]
fn no_window_grants_more_than_the_documented_bound() {
    let mut worst = vec![Worst::default(); examples().count()];
    cases(50, |random| {
        for (index, (entry, params)) in examples().enumerate() {
            let nth = examples().take(index).filter(|(before, _)| before.name == entry.name).count();
            let example = Example(entry.examples[nth]);
            let second = example.text("period").map_or(SECOND, |_| example.micros("period") as Micros);
            for greedy in [true, false] {
                let mut random = random.fork(index as u64 + u64::from(greedy) * 1_000);
                let mut client = Client::new(&params, &mut random);
                for _ in 0..60 {
                    if greedy { client.greedy(&mut random) } else { client.random(&mut random) }
                }
                let bound = |elapsed, largest| (entry.spec.bound)(example, elapsed, largest);
                let (full, found) = client.assert_bound(bound, second - 1);
                // Calendar windows differ in length, so the ones in the trace may be too long to reach the bound.
                let is_even = example.text("calendar").is_none();
                let reached = full || !greedy || !entry.spec.is_reached || !is_even;
                assert!(reached, "a greedy client of {params:?} never had all that is documented");
                let largest = client.granted.iter().map(|(_, cost)| *cost).max().unwrap_or(0);
                if found > worst[index].found {
                    worst[index] = Worst { found, bound: bound(second - 1, largest) };
                }
            }
        }
    });
    for ((entry, params), Worst { found, bound }) in examples().zip(worst) {
        println!("{} {}: at most {found} within a period, of {bound}", entry.name, params.describe());
    }
}

/// Two clients request one unit at a time. The clock of one steps back; the other's clock stops at
/// the latest time that the first one's key can know, the time of a grant. Limits whose loans cost
/// more after an idle time are excluded: a refused client has idled less when both return, and may
/// be granted more.
#[test]
fn a_clock_stepping_back_grants_no_more_than_a_stopped_one() {
    cases(60, |random| {
        let steady = |spec: &Spec| spec.is_reached || !spec.lends;
        for (index, (_, params)) in examples().enumerate().filter(|(_, (entry, _))| steady(entry.spec)) {
            let mut random = random.fork(index as u64);
            let mut back = Client::new(&params, &mut random);
            let mut still = Client { params: &params, state: None, input: back.input, granted: Vec::new() };
            let mut known = 0;
            for _ in 0..200 {
                let reset = back.peek().2.max(1_000);
                back.input.now += match random.below(8) {
                    0 => random.within(0, reset),
                    1 => -random.magnitude(2 * reset),
                    _ => random.within(-1, 1),
                };
                still.input.now = back.input.now.max(known);
                if back.request(1) == Some(0) || params.charges_denied() {
                    known = still.input.now;
                }
                still.request(1);
                assert!(
                    back.granted.len() <= still.granted.len(),
                    "{params:?}: {:?}, {:?}",
                    back.granted,
                    still.granted
                );
            }
        }
    });
}
