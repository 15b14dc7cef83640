//! An exact sliding window: a maximum number of units in any span of its length, by the time at which each was spent.
//!
//! It is the step of the sliding log, and of sliding buckets, which are a log whose times are rounded down to the
//! bucket and whose window is longer by one bucket. `sliding.lua` is the same in Lua.

use super::{
    Spent,
    runs::{Runs, View},
};
use crate::domain::{Decision, Micros, StepInput, time::MAX_MOMENT};

/// A limit as the step sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    limit: u64,
    max_units: u64,
    resolution: Micros,
    span: Micros,
    min_interval: Micros,
    charge_denied: bool,
    last_mark: i64,
}

impl Window {
    /// Creates a window of `limit` units, each of which counts until `span` after the start of its interval of
    /// `resolution`. No limit of this algorithm is above `max_units`.
    pub(crate) fn new(limit: u64, max_units: u64, resolution: Micros, span: Micros) -> Self {
        let last_mark = MAX_MOMENT / resolution;
        Self { limit, max_units, resolution, span, min_interval: 0, charge_denied: false, last_mark }
    }

    /// Sets the minimum interval between requests, and whether refused ones are charged.
    #[must_use]
    pub(crate) fn with(self, min_interval: Micros, charge_denied: bool) -> Self {
        Self { min_interval, charge_denied, ..self }
    }

    /// Decides one request. After a clock has stepped back, units are charged, and judged, at the newest known mark.
    #[inline]
    pub(crate) fn step<const BITS: u32>(
        &self,
        state: Option<&Runs<BITS>>,
        input: &StepInput,
    ) -> (Decision, Option<Runs<BITS>>) {
        let units = input.cost.unsigned_abs();
        if input.cost < 0 {
            let next = state.map(|state| state.without_newest(units));
            let (view, now) = self.in_view(next.as_ref(), input.now);
            return (Decision::pass(self.limit, self.remaining(view, now), self.reset(view, input.now)), next);
        }
        let (view, now) = self.in_view(state, input.now);
        let allowed = view.units() + units <= self.limit && (units == 0 || !self.rests(view, now));
        let next = (units > 0 && (allowed || self.charge_denied)).then(|| {
            // If the limit was lowered there may be more units, and they stay: it may be raised again.
            view.with(now / self.resolution, units, self.limit.max(view.units()))
        });
        let view = next.as_ref().map_or(view, Runs::view);
        let (remaining, reset) = (self.remaining(view, now), self.reset(view, input.now));
        let decision = if allowed {
            Decision::pass(self.limit, remaining, reset)
        } else {
            let retry = (units <= self.limit).then(|| self.passes_at(view, units) - input.now);
            Decision::refuse(self.limit, remaining, retry, reset)
        };
        (decision, next)
    }

    /// Returns the state with `units` charged now, whether they fit or not. Of those that were not `held`, only the newest
    /// that may pass in a window are kept, so an overage does not make a log longer.
    pub(crate) fn charge<const BITS: u32>(
        &self,
        state: Option<&Runs<BITS>>,
        Spent { units, held }: Spent,
        now: Micros,
    ) -> Option<Runs<BITS>> {
        let (view, now) = self.in_view(state, now);
        let known = view.units();
        let kept = self.limit.max(known).max(known.saturating_add(held).min(self.max_units));
        (units > 0).then(|| view.with(now / self.resolution, units, kept))
    }

    /// Returns the units that still count, and the time at which they are judged.
    fn in_view<'a, const BITS: u32>(&self, state: Option<&'a Runs<BITS>>, now: Micros) -> (View<'a, BITS>, Micros) {
        let all = state.map_or(View::EMPTY, Runs::view);
        match all.newest() {
            // A mark after every possible moment was counted in other steps, and would leave the numbers' range here.
            Some(newest) if newest <= self.last_mark => {
                let now = now.max(newest * self.resolution);
                (all.without(|mark| self.leaves(mark) <= now), now)
            }
            _ => (View::EMPTY, now),
        }
    }

    /// Returns the time from which units spent at `mark` no longer count.
    fn leaves(&self, mark: i64) -> Micros {
        mark * self.resolution + self.span
    }

    /// Returns the end of the minimum interval after the newest unit. The interval is between requests, whatever they
    /// cost.
    fn rests_until<const BITS: u32>(&self, view: View<'_, BITS>) -> Micros {
        view.newest().map_or(0, |mark| mark * self.resolution + self.min_interval)
    }

    fn rests<const BITS: u32>(&self, view: View<'_, BITS>, now: Micros) -> bool {
        now < self.rests_until(view)
    }

    /// Returns the first time at which `units` pass that are refused now.
    fn passes_at<const BITS: u32>(&self, view: View<'_, BITS>, units: u64) -> Micros {
        let excess = (view.units() + units).saturating_sub(self.limit);
        let headroom = if excess > 0 { view.mark_of(excess).map_or(0, |mark| self.leaves(mark)) } else { 0 };
        if units > 0 { headroom.max(self.rests_until(view)) } else { headroom }
    }

    fn remaining<const BITS: u32>(&self, view: View<'_, BITS>, now: Micros) -> u64 {
        if self.rests(view, now) { 0 } else { self.limit.saturating_sub(view.units()) }
    }

    fn reset<const BITS: u32>(&self, view: View<'_, BITS>, now: Micros) -> Micros {
        view.newest().map_or(0, |mark| self.leaves(mark) - now)
    }

    /// Returns the numbers for `sliding.lua`.
    pub(crate) fn lua_params(&self) -> Vec<f64> {
        let Self { limit, max_units, resolution, span, min_interval, charge_denied, last_mark } = *self;
        [limit as i64, resolution, span, min_interval, charge_denied.into(), last_mark, max_units as i64]
            .map(|number| number as f64)
            .to_vec()
    }
}
