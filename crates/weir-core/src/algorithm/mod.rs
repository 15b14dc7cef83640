//! Floor 2, the algorithms: one folder each, and this list of them.
//!
//! An algorithm's folder holds its parameters and its step in Rust (`mod.rs`), the same step in Lua (`<name>.lua`), how
//! files and messages write its parameters (`wire.rs`), its documentation (`README.md`), and what the laws must be told of
//! it, with its own tests (`facts.rs`). The list below is the only place that names them all: laws, benches, the manual and
//! every surface go through it.

pub mod params;
pub mod runs;
pub mod sliding;
pub mod span;
pub mod tat;

#[cfg(test)]
pub(crate) mod laws;

use crate::domain::{Ask, Decision, Micros};
#[cfg(feature = "proto")]
use crate::proto::limit::Algorithm as Message;
pub use params::{Bounds, ParamError, Source};

/// What the Lua halves share; it stands before them in one script.
pub const LUA_PRELUDE: [&str; 5] = [
    include_str!("patience.lua"),
    include_str!("span.lua"),
    include_str!("tat.lua"),
    include_str!("runs.lua"),
    include_str!("sliding.lua"),
];

/// One algorithm: its parameters are the value, its states are apart from it.
pub trait Algorithm: Sized {
    /// What it remembers about one key.
    type State: Words;

    /// Decides one request: the answer, and the state to keep where it changed. Total: any state, cost and moment.
    fn step(&self, state: Option<&Self::State>, ask: &Ask) -> (Decision, Option<Self::State>);

    /// The parameters divided by `factor`, above 0; fractions round up.
    ///
    /// # Errors
    /// [`ParamError`] when they leave their bounds.
    fn scale(&self, factor: f64) -> Result<Self, ParamError>;

    /// The parameters as a file would write them: `{ burst: 15, count: 30, period: 1m }`.
    fn describe(&self) -> String;

    /// The parameters that give an old state its meaning, in words: when these change the count starts afresh, when
    /// any others do it is kept. Empty where no parameter does.
    fn time_base(&self) -> String {
        String::new()
    }

    /// The period within which each key has a phase of its own, derived from the key's name.
    fn phase_period(&self) -> Option<Micros> {
        None
    }

    /// Whether refused requests are charged too.
    fn charges_denied(&self) -> bool {
        false
    }

    /// The same, but that refused requests are not charged; `None` where they are not anyway.
    fn sparing_denied(&self) -> Option<Self> {
        None
    }

    /// The window of the limit as a caller may think of it: the time in which as many units as `limit` says come back at the
    /// sustained rate. Rounded up; at least 1 µs.
    fn window(&self) -> Micros;

    /// When a refund takes back exactly one certain charge, although others were made after it.
    fn takes_back(&self) -> TakesBack {
        TakesBack::WhileItLasts
    }

    /// The parameters as the Lua half takes them.
    fn lua_params(&self) -> Vec<f64>;
}

/// When a refund of what was charged leaves a state as if that had never been charged, others having charged since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesBack {
    /// As long as what was charged before it has not faded altogether: all charges fade as one.
    WhileItLasts,
    /// Until the end of the period in which it was charged; the key's own, where it has a phase.
    WithinPeriod(Micros),
    /// Not at all, since a refund takes the newest charges.
    Never,
}

/// A state as the Lua half keeps it, and as files do.
pub trait Words: Sized {
    /// Numbers in the order of the Lua half's table; whole ones are below 2^53. At most 65,535 of them.
    fn words(&self) -> Vec<f64>;

    /// The state that gives exactly these words; `None` where there is none.
    fn from_words(words: &[f64]) -> Option<Self>;
}

/// A word as the whole number that it is, from `least` to `most`; `None` for any other.
fn whole(word: f64, least: i64, most: i64) -> Option<i64> {
    let number = word as i64;
    // Bits, because -0 is a word that no state has.
    ((number as f64).to_bits() == word.to_bits() && (least..=most).contains(&number)).then_some(number)
}

/// A word as the number that it is, from `least` to `most`; `None` for any other.
fn real(word: f64, least: f64, most: f64) -> Option<f64> {
    (word.to_bits() != (-0.0f64).to_bits() && (least..=most).contains(&word)).then_some(word)
}

/// The largest word: whole numbers up to it are told apart by a double.
const MAX_WORD: i64 = (1 << 53) - 1;

