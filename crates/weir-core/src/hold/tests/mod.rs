//! The protocol: every order of events at small scope, and many holders in virtual time, judged by the limit's own definition
//! over what was admitted and when.

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
