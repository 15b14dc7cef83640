//! What may become of a charge afterwards: told later than it was spent, or taken back.

use crate::domain::Micros;

/// How well a limit is kept when units of it are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// What is admitted from holds, the limit would have admitted one request after the other.
    Exactly,
    /// No window has more than the limit's bound, but a request may pass a tick, or a rounding, earlier than it would have.
    WithinBound,
}

/// How what was charged is taken back so that a state is as if that had never been charged, others having charged since:
/// by a refund, for so long, or else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesBack {
    /// As long as what was charged before it has not faded altogether: all charges fade as one.
    WhileItLasts,
    /// Until the end of the period in which it was charged; the key's own, where it has a phase.
    WithinPeriod(Micros),
    /// A refund takes the newest charges. But each is remembered by its mark, so `runs_without` of `runs.lua` finds it.
    ByMark,
    /// Not at all.
    Never,
}
