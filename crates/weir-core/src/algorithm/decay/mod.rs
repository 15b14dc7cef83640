#![doc = include_str!("README.md")]

#[cfg(test)]
pub(crate) mod spec;

use super::{
    Algorithm, Bounds, EncodedState, HoldAccuracy, ParamError, Spent, UndoRule, checked,
    fields::{FieldSet as _, fields},
    kinds::{Flag, Period, Real, divided},
    params::{CHARGES_DENIED, MAX_COUNT, MAX_DEPTH, MAX_PERIOD},
    state::{moment, real},
};
use crate::domain::{Decision, Micros, StepInput};

/// The amount at or below which a counter counts as 0.
const NOTHING: f64 = 1e-9;
/// Maximum `max`.
const MAX_AMOUNT: f64 = MAX_COUNT as f64;

fields! {
    pub(crate) struct Fields as proto::Decay {
        max: Real,
        resolution: Period,
        decay: Real,
        charge_denied: Flag = false,
    }
    examples [
        { max: 10, resolution: 1s, decay: 1.125 },
        { max: 100, resolution: 1m, decay: 1.2 },
        { max: 2.5, resolution: 1s, decay: 2 },
        { max: 20, resolution: 50ms, decay: 2 },
        { max: 1, resolution: 1m, decay: 1000000 },
        { max: 5, resolution: 1s, decay: 1.5, charge_denied: true },
        { max: 999983.25, resolution: 1d, decay: 1.01 },
        { max: 3000000, resolution: 333333us, decay: 1.001 },
        { max: 4294967296, resolution: 1us, decay: 1.001 },
        { max: 4294967296, resolution: 31d, decay: 1.11 },
        { max: 500, resolution: 6h, decay: 1.001 },
        { max: 400, resolution: 30d, decay: 2 },
    ]
}

/// A counter of up to `max` that is divided by `decay` at the end of each slot of `resolution`.
#[derive(Clone, Debug, PartialEq)]
pub struct Decay {
    fields: Fields,
    /// The natural logarithm of `decay`. Only a starting point for searches, since math libraries differ in its last
    /// bits.
    ln_decay: f64,
    /// Twice `max`, or 2^32 with `charge_denied`, under which refusals raise the counter. Charges beyond what fits
    /// raise it no further, and a higher one, left by another limit, is clamped to it, so that a lowered limit
    /// refuses no longer than its own charges could make it.
    highest: f64,
}

/// The amount of a counter in the slot in which it last changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counter {
    /// The start of the slot. A time instead of a slot number, so that it means the same under any resolution.
    start: Micros,
    amount: f64,
}

/// A counter at the present time.
#[derive(Clone, Copy)]
struct Now {
    slot: i64,
    amount: f64,
    /// The slot and amount from which it has decayed: later slots are computed from these, unless it changes now.
    known: (i64, f64),
}

/// Returns what is left of `amount` after `slots` slots. The power is computed by squaring, from the lowest bit up,
/// because `powf` differs between machines; the Lua half does the same. Its error is below 2^-36 if the result is
/// above [`NOTHING`], far less than one step of decay, so more slots never leave more.
fn left_after(mut slots: u64, amount: f64, decay: f64) -> f64 {
    let (mut power, mut square) = (1.0, decay);
    while slots > 0 {
        if slots & 1 == 1 {
            power *= square;
        }
        square *= square;
        slots >>= 1;
    }
    or_nothing(amount / power)
}

fn or_nothing(amount: f64) -> f64 {
    if amount <= NOTHING { 0.0 } else { amount }
}

impl Decay {
    /// Returns the counter at `now`, or in the slot of its last change if that is later (the clock stepped back).
    fn at(&self, state: Option<&Counter>, now: Micros) -> Now {
        let slot = now.div_euclid(self.fields.resolution);
        if let Some(Counter { start, amount }) = state.copied().filter(|state| state.amount > 0.0) {
            let (known, amount) = (start.div_euclid(self.fields.resolution), amount.min(self.highest));
            let slot = slot.max(known);
            let left = left_after((slot - known).unsigned_abs(), amount, self.fields.decay);
            if left > 0.0 {
                return Now { slot, amount: left, known: (known, amount) };
            }
        }
        Now { slot, amount: 0.0, known: (slot, 0.0) }
    }

