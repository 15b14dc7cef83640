//! Envoy's rate-limit requests: the rules of the file format and of statuses as tables, on memory, Redis and a Cluster;
//! arbitrary descriptors; and metrics.

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
