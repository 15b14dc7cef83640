//! The kinds of parameters: their text, their range, and the effect of a factor.

use super::params::{Bounds, MAX_COUNT, MAX_PERIOD};
use crate::domain::{
    Micros,
    request::MAX_WAIT,
    time::{format_duration, parse_duration},
};

/// The form of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A whole number within these bounds.
    Whole {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A number, whole or not.
    Number,
    /// A duration.
    Duration,
    /// `true` or `false`.
    Switch,
    /// A name, such as a time zone's.
    Name,
    /// A day of the week, of the month or of the year.
    Day,
    /// One of these names.
    Choice(&'static [&'static str]),
}

/// The kind of a field.
pub(crate) trait Kind {
    /// The type of a value in memory.
    type Value: Copy + PartialEq;

    /// The form of a value in text.
    const FORM: Form;

    /// The value of a missing field whose declaration has no default; `None` if it is required.
    const MISSING: Option<Self::Value> = None;

    /// Parses a file's text; the error states the required form.
    #[allow(clippy::missing_errors_doc)]
    fn read(text: &str) -> Result<Self::Value, String>;

    /// Formats the value as in a file.
    fn write(value: Self::Value) -> String;

    /// Returns the number for the Lua half.
    fn number(value: Self::Value) -> f64;

    /// Returns the range as text if the value is outside. By default there is no range.
    fn beyond(_value: Self::Value, _bounds: &Bounds) -> Option<String> {
        None
    }

    /// Returns the value under a factor; by default it is unchanged.
    fn scaled(value: Self::Value, _factor: f64) -> Self::Value {
        value
    }
}

/// A number of units, which a factor divides, rounding up. If it may be 0, that is the default: a message cannot
/// distinguish the two.
pub(crate) enum Units<const MIN: u64 = 1, const MAX: u64 = MAX_COUNT> {}

impl<const MIN: u64, const MAX: u64> Kind for Units<MIN, MAX> {
    type Value = u64;

    const FORM: Form = Form::Whole { min: MIN, max: MAX };

    const MISSING: Option<u64> = if MIN == 0 { Some(0) } else { None };

    fn read(text: &str) -> Result<u64, String> {
        text.parse().map_err(|_| format!(" must be a whole number, {}, not `{text}`", Self::range()))
    }

    fn write(value: u64) -> String {
        value.to_string()
    }

    fn number(value: u64) -> f64 {
        value as f64
    }

    fn beyond(value: u64, _: &Bounds) -> Option<String> {
        (!(MIN..=MAX).contains(&value)).then(Self::range)
    }

    /// A result that is too large saturates above every bound.
    fn scaled(value: u64, factor: f64) -> u64 {
        (divided(value as f64, factor) as u64).max(MIN)
    }
}

/// Returns a number of units divided by a factor, rounded up. A quotient that is whole but for the rounding of factors,
/// as of 1/49, is not rounded up further.
pub(crate) fn divided(units: f64, factor: f64) -> f64 {
    let quotient = units / factor;
    let whole = quotient.round();
    if (quotient - whole).abs() <= whole * 1e-12 { whole } else { quotient.ceil() }
}

impl<const MIN: u64, const MAX: u64> Units<MIN, MAX> {
    fn range() -> String {
        let max = if MAX.is_power_of_two() { format!("2^{}", MAX.ilog2()) } else { MAX.to_string() };
        format!("{MIN} to {max}")
    }
}

/// A period or slot: 1 µs to the longest that the service allows.
pub(crate) enum Period {}

impl Kind for Period {
    type Value = Micros;

    const FORM: Form = Form::Duration;

    fn read(text: &str) -> Result<Micros, String> {
        Length::read(text)
    }

    fn write(value: Micros) -> String {
        Length::write(value)
    }

    fn number(value: Micros) -> f64 {
        Length::number(value)
    }

    fn beyond(value: Micros, bounds: &Bounds) -> Option<String> {
        let max = bounds.max_period.min(MAX_PERIOD);
        let words = || format!("1us to {} (the setting max_period, at most 366d)", format_duration(max));
        (!(1..=max).contains(&value)).then(words)
    }
}

