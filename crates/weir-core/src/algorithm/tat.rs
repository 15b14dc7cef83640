//! The theoretical arrival time (TAT): one number for how far ahead of the clock a key has spent.
//!
//! It is the state of the whole GCRA family. `tat.lua` is the same in Lua.

use super::{
    Spent,
    params::{MAX_COUNT, MAX_KEPT_FOR_OTHERS},
    span::{Rate, Span},
    state::{EncodedState, MAX_WHOLE, moment, whole},
};
use crate::domain::{Decision, Micros, StepInput, time::SECOND};

/// Maximum number of other limits whose arrival times a state keeps.
const MAX_OTHERS: usize = 3;

/// Time for which it keeps them once their own units have refilled. Without its own arrival time, a
/// limit would adopt another one's, which may already exhaust it.
const KEPT_PASSED: Micros = 3_600 * SECOND;

/// The signature of an arrival time for limits whose own ones do not count units that they have admitted: units that were
/// held, and more than the limit that settles them can count. Above every numerator, like all signatures.
const HELD: u64 = 1 << 32;

/// The theoretical arrival times of a key, for the limit that wrote the state and others that wrote
/// it before. So limits that are applied together, as during a rollout, each admit no more than
/// they would alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tat(Repr);

/// As small as one arrival time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Repr {
    /// The arrival time of one limit, as in [`Arrival`].
    One { num: u32, micros: Micros, maker: u64 },
    /// The arrival time of the limit that wrote the state, then of others, the latest first.
    Several(Box<[Arrival]>),
}

/// The arrival time of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    micros: Micros,
    num: u32,
    /// The signature of the limit, less one: below 2^32, and beyond that a number of 20 bits for the factor of a
    /// request.
    maker: u64,
    /// Its rate and its furthest, by which others charge it; `None` if it has not written the state since there are
    /// others. Those of [`HELD`]: the rate of the limit that settled the units, and [`MAX_KEPT_FOR_OTHERS`].
    terms: Option<(Rate, Span)>,
    /// Until when it is kept with others, regardless of their charges: an hour after its own units
    /// have refilled.
    until: Micros,
}

impl Arrival {
    fn is_of(&self, maker: u64) -> bool {
        self.maker as u32 == maker as u32
    }

    fn span(&self) -> Span {
        Span { micros: self.micros, num: i64::from(self.num) }
    }

    fn ceil(&self) -> Micros {
        self.span().ceil()
    }

    /// Returns the arrival time after `units` that another limit has charged: never further than the limit's furthest,
    /// unless it was before.
    fn charged(self, units: u64, now: Micros) -> Self {
        let Some((rate, furthest)) = self.terms.filter(|_| units > 0) else { return self };
        let (at, present) = (self.span(), Span::whole(now));
        let next = rate.add(at.max(present), rate.span(units)).min(rate.add(present, furthest)).max(at);
        Self { micros: next.micros, num: next.num as u32, ..self }
    }

    fn decode(micros: f64, num: f64, maker: f64) -> Option<Self> {
        let micros = moment(micros)?;
        let maker = whole(maker, 1, 1 << 52)?;
        let num = whole(num, 0, (maker - 1).min(MAX_COUNT as i64 - 1))?;
        Some(Self { micros, num: num as u32, maker: (maker - 1).unsigned_abs(), terms: None, until: 0 })
    }

    /// Returns the terms that are encoded as these numbers, 0 for none.
    fn decode_terms(numbers: [f64; 5]) -> Option<Option<(Rate, Span)>> {
        if numbers.iter().all(|number| number.to_bits() == 0) {
            return Some(None);
        }
        let [rate, part, den, micros, num] = numbers;
        let den = whole(den, 1, MAX_COUNT as i64)?;
        let rate = Rate { whole: whole(rate, 0, MAX_WHOLE)?, part: whole(part, 0, den - 1)?, den };
        Some(Some((rate, Span { micros: whole(micros, 0, MAX_WHOLE)?, num: whole(num, 0, MAX_COUNT as i64 - 1)? })))
    }
}

