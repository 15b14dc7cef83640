//! The algorithms: one folder for each, and the list of them.
//!
//! An algorithm's folder contains its parameters, its state and its step in Rust (`mod.rs`), the same step in Lua
//! (`<name>.lua`), its documentation (`README.md`), and its spec for the properties, with its own tests (`spec.rs`).
//! The list below is the only place that names them all: properties, benches, the manual and every surface iterate
//! it. `skeleton` is a template to copy, which this crate's tests have in their list.

mod aligned;
mod charges;
mod entry;
mod fields;
mod kinds;
#[cfg(feature = "proto")]
pub mod message;
pub mod meter;
pub mod params;
#[cfg(test)]
pub(crate) mod properties;
mod rate_bound;
mod runs;
mod sliding;
pub mod span;
mod state;
mod tat;

use crate::domain::{Decision, Micros, StepInput};
pub use aligned::EDGES;
pub use charges::{HoldAccuracy, Spent, UndoRule};
pub use entry::{Entry, LUA_PRELUDE, find, rates};
pub use fields::Parameter;
use fields::{FieldSet, checked};
pub use kinds::{Form, OnCheck};
#[cfg(feature = "proto")]
use message::messages;
use params::MAX_PERIOD;
pub use params::{Bounds, FileParams, ParamError};
pub use rate_bound::RateBound;
pub use state::EncodedState;

/// One algorithm: the value has its parameters, and its states are separate.
pub trait Algorithm: Sized {
    /// Its parameters.
    type Fields: FieldSet;

    /// Its state for one key.
    type State: EncodedState;

    /// Creates a limit of parameters that are each within their own bounds: checks them against each other, and
    /// precomputes what every step uses.
    ///
    /// # Errors
    /// [`ParamError`] for the first one that is wrong among the others.
    fn new(fields: Self::Fields, bounds: &Bounds) -> Result<Self, ParamError>;

    /// Returns the parameters that it was created from.
    fn fields(&self) -> &Self::Fields;

    /// Decides one request. Returns the decision, and the next state if it changed. Total: defined for any state,
    /// cost and time.
    fn step(&self, state: Option<&Self::State>, input: &StepInput) -> (Decision, Option<Self::State>);

    /// Returns the time until a unit is left if none is left in this state after a decision; `None` if no wait helps.
    /// By default the time until one unit passes. An algorithm in which one passes while none is left must override it.
    fn next_after(&self, state: Option<&Self::State>, input: &StepInput, decided: &Decision) -> Option<Micros> {
        if input.cost == 1 && !decided.allowed {
            return decided.retry_after;
        }
        let one = StepInput { cost: 1, ..*input };
        // A charge for the refusal would come first.
        let sparing = self.sparing_denied();
        sparing.as_ref().unwrap_or(self).step(state, &one).0.retry_after
    }