/// A duration that its algorithm checks.
pub(crate) enum Length {}

impl Kind for Length {
    type Value = Micros;

    const FORM: Form = Form::Duration;

    fn read(text: &str) -> Result<Micros, String> {
        parse_duration(text).map_err(|reason| format!(": {reason}"))
    }

    fn write(value: Micros) -> String {
        format_duration(value)
    }

    fn number(value: Micros) -> f64 {
        value as f64
    }
}

/// The longest wait that a limit grants, if it is set.
pub(crate) enum Wait {}

impl Kind for Wait {
    type Value = Option<Micros>;

    const FORM: Form = Form::Duration;

    fn read(text: &str) -> Result<Option<Micros>, String> {
        Length::read(text).map(Some)
    }

    fn write(value: Option<Micros>) -> String {
        value.map_or_else(String::new, format_duration)
    }

    fn number(value: Option<Micros>) -> f64 {
        value.map_or(-1.0, Length::number)
    }

    fn beyond(value: Option<Micros>, _: &Bounds) -> Option<String> {
        value.filter(|wait| !(0..=MAX_WAIT).contains(wait)).map(|_| "0 to 1d".to_owned())
    }
}

/// A number, whole or not, that its algorithm checks. From a message it may also be infinite or NaN.
pub(crate) enum Real {}

impl Kind for Real {
    type Value = f64;

    const FORM: Form = Form::Number;

    fn read(text: &str) -> Result<f64, String> {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| format!(" must be a number, not `{text}`"))
    }

    fn write(value: f64) -> String {
        value.to_string()
    }

    fn number(value: f64) -> f64 {
        value
    }
}

/// A switch.
pub(crate) enum Flag {}

impl Kind for Flag {
    type Value = bool;

    const FORM: Form = Form::Switch;

    fn read(text: &str) -> Result<bool, String> {
        text.parse().map_err(|_| format!(" must be true or false, not `{text}`"))
    }

    fn write(value: bool) -> String {
        value.to_string()
    }

    fn number(value: bool) -> f64 {
        f64::from(u8::from(value))
    }
}

/// Declares an enum whose variants files write by name. In messages the first one has the number 1.
macro_rules! choice {
    ($(#[$doc:meta])* $visibility:vis enum $choice:ident { $($(#[$variant_doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $choice {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $choice {
            const NAMES: &'static [&'static str] = &[$($name),+];
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Converts the number of a message, where 0 means unset.
            #[cfg(feature = "proto")]
            pub(crate) fn numbered(number: i32) -> Option<Self> {
                Self::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
            }
        }

        impl Kind for $choice {
            type Value = Self;

            const FORM: Form = Form::Choice(Self::NAMES);

            fn read(text: &str) -> Result<Self, String> {
                let index = Self::NAMES.iter().position(|name| *name == text);
                let wrong = || format!(" must be {}, not `{text}`", Self::NAMES.join(" or "));
                index.map(|index| Self::ALL[index]).ok_or_else(wrong)
            }

            fn write(value: Self) -> String {
                Self::NAMES[value as usize].to_owned()
            }

            fn number(value: Self) -> f64 {
                f64::from(value as u8)
            }
        }
    };
}

choice! {
    /// The units of a key that was never used.
    pub(crate) enum Start {
        /// All units.
        Full = "full",
        /// None.
        Empty = "empty",
    }
}

choice! {
    /// The answer to a check under a concurrency limit; a check takes no slot.
    pub enum OnCheck {
        /// An error.
        Refuse = "refuse",
        /// Whether a slot is free.
        Peek = "peek",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_rounds_up_what_is_not_whole() {
        for times in 1..=10_000_u32 {
            for units in [1, 5, 7, 1_000] {
                assert_eq!(Units::<1>::scaled(units, 1.0 / f64::from(times)), units * u64::from(times), "{times}");
            }
        }
        for (units, factor, expected) in
            [(7, 0.1 * 0.7, 100), (10, 3.0, 4), (1, 1e6, 1), (3, 0.999_999, 4), (10, 1.0, 10)]
        {
            assert_eq!(Units::<1>::scaled(units, factor), expected, "{units} / {factor}");
        }
    }
}