    /// Returns the least number of slots after which at most `target` is left of `amount`; `target` is at least
    /// [`NOTHING`]. A guess by logarithm, corrected by the same powers that decisions use, which takes a step or two.
    fn slots_until(&self, amount: f64, target: f64) -> i64 {
        let left_after = |slots: i64| left_after(slots.unsigned_abs(), amount, self.fields.decay);
        let mut slots = self.guess(amount, target);
        while left_after(slots) > target {
            slots += 1;
        }
        while slots > 0 && left_after(slots - 1) <= target {
            slots -= 1;
        }
        slots
    }

    fn guess(&self, amount: f64, target: f64) -> i64 {
        (((amount / target).ln() / self.ln_decay).ceil() as i64).max(0)
    }

    /// Returns the time until at most `target` is left of the known amount.
    fn until(&self, target: f64, (slot, amount): (i64, f64), now: Micros) -> Micros {
        (slot + self.slots_until(amount, target.max(NOTHING))) * self.fields.resolution - now
    }

    fn limit(&self) -> u64 {
        self.fields.max as u64
    }

    fn remaining(&self, amount: f64) -> u64 {
        let headroom = (self.fields.max - amount).max(0.0).floor();
        // The difference may have been rounded up to an integer; a difference from an integer is exact.
        if amount > self.fields.max - headroom { (headroom as u64).saturating_sub(1) } else { headroom as u64 }
    }

    fn reset_after(&self, counter: &Now, now: Micros) -> Micros {
        if counter.amount > 0.0 { self.until(NOTHING, counter.known, now) } else { 0 }
    }

    /// Changes the counter to `amount`, and returns the decision and the state.
    fn change(&self, counter: Now, amount: f64, now: Micros) -> (Decision, Counter) {
        let changed = Now { amount, known: (counter.slot, amount), ..counter };
        let decision = Decision::pass(self.limit(), self.remaining(amount), self.reset_after(&changed, now));
        (decision, Counter { start: counter.slot * self.fields.resolution, amount })
    }
}

impl Algorithm for Decay {
    type Fields = Fields;
    type State = Counter;

    fn new(fields: Fields, _: &Bounds) -> Result<Self, ParamError> {
        let Fields { max, resolution, decay, charge_denied } = fields;
        if !(max > 0.0 && max <= MAX_AMOUNT) {
            return Err(ParamError::new("max", format!("max must be above 0 and at most 2^32, not {max}")));
        }
        if !(1.001..=1e6).contains(&decay) {
            return Err(ParamError::new("decay", format!("decay must be 1.001 to 1000000, not {decay}")));
        }
        let highest = if charge_denied { MAX_AMOUNT } else { MAX_AMOUNT.min(2.0 * max) };
        let params = Self { fields, ln_decay: decay.ln(), highest };
        if params.slots_until(MAX_AMOUNT, NOTHING) > MAX_DEPTH / resolution {
            let reason = "decay is so slow at this resolution that 2^32 units would take over 2^50 us (35 years) to be \
                          forgotten";
            return Err(ParamError::new("decay", reason));
        }
        Ok(params)
    }

    fn fields(&self) -> &Fields {
        &self.fields
    }

