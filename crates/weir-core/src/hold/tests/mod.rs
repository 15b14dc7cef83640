//! Tests of the protocol: every order of events at small scope, and many holders in virtual time. The oracle is the
//! limit's own definition, given what was admitted and when.

mod breaks;
mod broken;
mod edges;
mod event;
mod lua;
mod model;
mod recorder;
mod reservation;
mod search;
mod store;
mod table;
mod trace;
mod world;
