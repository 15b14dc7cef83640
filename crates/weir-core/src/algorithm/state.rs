//! States as numbers: the form in which the Lua half and snapshots keep them.

/// A state that is kept as numbers.
pub trait EncodedState: Sized {
    /// Numbers in the order of the Lua half's table; whole ones are below 2^53. At most 65,535 of them.
    fn encode(&self) -> Vec<f64>;

    /// The state that gives exactly these numbers; `None` where there is none.
    fn decode(numbers: &[f64]) -> Option<Self>;
}

/// The largest whole number: up to it a double tells them apart.
pub(crate) const MAX_WHOLE: i64 = (1 << 53) - 1;

/// The whole number, from `least` to `most`, that `number` is; `None` for any other.
pub(crate) fn whole(number: f64, least: i64, most: i64) -> Option<i64> {
    let whole = number as i64;
    // Bits, because no state has a -0.
    ((whole as f64).to_bits() == number.to_bits() && (least..=most).contains(&whole)).then_some(whole)
}

/// The moment that `number` is.
pub(crate) fn moment(number: f64) -> Option<i64> {
    whole(number, -MAX_WHOLE, MAX_WHOLE)
}

/// The number, from `least` to `most`, that `number` is; `None` for any other.
pub(crate) fn real(number: f64, least: f64, most: f64) -> Option<f64> {
    (number.to_bits() != (-0.0f64).to_bits() && (least..=most).contains(&number)).then_some(number)
}
