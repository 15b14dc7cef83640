//! Random traces: one key, with requests at times where errors are likely to show.

use std::{cell::Cell, fmt};

use crate::testing::{OnPanic, Random, cases};
use crate::{
    algorithm::{Bounds, Entry, Params, State, rates},
    domain::{
        Decision, Micros, StepInput,
        request::{MAX_COST, MAX_WAIT},
        time::MAX_MOMENT,
    },
};

/// The events of a trace.
#[derive(Clone, Copy)]
pub(crate) struct Events {
    /// Whether the clock may step back.
    pub(crate) back: bool,
    /// Whether the limit's parameters may change.
    pub(crate) changes: bool,
    /// Whether there are refunds.
    pub(crate) refunds: bool,
}

impl Events {
    /// All events.
    pub(crate) const ANY: Self = Self { back: true, changes: true, refunds: true };
}

/// One request of a trace.
pub(crate) struct Step<'a> {
    pub(crate) entry: &'static Entry,
    /// The current parameters.
    pub(crate) params: &'a Params,
    /// The parameters that may come into force, since they preserve the meaning of the state.
    pub(crate) others: &'a [Params],
    /// The state before.
    pub(crate) state: Option<&'a State>,
    pub(crate) input: StepInput,
    pub(crate) decision: Decision,
    /// The next state, if it changed.
    pub(crate) next: Option<&'a State>,
    /// The latest time of a charge since the last refund.
    pub(crate) charged_at: Option<Micros>,
    /// The parameters that made the state.
    pub(crate) maker: Option<&'a Params>,
}

impl fmt::Debug for Step<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { params, state, input, decision, next, .. } = self;
        write!(out, "in {state:?} of {params:?}: {input:?} gives {decision:?}, {next:?}")
    }
}

impl Step<'_> {
    /// Returns the state afterwards.
    pub(crate) fn after(&self) -> Option<&State> {
        self.next.or(self.state)
    }

    /// Whether the state may count for less than it says until it is written again: if another limit made it, and its
    /// windows have no fixed times.
    pub(crate) fn may_be_clamped(&self) -> bool {
        self.maker.is_some_and(|maker| maker != self.params) && self.params.sibling_period().is_some()
    }

    /// Returns the same request with another cost.
    pub(crate) fn with_cost(&self, cost: i64) -> StepInput {
        StepInput { cost, ..self.input }
    }

    pub fn decide(&self, state: Option<&State>, input: &StepInput) -> Decision {
        self.params.step(state, input).0
    }

    /// Returns `input` for other parameters, with a phase only if they have one.
    pub(crate) fn under(&self, other: &Params) -> StepInput {
        StepInput { phase: other.phase_period().map_or(0, |period| self.input.phase % period), ..self.input }
    }
}

