//! Conversion of the fields of generated messages.

use super::{
    kinds::{OnCheck, Start},
    params::ParamError,
};
use crate::domain::{Micros, time::SECOND};

/// Fields that a message also has.
pub(crate) trait FromMessage: Sized {
    /// The message.
    type Message;

    /// Converts a message.
    ///
    /// # Errors
    /// [`ParamError`] for a field that is missing or that no file could write either.
    fn from_message(message: &Self::Message) -> Result<Self, ParamError>;
}

/// The type of a message's field that holds a `V`; one without presence always has a value.
pub(crate) trait Holds<V> {
    /// Returns the value, if it is set.
    ///
    /// # Errors
    /// [`ParamError`] for a length of time that is not one.
    fn value(&self, field: &str) -> Result<Option<V>, ParamError>;
}

impl<V: Copy> Holds<V> for V {
    fn value(&self, _: &str) -> Result<Option<V>, ParamError> {
        Ok(Some(*self))
    }
}

impl<V: Copy> Holds<V> for Option<V> {
    fn value(&self, _: &str) -> Result<Option<V>, ParamError> {
        Ok(*self)
    }
}

impl Holds<Micros> for Option<prost_types::Duration> {
    fn value(&self, field: &str) -> Result<Option<Micros>, ParamError> {
        let Some(value) = self else { return Ok(None) };
        let micros = micros(value);
        let reason = || ParamError::new(field, format!("{field} must be a duration in whole microseconds"));
        micros.map(Some).ok_or_else(reason)
    }
}

impl Holds<Option<Micros>> for Option<prost_types::Duration> {
    fn value(&self, field: &str) -> Result<Option<Option<Micros>>, ParamError> {
        Holds::<Micros>::value(self, field).map(|micros| micros.map(Some))
    }
}

macro_rules! choices {
    ($($choice:ident),+) => {
        $(impl Holds<$choice> for i32 {
            fn value(&self, field: &str) -> Result<Option<$choice>, ParamError> {
                let unknown = || ParamError::new(field, format!("unknown {field} {self}"));
                if *self == 0 { Ok(None) } else { $choice::numbered(*self).map(Some).ok_or_else(unknown) }
            }
        })+
    };
}
choices!(OnCheck, Start);

/// Converts a message's duration; `None` if it is negative, malformed, finer than a microsecond or beyond 2^53 µs.
pub fn micros(value: &prost_types::Duration) -> Option<Micros> {
    let well_formed = value.seconds >= 0 && (0..1_000_000_000).contains(&value.nanos) && value.nanos % 1_000 == 0;
    let micros = value.seconds.checked_mul(1_000_000)?.checked_add(i64::from(value.nanos / 1_000))?;
    (well_formed && micros <= 1 << 53).then_some(micros)
}

/// Converts a duration of at least 0 to a message.
pub fn duration(micros: Micros) -> prost_types::Duration {
    prost_types::Duration { seconds: micros / SECOND, nanos: (micros % SECOND * 1_000) as i32 }
}

/// Defines `Params::from_proto` for the algorithms of the list.
macro_rules! messages {
    ($($name:ident: $variant:ident),+ $(,)?) => {
        impl Params {
            /// Converts a message's algorithm.
            ///
            /// # Errors
            /// [`ParamError`] names the field that is missing or out of bounds.
            pub fn from_proto(message: &$crate::proto::limit::Algorithm, bounds: &Bounds) -> Result<Self, ParamError> {
                use $crate::proto::limit::Algorithm as Message;
                match message {
                    $(Message::$variant(message) => <$name::Fields as message::FromMessage>::from_message(message)
                        .and_then(|fields| checked(fields, bounds))
                        .map(Self::$variant)
                        .map_err(|error| error.within(stringify!($name))),)+
                    Message::LegacyBucket(_) => {
                        Err(ParamError::new("legacy_bucket", "a legacy bucket becomes a limit or two, not an algorithm"))
                    }
                }
            }
        }
    };
}
pub(super) use messages;
