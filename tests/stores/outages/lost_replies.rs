//! Lost replies: the store has charged for the check, so it must not be sent again. And replies that are errors without
//! a known code.

use std::time::Duration;

use weir_test_redis::{Options, Server};

use super::{
    callers::{RULES, of_rule},
    scene::service,
};
use crate::{
    service::runtime,
    support::{
        Server as Service, eventually, eventually_async,
        requests::{check, peek},
    },
    wire::{CHECKED, Wire},
};

/// Number of lost replies.
const LOST: u64 = 10;

/// Every other reply is lost; each check is still charged once.
async fn lose_replies(service: &Service, wires: &[Wire]) {
    let mut client = service.client().await;
    // The readiness probe has a connection of its own; its reply must not be lost instead.
    eventually("the store has answered", || (service.get("/readyz").1 == "ready\n").then_some(()));
    for (rule, name) in RULES.iter().enumerate() {
        let key = [CHECKED, "alex", "trade"];
        let mut ask = async |cost| {
            let answer = client.check(of_rule(rule, if cost == 0 { peek(&key) } else { check(&key) })).await;
            answer.map(tonic::Response::into_inner).ok().filter(|answer| !answer.degraded)
        };
        let before = eventually_async("the store answers", async || ask(0).await).await;
        for _ in 0..LOST {
            wires.iter().for_each(|wire| wire.lose_next(true));
            assert!(ask(1).await.is_none(), "{name}: by its rule");
            wires.iter().for_each(|wire| wire.lose_next(false));
            assert!(ask(1).await.is_some(), "{name}: by the store");
        }
        let after = ask(0).await.expect("the store answers");
        assert_eq!(before.remaining - after.remaining, 2 * LOST, "{name}: once for each check");
    }
    let lost = "weir_store_errors_total{store=\"redis\",kind=\"lost\"}";
    assert_eq!(service.metric(lost), (LOST * RULES.len() as u64) as f64);
}

#[test]
fn a_check_with_a_lost_reply_is_not_retried() {
    let redis = Server::start(Options::socket());
    let wire = Wire::to(&redis, Duration::ZERO);
    // One connection, and a long timeout, so that no probe opens another one on a busy machine.
    let setup =
        service(&wire.url()).env("WEIR_STORE__REDIS__POOL_SIZE", "1").env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "10s");
    runtime().block_on(lose_replies(&setup.start(), &[wire]));
}

/// A proxy that answers checks with errors of its own is unavailable, although its connections stay open.
#[test]
fn errors_without_a_known_code_open_the_circuit_breaker() {
    let redis = Server::start(Options::socket());
    let wire = Wire::to(&redis, Duration::ZERO);
    let service = service(&wire.url()).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "10s").start();
    runtime().block_on(async {
        let mut client = service.client().await;
        let request = of_rule(0, check(&[CHECKED, "alex", "trade"]));
        let mut ask = async || client.check(request.clone()).await.expect("an answer").into_inner();
        eventually_async("the store answers", async || (!ask().await.degraded).then_some(())).await;
        wire.reject(true);
        let breaker = "weir_store_errors_total{store=\"redis\",kind=\"breaker_open\"}";
        eventually_async("the breaker answers", async || {
            assert!(ask().await.degraded);
            (service.metric(breaker) > 0.0).then_some(())
        })
        .await;
        wire.reject(false);
        eventually_async("the store answers", async || (!ask().await.degraded).then_some(())).await;
    });
}
