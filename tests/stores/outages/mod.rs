//! Outages of a shared store under load. In each of them every call is answered in time and by its domain's rule.
//! Afterwards checks go to the store again, without a restart, and counts are exact.
//!
//! `WEIR_OUTAGE_SECONDS=5 cargo test --test stores outages -- --nocapture` makes them longer and prints figures.

mod callers;
mod changes;
mod cluster_start;
mod lost_replies;
mod one_server;
mod scene;
mod unnoticed;
mod warnings;

use std::time::Duration;

/// Sleeps for the minimum duration of an outage.
fn hold(usual: Duration) {
    let seconds = std::env::var("WEIR_OUTAGE_SECONDS").map(|text| Duration::from_secs(text.parse().expect("a number")));
    std::thread::sleep(seconds.unwrap_or(usual));
}
