//! What Envoy asks, answered: the rules of the file format and of statuses as a table, on memory, on Redis and on a
//! Cluster; what outsiders may put into a descriptor; and what metrics show.

#![allow(clippy::expect_used)]

mod beyond;
mod hits;
mod lookup;
mod metrics;
mod odd;
mod over_limit;
mod statuses;
mod stores;
mod table;
