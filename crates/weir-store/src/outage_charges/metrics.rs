//! Metrics of units admitted without the shared store.

use weir_telemetry::{Render, text::heading};

use super::OutageCharges;

const UNITS: &str = "weir_store_outage_units_total";
const KEYS: &str = "weir_store_outage_keys";

/// The outcomes for admitted units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeOutcome {
    /// Charged to the store.
    Charged,
    /// No longer counted: free again by then, or beyond the limit.
    Drained,
    /// Returned by a refund.
    Returned,
    /// Lost: too many levels were pending.
    Full,
    /// Lost: the store may have charged them, or their state is unusable.
    Unknown,
    /// Dropped by a reset.
    Reset,
    /// Dropped, because their limit is no longer effective.
    Policy,
    /// Lost: the process ended before the store answered.
    Shutdown,
}

impl ChargeOutcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Charged,
        Self::Drained,
        Self::Returned,
        Self::Full,
        Self::Unknown,
        Self::Reset,
        Self::Policy,
        Self::Shutdown,
    ];

    /// The outcomes with which the store charges less than was admitted.
    pub const LOST: [Self; 3] = [Self::Full, Self::Unknown, Self::Shutdown];

    fn name(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::Drained => "drained",
            Self::Returned => "returned",
            Self::Full => "full",
            Self::Unknown => "unknown",
            Self::Reset => "reset",
            Self::Policy => "policy",
            Self::Shutdown => "shutdown",
        }
    }
}

impl Render for OutageCharges {
    fn render(&self, out: &mut String) {
        let help = "Units that limits admitted without the shared store, by what became of them, one for each level: charged \
                    to it afterwards; drained, that is free again by then or more than the limit; returned by a refund; \
                    lost because too many keys waited (full), the store may have charged them before (unknown) or the \
                    process ended (shutdown); dropped by a reset or a policy change.";
        heading(out, UNITS, "counter", help);
        for outcome in ChargeOutcome::ALL {
            let (outcome, units) = (outcome.name(), self.units(outcome));
            out.push_str(&format!("{UNITS}{{store=\"redis\",outcome=\"{outcome}\"}} {units}\n"));
        }
        let help = "Limits of keys whose units were admitted without the shared store and are not charged to it yet.";
        heading(out, KEYS, "gauge", help);
        out.push_str(&format!("{KEYS}{{store=\"redis\"}} {}\n", self.keys()));
    }
}