    #[inline]
    fn step(&self, state: Option<&Counter>, input: &StepInput) -> (Decision, Option<Counter>) {
        let now = input.now;
        let counter = self.at(state, now);
        if input.cost < 0 {
            let (decision, changed) = self.change(counter, or_nothing(counter.amount + input.cost as f64), now);
            return (decision, state.map(|_| changed));
        }
        // Exact, as the remainder of `max` is a multiple of its last place; a sum with the counter would be rounded.
        let headroom = self.fields.max - input.cost as f64;
        if counter.amount <= headroom && input.cost > 0 {
            let (decision, changed) = self.change(counter, counter.amount + input.cost as f64, now);
            return (decision, Some(changed));
        }
        let (remaining, reset_after) = (self.remaining(counter.amount), self.reset_after(&counter, now));
        if counter.amount <= headroom {
            return (Decision::pass(self.limit(), remaining, reset_after), None);
        }
        if self.fields.charge_denied && input.cost > 0 {
            let amount = (counter.amount + input.cost as f64).min(self.highest);
            let (Decision { limit, remaining, reset_after, .. }, changed) = self.change(counter, amount, now);
            let retry_after = (headroom >= 0.0).then(|| self.until(headroom, (counter.slot, amount), now));
            return (Decision::refuse(limit, remaining, retry_after, reset_after), Some(changed));
        }
        let retry_after = (headroom >= 0.0).then(|| self.until(headroom, counter.known, now));
        (Decision::refuse(self.limit(), remaining, retry_after, reset_after), None)
    }

    fn charges_denied(&self) -> bool {
        self.fields.charge_denied
    }

    fn sparing_denied(&self) -> Option<Self> {
        let fields = Fields { charge_denied: false, ..self.fields };
        self.fields.charge_denied.then_some(Self { fields, ..*self })
    }

    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        if self.fields.charge_denied { Err(CHARGES_DENIED) } else { Ok(HoldAccuracy::WithinBound) }
    }

    fn charge(&self, state: Option<&Counter>, Spent { units, held }: Spent, now: Micros, _: Micros) -> Option<Counter> {
        let Now { slot, amount, .. } = self.at(state, now);
        let mut amount = (amount + units as f64).min(self.highest);
        // Of a counter below it, one number cannot say both what counts under this limit and under a higher one.
        if held > 0 && amount >= self.highest {
            let known = state.map_or(0.0, |state| {
                let slots = slot - state.start.div_euclid(self.fields.resolution);
                left_after(slots.max(0).unsigned_abs(), state.amount, self.fields.decay)
            });
            amount = amount.max((known + held as f64).min(MAX_AMOUNT));
        }
        Some(Counter { start: slot * self.fields.resolution, amount })
    }

    fn kept_until(&self, state: &Counter) -> Option<Micros> {
        let slot = state.start.div_euclid(self.fields.resolution);
        (state.amount > self.highest).then(|| self.until(NOTHING, (slot, state.amount), 0))
    }

    /// Rounds up to at least 1, like integer counts; but a factor of 1 or more never gives more than before.
    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        let max = divided(self.fields.max, factor).max(1.0);
        let max = if factor < 1.0 { max } else { max.min(self.fields.max) };
        checked(Fields { max, ..self.fields }, &Bounds { max_period: MAX_PERIOD })
    }

    fn reaching(self, other: &Self) -> Self {
        Self { highest: self.highest.max(other.highest), ..self }
    }

    fn time_base(&self) -> String {
        format!("{}/{}", self.fields.resolution, self.fields.decay)
    }

    fn undo_rule(&self) -> UndoRule {
        UndoRule::WithinPeriod(self.fields.resolution)
    }

    fn window(&self) -> Micros {
        // The amount admitted in the long run is at most max * (1 - 1 / decay) per slot.
        (self.fields.resolution as f64 * self.fields.decay / (self.fields.decay - 1.0)).ceil() as Micros
    }

    fn lua_params(&self) -> Vec<f64> {
        [self.fields.numbers(), vec![self.ln_decay, self.highest]].concat()
    }
}

impl EncodedState for Counter {
    fn encode(&self) -> Vec<f64> {
        vec![self.start as f64, self.amount]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [start, amount] = *numbers else { return None };
        let amount = real(amount, 0.0, MAX_AMOUNT).filter(|amount| *amount == 0.0 || *amount > NOTHING)?;
        Some(Self { start: moment(start)?, amount })
    }
}
