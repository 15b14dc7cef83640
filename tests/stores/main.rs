//! The stores against real servers, which the tests start and stop.

#![allow(clippy::expect_used)]

mod anchors;
mod check_all;
mod client_leases;
mod cluster_nodes;
mod commands;
mod concurrency;
mod exactness;
mod expiry;
mod failover;
mod floods;
mod idempotency;
mod lease_bans;
mod lease_reloads;
mod leases;
mod many_leases;
mod moving_slots;
mod outage_charges;
mod outages;
mod overrides;
mod planned_failover;
mod replicas;
mod reservations;
mod rlqs;
mod round_trips;
mod service;
mod start;
#[allow(dead_code)]
#[path = "../blackbox/support/mod.rs"]
mod support;
mod usage;
mod wire;
