//! A generator that adapts to the last answers, to produce the times and costs at which errors would show.

use weir_core::{
    domain::{
        Charge, Decision, Micros,
        request::{MAX_COST, MAX_WAIT},
        time::MAX_MOMENT,
    },
    plan::Decisions,
    testing::Random,
};

use super::fixture::{Check, Fixture, Named};

/// A step of a trace.
#[derive(Debug)]
pub enum Step {
    Check(Check),
    Reset {
        key: Named,
        subtree: bool,
    },
    /// These limits change their parameters.
    Change(Vec<usize>),
}

/// The features of a trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceOptions {
    /// Whether the clock may step back.
    pub back: bool,
    /// Whether a request may have limits of several anchors.
    pub several_anchors: bool,
}

impl TraceOptions {
    /// All features.
    pub const ANY: Self = Self { back: true, several_anchors: true };
}

/// Number of remembered edges.
const EDGES: usize = 12;
/// Maximum number of levels in a request.
const LEVELS: usize = 6;

pub struct Generator {
    random: Random,
    options: TraceOptions,
    pub fixture: Fixture,
    now: Micros,
    /// Times, according to the last answers, at which a state changes.
    edges: Vec<Micros>,
    /// The last answer of each limit.
    last: Vec<Option<Decision>>,
}

impl Generator {
    pub fn new(seed: u64, options: TraceOptions) -> Self {
        let mut random = Random::new(seed);
        let fixture = Fixture::new(&mut random);
        let now = match random.below(10) {
            0 => 0,
            1 => MAX_MOMENT - random.magnitude(1 << 40),
            _ => 1_790_000_000_000_000 + random.within(0, 1 << 40),
        };
        let last = vec![None; fixture.rules.len()];
        Self { random, options, fixture, now, edges: Vec::new(), last }
    }

    /// Returns the next step and its time.
    pub fn step(&mut self) -> (Micros, Step) {
        self.now = self.moment();
        let step = match self.random.below(20) {
            0 => self.reset(),
            1 => Step::Change(self.fixture.change(&mut self.random)),
            _ => Step::Check(self.check()),
        };
        (self.now, step)
    }

    /// Takes the answer to a check.
    pub fn observe(&mut self, check: &Check, decisions: &Decisions) {
        for ((_, rule, _), decision) in check.levels.iter().zip(decisions) {
            self.last[*rule] = Some(*decision);
            let Decision { retry_after, next_after, reset_after, wait, .. } = *decision;
            let ends = [retry_after, next_after, Some(reset_after), Some(wait)];
            self.edges.extend(ends.into_iter().flatten().filter(|end| *end > 0).map(|end| self.now + end));
        }
        let old = self.edges.len().saturating_sub(EDGES);
        self.edges.drain(..old);
    }

    /// Draws a time: often the same, often at an edge or a microsecond next to it, sometimes far away, sometimes in the
    /// past.
    fn moment(&mut self) -> Micros {
        let (random, now) = (&mut self.random, self.now);
        let edge = if self.edges.is_empty() { now } else { random.pick(&self.edges) };
        let moment = match random.below(20) {
            0..7 => now,
            7..12 => edge + random.within(-1, 1),
            12..15 => now + random.within(0, (edge - now).max(0)),
            15 => now + 1,
            16 => now + random.magnitude(1 << 42),
            17 => edge + random.magnitude((edge - now).max(1)),
            18 => now - random.magnitude((edge - now).abs().max(1 << 20)),
            _ if random.once_in(10) => random.pick(&[0, MAX_MOMENT]),
            _ => now - random.within(0, 2),
        };
        moment.clamp(if self.options.back { 0 } else { now }, MAX_MOMENT)
    }

    fn check(&mut self) -> Check {
        let key = self.random.below(self.fixture.keys.len());
        let mut levels: Vec<_> = self.fixture.rules_of(key).into_iter().map(|rule| (key, rule)).collect();
        if self.random.once_in(3) || levels.is_empty() {
            // Like Envoy's requests, with several keys that may share limits.
            for _ in 0..self.random.below(4) + usize::from(levels.is_empty()) {
                let (key, rule) = self.any_level();
                levels.push((key, rule));
            }
        }
        if !self.options.several_anchors {
            let anchor = |level: &(usize, usize)| self.fixture.anchor_path(level.0, level.1);
            let first = anchor(&levels[0]).to_vec();
            levels.retain(|level| anchor(level) == first);
        }
        levels.truncate(LEVELS);
        let (_, priced) = self.random.pick(&levels);
        let one_cost = self.cost(priced);
        let differ = self.random.once_in(4);
        let priced = levels.into_iter().map(|(key, rule)| (key, rule, if differ { self.cost(rule) } else { one_cost }));
        Check {
            levels: priced.collect(),
            charge: self.random.pick(&[
                Charge::AllOrNothing,
                Charge::AllOrNothing,
                Charge::Independent,
                Charge::OverLimitOnly,
            ]),
            max_wait: match self.random.below(4) {
                0 => Some(0),
                1 => Some(self.random.magnitude(MAX_WAIT)),
                _ => None,
            },
            factor: if self.random.once_in(10) { self.random.pick(&[0.5, 2.0, 3.0, 0.1]) } else { 1.0 },
            dry_run: self.random.once_in(6),
        }
    }

    /// Draws a limit, and a key with this limit on its path.
    fn any_level(&mut self) -> (usize, usize) {
        let rule = self.random.below(self.fixture.rules.len());
        let keys: Vec<_> =
            (0..self.fixture.keys.len()).filter(|key| self.fixture.rules_of(*key).contains(&rule)).collect();
        (self.random.pick(&keys), rule)
    }

    fn cost(&mut self, rule: usize) -> i64 {
        let (limit, remaining) = self.last[rule].map_or((5, 5), |last| (last.limit as i64, last.remaining as i64));
        let random = &mut self.random;
        let cost = match random.below(20) {
            0..2 => 0,
            2..7 => 1,
            7..9 => random.within(1, 5),
            9..12 => remaining + random.within(-1, 1),
            12 => limit + random.within(-1, 1),
            13..15 => random.within(0, remaining),
            15 => random.within(0, 2 * limit),
            16 => -random.magnitude(limit),
            17 => -random.within(1, 3),
            18 => random.within(0, limit),
            _ => random.pick(&[MAX_COST, -MAX_COST, MAX_COST - 1, -limit]),
        };
        cost.clamp(-MAX_COST, MAX_COST)
    }

    /// Draws a reset, mostly of a key of the trace or one above it, sometimes of one below or of an unused one.
    fn reset(&mut self) -> Step {
        let random = &mut self.random;
        let key = &self.fixture.keys[random.below(self.fixture.keys.len())];
        let depth = 1 + random.below(key.key.depth());
        let more = if random.once_in(8) { Some(random.pick(&["trade", "*", "nobody"])) } else { None };
        Step::Reset { key: key.prefix(depth, more), subtree: random.once_in(2) }
    }
}