impl Tat {
    fn of(arrivals: &[Arrival]) -> Option<Self> {
        match *arrivals {
            [] => None,
            [Arrival { micros, num, maker, .. }] => Some(Self(Repr::One { num, micros, maker })),
            ref several => Some(Self(Repr::Several(several.into()))),
        }
    }

    /// Returns the arrival time of the limit that wrote the state, and of the others.
    fn arrivals(&self) -> (Arrival, &[Arrival]) {
        match &self.0 {
            Repr::One { num, micros, maker } => {
                let own = Arrival { micros: *micros, num: *num, maker: *maker, terms: None, until: 0 };
                (Arrival { until: own.ceil() + KEPT_PASSED, ..own }, &[])
            }
            // Never empty.
            Repr::Several(all) => (all[0], &all[1..]),
        }
    }

    fn all(&self) -> Vec<Arrival> {
        let (latest, others) = self.arrivals();
        [&[latest], others].concat()
    }
}

impl EncodedState for Tat {
    /// Encodes the micros, the numerator and the signature, which is above the numerator. If there are several limits,
    /// each also has its rate, its furthest and until when it is kept.
    fn encode(&self) -> Vec<f64> {
        let (own, others) = self.arrivals();
        let numbers = |arrival: &Arrival| {
            let Arrival { micros, num, maker, terms, until } = *arrival;
            let terms = terms
                .map_or([0; 5], |(rate, furthest)| [rate.whole, rate.part, rate.den, furthest.micros, furthest.num]);
            [[micros, i64::from(num), (maker + 1) as i64].as_slice(), &terms, &[until]]
                .concat()
                .into_iter()
                .map(|number| number as f64)
        };
        if others.is_empty() {
            return numbers(&own).take(3).collect();
        }
        [&own].into_iter().chain(others).flat_map(numbers).collect()
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        if let [micros, num, maker] = *numbers {
            return Self::of(&[Arrival::decode(micros, num, maker)?]);
        }
        let (all, rest) = numbers.as_chunks();
        if !rest.is_empty() || !(2..=1 + MAX_OTHERS).contains(&all.len()) {
            return None;
        }
        let arrivals = all.iter().map(|&[micros, num, maker, rate, part, den, furthest, furthest_num, until]| {
            let terms = Arrival::decode_terms([rate, part, den, furthest, furthest_num])?;
            Some(Arrival { terms, until: moment(until)?, ..Arrival::decode(micros, num, maker)? })
        });
        Self::of(&arrivals.collect::<Option<Vec<_>>>()?)
    }

    /// Weir 0.2 knows only the arrival time of one limit, without a factor.
    fn snapshot_version(&self) -> u32 {
        match self.0 {
            Repr::One { maker, .. } if maker < MAX_COUNT => 1,
            _ => 2,
        }
    }
}

/// The furthest time ahead of the clock that counts of another limit's arrival time, and the signature of a limit's
/// own. Its own, under any factor of a request, are never clamped here, since one further ahead means that a clock
/// stepped back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    furthest: Span,
    maker: u64,
}