/// Replays `usual` random traces of `length` requests with every example of every algorithm, and tests a property at
/// each step.
pub(crate) fn replay(usual: u64, length: usize, events: Events, mut property: impl FnMut(&Step<'_>, &mut Random)) {
    cases(usual, |random| {
        for (index, (entry, example)) in examples().enumerate() {
            let number = Cell::new(0);
            let _context = OnPanic(|| format!("{} of {:?}, step {}", entry.name, example, number.get()));
            let mut trace = Trace::new(entry, example.clone(), random.fork(index as u64), events);
            for step in 0..length {
                number.set(step);
                trace.step(&mut property);
            }
        }
    });
}

/// Returns every example of every algorithm that limits a rate.
pub(crate) fn examples() -> impl Iterator<Item = (&'static Entry, Params)> {
    rates().flat_map(|entry| parsed(entry).map(move |params| (entry, params)))
}

fn parsed(entry: &'static Entry) -> impl Iterator<Item = Params> {
    entry.examples.iter().map(|fields| (entry.parse)(fields, &Bounds::default()).unwrap())
}

struct Trace {
    entry: &'static Entry,
    random: Random,
    events: Events,
    params: Params,
    others: Vec<Params>,
    state: Option<State>,
    now: Micros,
    phase: Micros,
    last: Decision,
    charged_at: Option<Micros>,
    maker: Option<Params>,
}

impl Trace {
    fn new(entry: &'static Entry, params: Params, mut random: Random, events: Events) -> Self {
        let now = match random.below(8) {
            0 => 0,
            1 => random.magnitude(MAX_MOMENT),
            2 => MAX_MOMENT - random.magnitude(1 << 40),
            _ => 1_790_000_000_000_000 + random.within(0, 1 << 40),
        };
        let factors = [0.001, 0.1, 0.5, 0.999, 1.5, 2.0, 3.0, 10.0, 1_000.0];
        let scaled = factors.iter().filter_map(|factor| params.scale(*factor).ok());
        let others = parsed(entry).filter(|other| other.time_base() == params.time_base()).chain(scaled).collect();
        let phase = random.magnitude(1 << 45);
        let last = params.step(None, &StepInput { now, cost: 0, max_wait: None, phase: 0 }).0;
        Self { entry, random, events, params, others, state: None, now, phase, last, charged_at: None, maker: None }
    }

    fn step(&mut self, property: &mut impl FnMut(&Step<'_>, &mut Random)) {
        if self.events.changes && self.random.once_in(20) {
            self.params = self.others[self.random.below(self.others.len())].clone();
        }
        self.now = self.moment();
        let input = StepInput {
            now: self.now,
            cost: self.cost(),
            max_wait: match self.random.below(4) {
                0 => Some(0),
                1 => Some(self.random.magnitude(MAX_WAIT)),
                _ => None,
            },
            phase: self.params.phase_period().map_or(0, |period| self.phase % period),
        };
        let (decision, next) = self.params.step(self.state.as_ref(), &input);
        let step = Step {
            entry: self.entry,
            params: &self.params,
            others: &self.others,
            state: self.state.as_ref(),
            input,
            decision,
            next: next.as_ref(),
            charged_at: self.charged_at,
            maker: self.maker.as_ref(),
        };
        property(&step, &mut self.random);
        if next.is_some() {
            self.charged_at = (input.cost > 0).then(|| self.charged_at.map_or(input.now, |at| at.max(input.now)));
            self.state = next;
            self.maker = Some(self.params.clone());
        }
        self.last = decision;
    }

    /// Returns the next time: often the same one, often an edge of the last decision, sometimes far away.
    fn moment(&mut self) -> Micros {
        let random = &mut self.random;
        let edge = random.pick(&[self.last.reset_after, self.last.retry_after.unwrap_or(0), self.last.wait]);
        let forward = match random.below(20) {
            0..7 => 0,
            7..11 => edge + random.within(-1, 1),
            11..15 => random.within(0, edge),
            15..17 => random.magnitude(1 << 42),
            17 => 1,
            18 => edge + random.magnitude(edge),
            _ if random.once_in(4) => random.pick(&[-self.now, MAX_MOMENT - self.now]),
            _ => -random.magnitude(edge.max(1 << 20)),
        };
        let moment = (self.now + forward).clamp(0, MAX_MOMENT);
        if self.events.back { moment } else { moment.max(self.now) }
    }

    fn cost(&mut self) -> i64 {
        let random = &mut self.random;
        let (limit, remaining) = (self.last.limit as i64, self.last.remaining as i64);
        let cost = match random.below(20) {
            0..2 => 0,
            2..6 => 1,
            6..8 => random.within(1, 5),
            8..11 => remaining + random.within(-1, 1),
            11..13 => limit + random.within(-1, 1),
            13..15 => random.within(0, remaining),
            15 => random.within(0, 2 * limit),
            16 => -random.magnitude(limit),
            17 => -random.within(1, 3),
            18 => -random.magnitude(MAX_COST),
            _ => random.pick(&[MAX_COST, -MAX_COST, MAX_COST - 1, -limit]),
        };
        let cost = cost.clamp(-MAX_COST, MAX_COST);
        if self.events.refunds { cost } else { cost.abs() }
    }
}
