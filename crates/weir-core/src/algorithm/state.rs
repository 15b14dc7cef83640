//! States as numbers: their encoding in the Lua half and in snapshots.

/// A state that is encoded as numbers.
pub trait EncodedState: Sized {
    /// Returns the numbers in the order of the Lua half's table; whole ones are below 2^53. At most 65,535 of them.
    fn encode(&self) -> Vec<f64>;

    /// Returns the state that encodes to exactly these numbers; `None` if there is none.
    fn decode(numbers: &[f64]) -> Option<Self>;

    /// Returns the first version of the snapshot format whose readers decode it.
    fn snapshot_version(&self) -> u32 {
        1
    }
}

/// The largest integer up to which a double represents every integer exactly.
pub(crate) const MAX_WHOLE: i64 = (1 << 53) - 1;

/// Returns `number` as an integer, from `min` to `max`; `None` if it is not one.
pub(crate) fn whole(number: f64, min: i64, max: i64) -> Option<i64> {
    let whole = number as i64;
    // Compared as bits, because no state has a -0.
    ((whole as f64).to_bits() == number.to_bits() && (min..=max).contains(&whole)).then_some(whole)
}

/// Returns `number` as a moment.
pub(crate) fn moment(number: f64) -> Option<i64> {
    whole(number, -MAX_WHOLE, MAX_WHOLE)
}

/// Returns `number` if it is from `min` to `max` and not -0.
pub(crate) fn real(number: f64, min: f64, max: f64) -> Option<f64> {
    (number.to_bits() != (-0.0f64).to_bits() && (min..=max).contains(&number)).then_some(number)
}