macro_rules! algorithms {
    ($($name:ident: $variant:ident),+ $(,)?) => {
        $(pub mod $name;)+

        /// The parameters of any algorithm.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Params {
            $(#[doc = concat!("See [`", stringify!($name), "`].")] $variant($name::$variant),)+
        }

        /// The state of any algorithm.
        #[derive(Clone, Debug, PartialEq)]
        pub enum State {
            $(#[doc = concat!("See [`", stringify!($name), "`].")]
            $variant(<$name::$variant as Algorithm>::State),)+
        }

        /// Every algorithm, in the order of the manual.
        pub const LIST: &[Entry] = &[$(Entry {
            name: stringify!($name),
            lua: include_str!(concat!(stringify!($name), "/", stringify!($name), ".lua")),
            fields: $name::wire::FIELDS,
            examples: $name::wire::EXAMPLES,
            parse: |source, bounds| $name::wire::from_source(source, bounds).map(Params::$variant),
            #[cfg(test)]
            facts: &$name::facts::FACTS,
        }),+];

        impl Params {
            /// Reads a message's algorithm.
            ///
            /// # Errors
            /// [`ParamError`] names the field that is out of bounds.
            #[cfg(feature = "proto")]
            pub fn from_proto(message: &Message, bounds: &Bounds) -> Result<Self, ParamError> {
                match message {
                    $(Message::$variant(message) => {
                        $name::wire::from_proto(message, bounds)
                            .map(Params::$variant)
                            .map_err(|error| error.within(stringify!($name)))
                    })+
                }
            }

            /// The algorithm's name, as files write it.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => stringify!($name),)+ }
            }

            /// See [`Algorithm::step`]. A state of another algorithm counts as none.
            #[inline]
            pub fn step(&self, state: Option<&State>, ask: &Ask) -> (Decision, Option<State>) {
                match self {
                    $(Self::$variant(params) => {
                        let state = match state { Some(State::$variant(state)) => Some(state), _ => None };
                        let (decision, next) = params.step(state, ask);
                        (decision, next.map(State::$variant))
                    })+
                }
            }

            /// See [`Algorithm::scale`].
            ///
            /// # Errors
            /// [`ParamError`] when the scaled parameters leave their bounds.
            pub fn scale(&self, factor: f64) -> Result<Self, ParamError> {
                match self { $(Self::$variant(params) => params.scale(factor).map(Self::$variant),)+ }
            }

            /// See [`Algorithm::describe`].
            pub fn describe(&self) -> String {
                match self { $(Self::$variant(params) => params.describe(),)+ }
            }

            /// See [`Algorithm::time_base`].
            pub fn time_base(&self) -> String {
                match self { $(Self::$variant(params) => params.time_base(),)+ }
            }

            /// See [`Algorithm::phase_period`].
            pub fn phase_period(&self) -> Option<Micros> {
                match self { $(Self::$variant(params) => params.phase_period(),)+ }
            }

            /// See [`Algorithm::charges_denied`].
            pub fn charges_denied(&self) -> bool {
                match self { $(Self::$variant(params) => params.charges_denied(),)+ }
            }

            /// See [`Algorithm::sparing_denied`].
            pub fn sparing_denied(&self) -> Option<Self> {
                match self { $(Self::$variant(params) => params.sparing_denied().map(Self::$variant),)+ }
            }

            /// See [`Algorithm::window`].
            pub fn window(&self) -> Micros {
                match self { $(Self::$variant(params) => params.window(),)+ }
            }

            /// See [`Algorithm::takes_back`].
            pub fn takes_back(&self) -> TakesBack {
                match self { $(Self::$variant(params) => params.takes_back(),)+ }
            }

            /// The algorithm's place in [`LIST`].
            pub fn number(&self) -> usize {
                LIST.iter().position(|entry| entry.name == self.name()).unwrap_or_default()
            }

            /// See [`Algorithm::lua_params`].
            pub fn lua_params(&self) -> Vec<f64> {
                match self { $(Self::$variant(params) => params.lua_params(),)+ }
            }
        }

        impl State {
            /// The name of the algorithm whose state it is.
            pub fn algorithm(&self) -> &'static str {
                match self { $(Self::$variant(_) => stringify!($name),)+ }
            }

            /// See [`Words`].
            pub fn lua_state(&self) -> Vec<f64> {
                match self { $(Self::$variant(state) => state.words(),)+ }
            }

            /// The way back from [`State::lua_state`]; `None` for an algorithm that is not in the list, and for words that
            /// are none of its states.
            pub fn from_lua_state(algorithm: &str, words: &[f64]) -> Option<Self> {
                match algorithm {
                    $(stringify!($name) => Words::from_words(words).map(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

algorithms! {
    gcra: Gcra,
    token_bucket: TokenBucket,
    leaky_queue: LeakyQueue,
    smooth_bursty: SmoothBursty,
    leaky_bucket: LeakyBucket,
    fixed_window: FixedWindow,
    sliding_log: SlidingLog,
    sliding_window: SlidingWindow,
    sliding_buckets: SlidingBuckets,
    decay: Decay,
    warming_up: WarmingUp,
    cycle: Cycle,
}

/// One line of the list.
pub struct Entry {
    /// The name in files, and of the Lua function.
    pub name: &'static str,
    /// The Lua half: one `local function` of that name.
    pub lua: &'static str,
    /// The parameters as files name them, in the order of the message's fields.
    pub fields: &'static [&'static str],
    /// Parameters worth a look, as a file would write them: for manuals, laws, tests of stores and benches. The first is of
    /// about ten units at once and one a second. Among the others are the bounds of exactness, one whose states are forgotten
    /// after half a second to two, and two of 100 to 700 units of which none comes back for hours (two, as one's windows may end now).
    pub examples: &'static [&'static [(&'static str, &'static str)]],
    /// Reads the parameters from a file's map; the error names the first field that is missing, unreadable or out of
    /// bounds.
    pub parse: fn(&dyn Source, &Bounds) -> Result<Params, ParamError>,
    /// What the laws must be told of it.
    #[cfg(test)]
    pub(crate) facts: &'static laws::Facts,
}

/// The algorithm of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    LIST.iter().find(|entry| entry.name == name)
}
