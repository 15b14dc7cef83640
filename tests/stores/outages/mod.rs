//! Outages of a shared store while it is asked. In each of them every call is answered in time and by its domain's rule,
//! and when it is over the store is asked again, without a restart, and counts exactly.
//!
//! `WEIR_OUTAGE_SECONDS=5 cargo test --test stores outages -- --nocapture` makes them longer, and shows figures.

mod callers;
mod changes;
mod cluster_start;
mod lost_replies;
mod one_server;
mod scene;
mod unnoticed;
mod warnings;

use std::time::Duration;

/// How long an outage takes at least.
fn hold(usual: Duration) {
    let seconds = std::env::var("WEIR_OUTAGE_SECONDS").map(|text| Duration::from_secs(text.parse().expect("a number")));
    std::thread::sleep(seconds.unwrap_or(usual));
}
