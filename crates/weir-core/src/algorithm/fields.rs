//! The declaration of an algorithm's parameters. One `fields!` defines their names, their forms in files and
//! messages, their bounds and defaults, the effect of a factor, the numbers of the Lua half, and the examples.

use super::{
    Algorithm,
    kinds::{Form, Kind},
    params::{Bounds, FileParams, ParamError},
};

/// A parameter in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The form of its value.
    pub form: Form,
    /// Whether it is required.
    pub is_required: bool,
}

impl Parameter {
    /// Creates the parameter of this name and kind, with its default.
    pub(crate) fn of<K: Kind>(name: &'static str, default: Option<K::Value>) -> Self {
        Self { name, form: K::FORM, is_required: default.or(K::MISSING).is_none() }
    }
}

/// A set of parameters; implemented by `fields!`.
pub trait FieldSet: Copy {
    /// The names, in the order of the declaration and of the message.
    const NAMES: &'static [&'static str];

    /// See [`Entry::examples`](super::Entry::examples).
    const EXAMPLES: &'static [&'static [(&'static str, &'static str)]];

    /// Returns the parameters in files, in the same order.
    fn parameters() -> Vec<Parameter>;

    /// Reads the fields of a file.
    ///
    /// # Errors
    /// [`ParamError`] for a field that is missing or unreadable.
    fn from_file(named: &FileParams<'_>) -> Result<Self, ParamError>;

    /// Checks each field separately.
    ///
    /// # Errors
    /// [`ParamError`] for the first field that is out of bounds.
    fn check(&self, bounds: &Bounds) -> Result<(), ParamError>;

    /// Returns the fields divided by `factor`, if a factor applies to their kinds.
    #[must_use]
    fn scaled(&self, factor: f64) -> Self;

    /// Formats the fields as in a file, without those at their defaults: `{ burst: 15, count: 30, period: 1m }`.
    fn describe(&self) -> String;

    /// Returns the numbers for the Lua half.
    fn numbers(&self) -> Vec<f64>;
}

/// Declares `struct Fields`: each field with its kind and, if it is optional, its default. `as proto::Gcra` names its
/// message, which must have the same fields. Fields at their defaults are left out of descriptions.
macro_rules! fields {
    (
        pub(crate) struct Fields $(as proto::$message:ident)? {
            $($field:ident: $kind:ty $(= $default:expr)?),+ $(,)?
        }
        examples [$({ $($name:ident: $text:tt),+ }),+ $(,)?]
    ) => {
        /// The parameters, as files and messages name them.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Fields {
            $($field: <$kind as $crate::algorithm::kinds::Kind>::Value,)+
        }

        impl $crate::algorithm::fields::FieldSet for Fields {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];

            const EXAMPLES: &'static [&'static [(&'static str, &'static str)]] =
                &[$(&[$((stringify!($name), $crate::algorithm::fields::unquoted(stringify!($text)))),+]),+];

            fn parameters() -> Vec<$crate::algorithm::Parameter> {
                use $crate::algorithm::Parameter;
                vec![$(Parameter::of::<$kind>(stringify!($field), None$(.or(Some($default)))?)),+]
            }

            fn from_file(named: &$crate::algorithm::FileParams<'_>) -> Result<Self, $crate::algorithm::ParamError> {
                use $crate::algorithm::fields::read;
                Ok(Self { $($field: read::<$kind>(named, stringify!($field), None$(.or(Some($default)))?)?,)+ })
            }

            fn check(&self, bounds: &$crate::algorithm::Bounds) -> Result<(), $crate::algorithm::ParamError> {
                $($crate::algorithm::fields::check::<$kind>(stringify!($field), self.$field, bounds)?;)+
                Ok(())
            }

            fn scaled(&self, factor: f64) -> Self {
                use $crate::algorithm::kinds::Kind;
                Self { $($field: <$kind>::scaled(self.$field, factor),)+ }
            }

            fn describe(&self) -> String {
                use $crate::algorithm::kinds::Kind;
                let mut parts = Vec::new();
                $(if None$(.or(Some($default)))? != Some(self.$field) {
                    parts.push(format!("{}: {}", stringify!($field), <$kind>::write(self.$field)));
                })+
                format!("{{ {} }}", parts.join(", "))
            }

            fn numbers(&self) -> Vec<f64> {
                use $crate::algorithm::kinds::Kind;
                vec![$(<$kind>::number(self.$field)),+]
            }
        }

        $crate::algorithm::fields::message! { $($message)? { $($field: $kind, None$(.or(Some($default)))?;)+ } }
    };
}
pub(super) use fields;

/// The part of `fields!` that reads a message.
macro_rules! message {
    ({ $($field:tt)+ }) => {};
    ($message:ident { $($field:ident: $kind:ty, $default:expr;)+ }) => {
        #[cfg(feature = "proto")]
        impl $crate::algorithm::message::FromMessage for Fields {
            type Message = $crate::proto::$message;

            fn from_message(message: &Self::Message) -> Result<Self, $crate::algorithm::ParamError> {
                use $crate::algorithm::{fields::given, kinds::Kind, message::Holds};
                // No `..`: a field that only the message or only the declaration has does not compile.
                let $crate::proto::$message { $($field),+ } = message;
                Ok(Self {
                    $($field: {
                        let value = Holds::<<$kind as Kind>::Value>::value($field, stringify!($field))?;
                        given::<$kind>(value, stringify!($field), $default)?
                    },)+
                })
            }
        }
    };
}
pub(super) use message;

/// Calls [`Algorithm::new`] after checking each parameter separately.
pub(super) fn checked<A: Algorithm>(fields: A::Fields, bounds: &Bounds) -> Result<A, ParamError> {
    fields.check(bounds)?;
    A::new(fields, bounds)
}

/// Returns the text of an example without quotes, which it has if Rust would parse it as several tokens.
pub(super) const fn unquoted(text: &'static str) -> &'static str {
    match text.as_bytes() {
        [b'"', inner @ .., b'"'] => match std::str::from_utf8(inner) {
            Ok(inner) => inner,
            Err(_) => text,
        },
        _ => text,
    }
}

/// Reads a field from a file.
pub(super) fn read<K: Kind>(
    named: &FileParams<'_>,
    field: &str,
    default: Option<K::Value>,
) -> Result<K::Value, ParamError> {
    let value = named.iter().find(|(name, _)| *name == field).map(|(_, text)| K::read(text)).transpose();
    let value = value.map_err(|reason| ParamError::new(field, format!("{field}{reason}")))?;
    given::<K>(value, field, default)
}

/// Returns the value of a field, or else its default.
pub(super) fn given<K: Kind>(
    value: Option<K::Value>,
    field: &str,
    default: Option<K::Value>,
) -> Result<K::Value, ParamError> {
    value.or(default).or(K::MISSING).ok_or_else(|| ParamError::new(field, format!("{field} is missing")))
}

/// Checks one field.
pub(super) fn check<K: Kind>(field: &str, value: K::Value, bounds: &Bounds) -> Result<(), ParamError> {
    match K::beyond(value, bounds) {
        None => Ok(()),
        Some(range) => Err(ParamError::new(field, format!("{field} must be {range}, not {}", K::write(value)))),
    }
}
