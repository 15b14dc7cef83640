//! Consecutive windows, aligned to the epoch or to a key's phase: where they start, and the units
//! used of one.
//!
//! `aligned.lua` is the same in Lua.

use super::state::{EncodedState, moment, whole};
use crate::domain::Micros;

/// Number of edges of calendar windows that the Lua half receives: the edges of the window around
/// the replica's present time, of two windows before it and of three after it. So clocks may differ
/// by a day, and a reservation may end a day later.
pub const EDGES: usize = 7;

/// Returns the start of the window around `now`.
#[inline]
pub(crate) fn start(now: Micros, period: Micros, phase: Micros) -> Micros {
    now - (now - phase).rem_euclid(period)
}

/// One window and the units used of it, `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<const MIN: i64, const MAX: i64> {
    /// The start of the window.
    pub start: Micros,
    /// Units used of it.
    pub used: i64,
}

impl<const MIN: i64, const MAX: i64> Window<MIN, MAX> {
    /// Returns the window to count in. A window with units used stays current until its end, even
    /// before it starts (the clock stepped back) and even if the phase has changed since. Otherwise
    /// it is the window around `now`.
    #[inline]
    pub(crate) fn at(state: Option<&Self>, now: Micros, period: Micros, phase: Micros) -> Self {
        match state {
            Some(state) if state.used != 0 && state.start + period > now => *state,
            _ => Self { start: start(now, period, phase), used: 0 },
        }
    }
}

impl<const MIN: i64, const MAX: i64> EncodedState for Window<MIN, MAX> {
    fn encode(&self) -> Vec<f64> {
        vec![self.start as f64, self.used as f64]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [start, used] = *numbers else { return None };
        Some(Self { start: moment(start)?, used: whole(used, MIN, MAX)? })
    }
}