impl Reach {
    /// Creates the reach of a limit with this rate. Limits with the same `signed` numbers take each other's arrival
    /// times for their own.
    pub(crate) fn new(rate: Rate, furthest: Span, signed: &[i64]) -> Self {
        let mix = |hash: u64, number: &i64| {
            let hash = (hash ^ *number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^ (hash >> 32)
        };
        let hash = signed.iter().fold(0, mix) as u32;
        // Above every numerator.
        Self { furthest, maker: u64::from(hash).max((rate.den - 1).unsigned_abs()) }
    }

    /// Returns the reach of a limit that shares its states with another one, by factors of requests: at least as far, and
    /// with a signature of the same limit.
    pub(super) fn reaching(self, other: Self) -> Self {
        let factor = self.maker % ((1 << 20) - 1) + 1;
        let is_of_limit = self.maker as u32 == other.maker as u32;
        let maker = if is_of_limit { self.maker } else { factor << 32 | u64::from(other.maker as u32) };
        // Rounded up, as the parts of the other one's rate differ.
        let furthest = self.furthest.max(Span::whole(other.furthest.ceil()));
        Self { furthest, maker }
    }

    /// Returns a state of this limit alone.
    #[inline]
    pub(crate) fn alone(&self, at: Span) -> Tat {
        Tat(Repr::One { micros: at.micros, num: at.num as u32, maker: self.maker })
    }

    /// Returns the arrival time of a state of this limit alone; `None` if exactly this limit did
    /// not write it.
    #[inline]
    fn read_alone(&self, tat: &Tat, rate: Rate) -> Option<Span> {
        match tat.0 {
            Repr::One { num, micros, maker } if maker == self.maker && i64::from(num) < rate.den => {
                Some(Span { micros, num: i64::from(num) })
            }
            _ => None,
        }
    }

    /// Returns the limit's arrival time in any state, and whether it was clamped. Its own counts as it is, if others have
    /// charged it. Otherwise the furthest of the others counts too, at most as far as this limit
    /// could have made it. An arrival time of another limit, or of the same one under another
    /// factor, has its fraction rounded up.
    pub(crate) fn read(&self, tat: &Tat, rate: Rate, now: Span) -> (Span, bool) {
        let (latest, others) = tat.arrivals();
        let all = || [&latest].into_iter().chain(others);
        let own = all().find(|arrival| arrival.is_of(self.maker));
        let known = own.map(|own| {
            let is_exact = own.maker == self.maker && i64::from(own.num) < rate.den;
            if is_exact { own.span() } else { Span::whole(own.ceil()) }
        });
        let rest = all().filter(|arrival| !arrival.is_of(self.maker)).map(Arrival::ceil).max().map(Span::whole);
        match (known, rest) {
            (Some(known), Some(rest)) if own.is_some_and(|own| own.terms.is_none()) => {
                let taken = rest.min(rate.add(now, self.furthest)).max(known);
                (taken, taken < rest)
            }
            (Some(known), _) => (known, false),
            (None, Some(rest)) => {
                let furthest = rate.add(now, self.furthest);
                (rest.min(furthest), rest > furthest)
            }
            (None, None) => (now, false),
        }
    }

    /// Returns until when the arrival times of other limits in a state matter to them; `None` if it has none.
    #[inline]
    pub(crate) fn kept_until(&self, tat: &Tat) -> Option<Micros> {
        // Most states are of one limit.
        if matches!(tat.0, Repr::One { maker, .. } if maker == self.maker) {
            return None;
        }
        let (latest, others) = tat.arrivals();
        let others = [&latest].into_iter().chain(others).filter(|arrival| !arrival.is_of(self.maker));
        others.map(|other| other.ceil().min(other.until - KEPT_PASSED)).max()
    }

    /// Returns the state in which this limit is now at `at`, after `charged` units to the state before, which are charged
    /// to the other limits too. Refunds are not: a limit that was full may have been charged less. `held`: see
    /// [`Self::held`].
    fn write(&self, before: &[Arrival], at: Tat, rate: Rate, charged: u64, held: Option<Arrival>, now: Micros) -> Tat {
        let others = before.iter().filter(|other| !other.is_of(self.maker) && other.until > now);
        let own = at.arrivals().0;
        let until = own.ceil().max(now + self.furthest.ceil()) + KEPT_PASSED;
        let own = Arrival { terms: Some((rate, self.furthest)), until, ..own };
        let mut all: Vec<_> = [own].into_iter().chain(others.map(|other| other.charged(charged, now))).collect();
        if let Some(held) = held
            && all.iter().all(|other| other.ceil() < held.ceil())
        {
            all.retain(|other| !other.is_of(HELD));
            all.push(held);
        }
        while all.len() > 1 + MAX_OTHERS {
            // The one whose loss admits the fewest units. That of held units counts for all limits without their own.
            let others = (1..all.len()).filter(|at| all[*at].maker != HELD);
            let Some(nearest) = others.min_by_key(|at| all[*at].until) else { break };
            all.remove(nearest);
        }
        Tat::of(&all).unwrap_or(at)
    }

    /// Returns the arrival time after units that were held, for limits that cannot be charged: by the rate of this limit,
    /// which is at `at` before. For the limit that admitted them it is exact if their rates are equal, and never further
    /// than that limit's furthest. `None` with a factor, since the time of a burst is the same without it.
    fn held(&self, before: &[Arrival], at: Span, rate: Rate, units: u64, now: Micros) -> Option<Arrival> {
        if units == 0 || self.maker > u64::from(u32::MAX) {
            return None;
        }
        let others = before.iter().filter(|other| !other.is_of(self.maker));
        let furthest = others.map(|other| Span::whole(other.ceil())).fold(at.max(Span::whole(now)), Span::max);
        let micros = rate.add(furthest, rate.span(units.min(MAX_COUNT))).ceil().min(now + MAX_KEPT_FOR_OTHERS);
        let terms = Some((rate, Span::whole(MAX_KEPT_FOR_OTHERS)));
        Some(Arrival { micros, num: 0, maker: HELD, terms, until: micros + KEPT_PASSED })
    }

    /// Decides one request by `step`, which is given the limit's own arrival time.
    #[inline(always)]
    pub(crate) fn step(
        &self,
        state: Option<&Tat>,
        rate: Rate,
        input: &StepInput,
        step: impl FnOnce(Option<Span>) -> (Decision, Option<Tat>),
    ) -> (Decision, Option<Tat>) {
        let known = state.and_then(|tat| self.read_alone(tat, rate));
        match state {
            Some(tat) if known.is_none() => self.step_beside(tat, rate, input, step),
            _ => step(known),
        }
    }

    /// Decides one request by a state that another limit has written, or a request with another factor. A refusal stores
    /// a clamped arrival time, so that it lasts no longer than the answer says.
    #[cold]
    fn step_beside(
        &self,
        tat: &Tat,
        rate: Rate,
        input: &StepInput,
        step: impl FnOnce(Option<Span>) -> (Decision, Option<Tat>),
    ) -> (Decision, Option<Tat>) {
        let (at, is_clamped) = self.read(tat, rate, Span::whole(input.now));
        let (decision, next) = step(Some(at));
        let charged = if decision.allowed { input.cost.max(0).unsigned_abs() } else { 0 };
        let next = next.or_else(|| (is_clamped && input.cost > 0).then(|| self.alone(at)));
        (decision, next.map(|next| self.write(&tat.all(), next, rate, charged, None, input.now)))
    }

    /// Returns the state with these units charged now by `charge`, which is given the limit's own arrival time.
    pub(crate) fn charge(
        &self,
        state: Option<&Tat>,
        rate: Rate,
        spent: Spent,
        now: Micros,
        charge: impl FnOnce(Option<Span>) -> Tat,
    ) -> Tat {
        let alone = state.and_then(|tat| self.read_alone(tat, rate));
        let beside = state.filter(|_| alone.is_none());
        let known = alone.or_else(|| Some(self.read(beside?, rate, Span::whole(now)).0));
        let before = beside.map(Tat::all).unwrap_or_default();
        let next = charge(known);
        let held = self.held(&before, known.unwrap_or(Span::whole(now)), rate, spent.held, now);
        let held = held.filter(|held| held.ceil() > next.arrivals().0.ceil());
        if beside.is_none() && held.is_none() {
            return next;
        }
        self.write(&before, next, rate, spent.units.min(MAX_COUNT), held, now)
    }

    /// Returns the numbers for `tat.lua`.
    pub(crate) fn lua_params(&self) -> [f64; 3] {
        let Self { furthest, maker } = *self;
        [(maker + 1) as f64, furthest.micros as f64, furthest.num as f64]
    }
}
