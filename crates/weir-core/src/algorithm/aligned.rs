//! Windows that follow one another from the epoch, or from a key's phase: where they begin, and what was used of one.
//!
//! `aligned.lua` is the same in Lua.

use super::state::{EncodedState, moment, whole};
use crate::domain::Micros;

/// How many edges of a calendar's windows the Lua half is told: of two windows before the one around the caller's idea of now, that
/// one, and three after it. Then clocks may differ by a day, and a reservation may end a day later.
pub const EDGES: usize = 7;

/// Where the window around `now` begins.
#[inline]
pub(crate) fn start(now: Micros, period: Micros, phase: Micros) -> Micros {
    now - (now - phase).rem_euclid(period)
}

/// One window and what was used of it, `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window<const LEAST: i64, const MOST: i64> {
    /// Where it begins.
    pub start: Micros,
    /// Units used of it.
    pub used: i64,
}

impl<const LEAST: i64, const MOST: i64> Window<LEAST, MOST> {
    /// The window to count in. While anything is used of the known one, that is it until its end: also before it begins
    /// (the clock stepped back), and also where the phase has changed since. Else it is the one around now.
    #[inline]
    pub(crate) fn at(state: Option<&Self>, now: Micros, period: Micros, phase: Micros) -> Self {
        match state {
            Some(state) if state.used != 0 && state.start + period > now => *state,
            _ => Self { start: start(now, period, phase), used: 0 },
        }
    }
}

impl<const LEAST: i64, const MOST: i64> EncodedState for Window<LEAST, MOST> {
    fn encode(&self) -> Vec<f64> {
        vec![self.start as f64, self.used as f64]
    }

    fn decode(numbers: &[f64]) -> Option<Self> {
        let [start, used] = *numbers else { return None };
        Some(Self { start: moment(start)?, used: whole(used, LEAST, MOST)? })
    }
}
