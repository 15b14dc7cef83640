//! Charges that no replica acknowledges.

use std::{sync::Arc, time::Duration};

use smallvec::smallvec;
use tokio::time::sleep;
use weir_core::{
    domain::{Charge, Key},
    plan::{Level, Limit, Origin, Plan},
    testing::parse,
};
use weir_settings::Time;
use weir_store::redis::{RedisStore, settings::RedisSettings};

use super::server::{Server, TIMEOUT, patient, redis};

const CHECKS: u64 = 8;

/// An idle server ends a `WAIT` only at a tick of its timer: at `hz 1` up to a second late.
#[tokio::test]
async fn checks_are_answered_in_time_by_a_server_that_is_late_to_end_its_wait() {
    let server = Server::unix(&["hz 1"]);
    let settings = RedisSettings { command_timeout: Time::seconds(1), wait_replicas: 1, ..patient() };
    let store = RedisStore::start(&redis(&server.url("")), &settings, None, Arc::default()).expect("a thread");
    let params = parse("fixed_window", &[("count", "100"), ("period", "1h")]);
    let (key, limit) = (Key::new("", &["a"]).expect("a key"), Limit::new(Origin::Policy, None, "*", 0, false, params));
    store.reach(TIMEOUT).await.expect("it answers");
    let mut undecided = 0;
    for _ in 0..CHECKS {
        // Each check starts at another time between two ticks.
        sleep(Duration::from_millis(125)).await;
        let plan = Plan::new(smallvec![Level::new(&key, 1, 1, &limit, 1)], Charge::AllOrNothing, None);
        undecided += u64::from(store.verdict(&plan).await.is_err());
    }
    // A busy machine may delay an answer too.
    assert!(undecided < 2, "{undecided} of {CHECKS}");
}
