//! Concurrent renewals, reservations and checks of one key share calls of the script, which reads the holds once. The
//! results are the same as in sequence.

use std::sync::Arc;

use futures_util::future::join_all;
use weir_core::{
    domain::{ManualClock, Micros},
    hold::{HoldId, Renewal, Reservation, decide_with_holds, renew},
    plan::Plan,
    testing::{DishonestOwner, Random},
};
use weir_store::redis::RedisStore;
use weir_test_redis::{Options, Server};

use super::{
    holds::{Authority, Limits, START, examples, on_redis, reservation_step},
    seeds,
    store_under_test::Reference,
};

const CROWDS: usize = 8;
/// Number of concurrent requests.
const CROWD: usize = 10;
const TRACES: u64 = 4;

/// Makes a request of a crowd, which may send one of the renewals.
fn ask<'a>(limits: &'a Limits, renewals: &mut [Option<&'a Renewal>; 2], random: &mut Random) -> Plan<'a> {
    let mut plan = limits.plan(0, random.pick(&[0, 1, 1, 5]));
    let owner = random.below(2);
    if plan.is_holdable() && random.once_in(3) {
        plan.renewal = renewals[owner].take();
    }
    if plan.renewal.is_some() {
        return plan;
    }
    if random.once_in(6) {
        let name = random.pick(&[&b"one"[..], b"two", b"three"]);
        plan.reservation = Some(Reservation { name, step: reservation_step(random) });
    } else {
        plan.dry_run = random.once_in(8);
    }
    plan
}

async fn trace(store: &RedisStore, clock: &ManualClock, limits: &Limits, seed: u64, random: &mut Random) {
    let (mut reference, mut now): (_, Micros) = (Reference::default(), START);
    let mut owners = [DishonestOwner::default(); 2];
    store.clear().await.expect("cleared");
    for crowd in 0..CROWDS {
        now += random.pick(&[0, 1, 1_000, 100_000, 400_000, 30_000_000]);
        clock.set(now);
        let id = |owner| HoldId { owner, number: u64::MAX };
        let renewals = [0, 1].map(|owner| owners[owner].renewal(id(2 + owner as u64), 100, random));
        let mut unsent = renewals.each_ref().map(Some);
        let plans: Vec<_> = (0..CROWD).map(|_| ask(limits, &mut unsent, random)).collect();
        let ours: Vec<_> = plans
            .iter()
            .map(|plan| {
                // A dry run changes nothing.
                let mut unchanged = plan.dry_run.then(|| reference.clone());
                let mut view = unchanged.as_mut().unwrap_or(&mut reference).view(plan, now);
                match plan.renewal {
                    Some(renewal) => {
                        let (decisions, grant) = renew(plan, &mut view, now, renewal);
                        (decisions, Some(grant))
                    }
                    None => (decide_with_holds(plan, &mut view, now).0, None),
                }
            })
            .collect();
        let theirs = join_all(plans.iter().map(|plan| async move {
            let verdict = store.verdict(plan).await.expect("a verdict");
            (verdict.decisions, verdict.grant.map(|grant| *grant))
        }));
        let sent = plans.iter().map(|plan| (plan.levels()[0].cost, plan.dry_run, plan.reservation, plan.renewal));
        assert_eq!(theirs.await, ours, "WEIR_SEED={seed}, crowd {crowd}: {:#?}", sent.collect::<Vec<_>>());
        for (plan, (_, grant)) in plans.iter().zip(&ours) {
            if let (Some(renewal), Some(grant)) = (plan.renewal, grant) {
                owners[renewal.id.owner as usize - 2].answered(renewal, grant);
            }
        }
    }
}

#[tokio::test]
async fn pipelined_commands_are_served_in_order() {
    let server = Server::start(Options::socket());
    let clock = Arc::new(ManualClock::default());
    let Authority::Redis(store) = on_redis(&server.url(), &clock) else { unreachable!() };
    for seed in seeds(TRACES) {
        for (stream, params) in examples().enumerate() {
            let mut random = Random::new(seed).fork(stream as u64);
            trace(&store, &clock, &Limits::new(&params), seed, &mut random).await;
        }
    }
}
