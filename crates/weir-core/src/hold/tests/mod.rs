//! Tests of the protocol: every order of events at small scope, and many holders in virtual time.
//! The oracle is the limit's own definition, applied to the admitted units and their times.

mod edges;
mod event;
mod faults;
mod lua;
mod model;
mod mutations;
mod recorder;
mod reservation;
mod search;
mod settling;
mod simulation;
mod store;
mod table;
mod trace;
