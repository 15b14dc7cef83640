//! The price of a unit in time, which rises the colder the key is.

use crate::domain::Micros;

/// A key stores up to `max` units while it idles. The price of each is `stable` while fewer than `threshold` are
/// stored. Above that it rises linearly, by `slope` per unit, to the cold price when all are stored. Times are in
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Curve {
    pub(crate) stable: f64,
    pub(crate) threshold: f64,
    pub(crate) slope: f64,
    pub(crate) max: f64,
    /// The time in which an idle key stores one unit.
    pub(crate) cool: f64,
}

impl Curve {
    /// Creates the curve on which spending the store from `max` down to `threshold` takes `warm_up`, like storing all
    /// of it. The formulas come from Guava's SmoothWarmingUp; `warm_up / stable` is rounded once,
    /// so that whole numbers of units stay whole.
    pub(crate) fn new(count: u64, period: Micros, warm_up: Micros, cold_factor: f64) -> Self {
        let stable = period as f64 / count as f64;
        let units = warm_up as f64 * count as f64 / period as f64;
        let threshold = units / 2.0;
        let max = threshold + 2.0 * units / (1.0 + cold_factor);
        let slope = (stable * cold_factor - stable) / (max - threshold);
        Self { stable, threshold, slope, max, cool: warm_up as f64 / max }
    }

    /// Returns the time that `units` take when `spent` are missing from the store, and how many are missing
    /// afterwards. Units beyond the store have the stable price.
    pub(crate) fn spend(&self, units: f64, spent: f64) -> (f64, f64) {
        let above = self.max - spent - self.threshold;
        let (mut dear, mut price) = (0.0, 0.0);
        if above > 0.0 {
            dear = if units < above { units } else { above };
            let (first, last) = (self.stable + above * self.slope, self.stable + (above - dear) * self.slope);
            price = dear * (first + last) / 2.0;
        }
        price += (units - dear) * self.stable;
        let spent = spent + units;
        (price, if spent < self.max { spent } else { self.max })
    }

    /// Returns the most units, up to `max`, that take no longer than `longest` from a full store, where they take
    /// longest.
    pub(crate) fn max_units_within(&self, longest: f64, max: u64) -> u64 {
        let (mut fits, mut beyond) = (0, max + 1);
        while fits + 1 < beyond {
            let middle = fits + (beyond - fits) / 2;
            if self.spend(middle as f64, 0.0).0 <= longest { fits = middle } else { beyond = middle }
        }
        fits
    }
}