    /// Checks that units of it can be held ([`crate::hold`]). The error completes "cannot be leased: ".
    ///
    /// # Errors
    /// The reason.
    fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
        Err("it has no rule for units whose time of spending is reported later")
    }

    /// Returns the state with units charged now, whether they fit or not; `None` if that changes nothing. Only for
    /// limits that are [`Algorithm::holdable`], with two guarantees: a charge made later counts for at least as long,
    /// and a state that is at least as high as another remains so after the same charge or the same time.
    fn charge(&self, _state: Option<&Self::State>, _spent: Spent, _now: Micros, _phase: Micros) -> Option<Self::State> {
        None
    }

    /// Returns until when a state matters to other limits, if that is beyond the `reset_after` of this limit's decisions.
    fn kept_until(&self, _state: &Self::State) -> Option<Micros> {
        None
    }

    /// Returns the parameters divided by `factor`, above 0; fractions round up.
    ///
    /// # Errors
    /// [`ParamError`] when they leave their bounds.
    fn scale(&self, factor: f64) -> Result<Self, ParamError> {
        // No period changes, so each remains valid.
        checked(self.fields().scaled(factor), &Bounds { max_period: MAX_PERIOD })
    }

    /// Returns the limit with at least the reach of another one, which differs by a request's
    /// factor: units that were charged under the other one to their common state are not cut.
    #[must_use]
    fn reaching(self, _other: &Self) -> Self {
        self
    }

    /// Returns the parameters that define the meaning of a stored state, in words: a change of these resets the
    /// count, a change of any others keeps it. Empty if there are none.
    fn time_base(&self) -> String {
        String::new()
    }

    /// Returns the period that distinguishes unnamed limits at one node; `None` if the time base contains it.
    fn sibling_period(&self) -> Option<Micros> {
        None
    }

    /// Returns the period within which each key has its own phase, derived from the key's name.
    fn phase_period(&self) -> Option<Micros> {
        None
    }

    /// Returns the edges of calendar windows around `now`, ascending, for the Lua half, which has no calendar. `now`
    /// approximates the store's time: the Lua half finds the window by the store's own clock, and fails if that is
    /// beyond them.
    fn edges(&self, _now: impl FnOnce() -> Micros) -> Option<[Micros; EDGES]> {
        None
    }

    /// Whether refused requests are charged too.
    fn charges_denied(&self) -> bool {
        false
    }

    /// Returns the limit without charges for refused requests; `None` if it has none anyway.
    fn sparing_denied(&self) -> Option<Self> {
        None
    }

    /// Returns the limit with keys that are full before their first use; `None` if they are anyway.
    fn starting_full(&self) -> Option<Self> {
        None
    }

    /// Returns the time in which `limit` units refill at the sustained rate, rounded up; at least 1 µs.
    fn window(&self) -> Micros;

    /// Returns the most units admitted in any span of time, at any costs; `None` if unbounded.
    fn rate_bound(&self) -> Option<RateBound> {
        None
    }

    /// Whether it admits everything within its rate bound; not if it also charges requests that other limits refuse.
    fn reaches_rate_bound(&self) -> bool {
        !self.charges_denied()
    }

    /// Returns how one certain charge is taken back exactly, although others were made after it.
    fn undo_rule(&self) -> UndoRule {
        UndoRule::WhileItLasts
    }

    /// Returns the maximum number of marks in a state, each with the units spent at it: an upper bound of the work of
    /// a step.
    fn marks_max(&self) -> u64 {
        1
    }

    /// Returns the numbers for the Lua half.
    fn lua_params(&self) -> Vec<f64> {
        self.fields().numbers()
    }
}

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
            fields: $name::Fields::NAMES,
            parameters: $name::Fields::parameters,
            examples: $name::Fields::EXAMPLES,
            parse: |named, bounds| checked($name::Fields::from_file(named)?, bounds).map(Params::$variant),
            #[cfg(test)]
            spec: &$name::spec::SPEC,
        }),+];

        impl Params {
            /// Returns the algorithm's name in files.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => stringify!($name),)+ }
            }

            /// See [`Algorithm::step`] and [`Algorithm::next_after`]. A state of another algorithm counts as none.
            #[inline]
            pub fn step(&self, state: Option<&State>, input: &StepInput) -> (Decision, Option<State>) {
                match self {
                    $(Self::$variant(params) => {
                        let state = match state { Some(State::$variant(state)) => Some(state), _ => None };
                        let (mut decision, next) = params.step(state, input);
                        if decision.remaining == 0 {
                            decision.next_after = params.next_after(next.as_ref().or(state), input, &decision);
                        }
                        (decision, next.map(State::$variant))
                    })+
                }
            }

            /// See [`Algorithm::holdable`].
            ///
            /// # Errors
            /// The reason why not.
            pub fn holdable(&self) -> Result<HoldAccuracy, &'static str> {
                match self { $(Self::$variant(params) => params.holdable(),)+ }
            }

            /// See [`Algorithm::charge`]. A state of another algorithm counts as none.
            pub fn charge(&self, state: Option<&State>, spent: Spent, now: Micros, phase: Micros) -> Option<State> {
                match self {
                    $(Self::$variant(params) => {
                        let state = match state { Some(State::$variant(state)) => Some(state), _ => None };
                        params.charge(state, spent, now, phase).map(State::$variant)
                    })+
                }
            }

            /// See [`Algorithm::kept_until`].
            pub(crate) fn kept_until(&self, state: &State) -> Option<Micros> {
                match (self, state) {
                    $((Self::$variant(params), State::$variant(state)) => params.kept_until(state),)+
                    _ => None,
                }
            }

            /// See [`Algorithm::scale`].
            ///
            /// # Errors
            /// [`ParamError`] when the scaled parameters leave their bounds.
            pub fn scale(&self, factor: f64) -> Result<Self, ParamError> {
                match self { $(Self::$variant(params) => params.scale(factor).map(Self::$variant),)+ }
            }

            /// See [`Algorithm::reaching`].
            pub(crate) fn reaching(self, other: &Self) -> Self {
                match (self, other) {
                    $((Self::$variant(params), Self::$variant(other)) => Self::$variant(params.reaching(other)),)+
                    (params, _) => params,
                }
            }

            /// Formats the parameters as in a file: `{ burst: 15, count: 30, period: 1m }`.
            pub fn describe(&self) -> String {
                match self { $(Self::$variant(params) => params.fields().describe(),)+ }
            }

            /// See [`Algorithm::time_base`].
            pub(crate) fn time_base(&self) -> String {
                match self { $(Self::$variant(params) => params.time_base(),)+ }
            }

            /// See [`Algorithm::sibling_period`].
            pub(crate) fn sibling_period(&self) -> Option<Micros> {
                match self { $(Self::$variant(params) => params.sibling_period(),)+ }
            }

            /// Returns the parameters as numbers, in the order of the manual.
            pub(crate) fn numbers(&self) -> Vec<f64> {
                match self { $(Self::$variant(params) => params.fields().numbers(),)+ }
            }

            /// See [`Algorithm::phase_period`].
            pub(crate) fn phase_period(&self) -> Option<Micros> {
                match self { $(Self::$variant(params) => params.phase_period(),)+ }
            }

            /// See [`Algorithm::edges`].
            pub fn edges(&self, now: impl FnOnce() -> Micros) -> Option<[Micros; EDGES]> {
                match self { $(Self::$variant(params) => params.edges(now),)+ }
            }

            /// See [`Algorithm::charges_denied`].
            pub fn charges_denied(&self) -> bool {
                match self { $(Self::$variant(params) => params.charges_denied(),)+ }
            }

            /// See [`Algorithm::sparing_denied`].
            pub fn sparing_denied(&self) -> Option<Self> {
                match self { $(Self::$variant(params) => params.sparing_denied().map(Self::$variant),)+ }
            }

            /// See [`Algorithm::starting_full`].
            pub fn starting_full(&self) -> Option<Self> {
                match self { $(Self::$variant(params) => params.starting_full().map(Self::$variant),)+ }
            }

            /// See [`Algorithm::rate_bound`].
            pub fn rate_bound(&self) -> Option<RateBound> {
                match self { $(Self::$variant(params) => params.rate_bound(),)+ }
            }

            /// See [`Algorithm::window`].
            pub fn window(&self) -> Micros {
                match self { $(Self::$variant(params) => params.window(),)+ }
            }

            /// See [`Algorithm::reaches_rate_bound`].
            fn reaches_rate_bound(&self) -> bool {
                match self { $(Self::$variant(params) => params.reaches_rate_bound(),)+ }
            }

            /// See [`Algorithm::undo_rule`].
            pub fn undo_rule(&self) -> UndoRule {
                match self { $(Self::$variant(params) => params.undo_rule(),)+ }
            }

            /// See [`Algorithm::marks_max`].
            pub fn marks_max(&self) -> u64 {
                match self { $(Self::$variant(params) => params.marks_max(),)+ }
            }

            /// See [`Algorithm::lua_params`].
            pub fn lua_params(&self) -> Vec<f64> {
                match self { $(Self::$variant(params) => params.lua_params(),)+ }
            }
        }

        impl State {
            /// Returns the name of the algorithm of the state.
            pub fn algorithm(&self) -> &'static str {
                match self { $(Self::$variant(_) => stringify!($name),)+ }
            }

            /// See [`EncodedState::encode`].
            pub fn encode(&self) -> Vec<f64> {
                match self { $(Self::$variant(state) => state.encode(),)+ }
            }

            /// See [`EncodedState::snapshot_version`].
            pub fn snapshot_version(&self) -> u32 {
                match self { $(Self::$variant(state) => state.snapshot_version(),)+ }
            }

            /// See [`EncodedState::decode`]; `None` also for an algorithm that is not in the list.
            pub fn decode(algorithm: &str, numbers: &[f64]) -> Option<Self> {
                match algorithm {
                    $(stringify!($name) => EncodedState::decode(numbers).map(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

/// The list, in the order of the manual.
macro_rules! list {
    ($make:ident $($more:tt)*) => {
        $make! {
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
            concurrency: Concurrency,
            $($more)*
        }
    };
}

#[cfg(not(test))]
list!(algorithms);
#[cfg(test)]
list!(algorithms skeleton: Skeleton);
#[cfg(feature = "proto")]
list!(messages);
