//! Concurrent renewals, reservations and checks of one key share calls of the script, which reads the holds once. The
//! results are the same as in sequence.

use std::sync::Arc;

use futures_util::future::join_all;
use weir_core::{
    domain::{ManualClock, Micros},
    hold::{HoldId, Renewal, Reservation, decide_with_holds, renew},
    plan::Plan,
    testing::{DishonestOwner, Random, fresh_seed, from_environment},
};
use weir_store::redis::RedisStore;
use weir_test_redis::{Options, Server};

use super::{
    holds::{Authority, Limits, START, examples, on_redis, reservation_step},
    store_under_test::Reference,
};

const CROWDS: usize = 8;
/// Number of concurrent requests.
const CROWD: usize = 10;
const TRACES: u64 = 4;

/// A request of a crowd: a renewal by its owner, or the plan alone.
type Request<'a> = (Plan<'a>, Option<(usize, Renewal)>);

fn ask<'a>(
    limits: &'a Limits,
    owners: &mut [DishonestOwner; 2],
    renewed: &mut [bool; 2],
    random: &mut Random,
) -> Request<'a> {
    let mut plan = limits.plan(0, random.pick(&[0, 1, 1, 5]));
    let owner = random.below(2);
    if plan.is_holdable() && !renewed[owner] && random.once_in(3) {
        renewed[owner] = true;
        let id = HoldId { owner: 2 + owner as u64, number: u64::MAX };
        let renewal = owners[owner].renewal(id, 100, random);
        return (plan, Some((owner, renewal)));
    }
    if random.once_in(6) {
        let name = random.pick(&[&b"one"[..], b"two", b"three"]);
        plan.reservation = Some(Reservation { name, step: reservation_step(random) });
    } else {
        plan.dry_run = random.once_in(8);
    }
    (plan, None)
}

async fn trace(store: &RedisStore, clock: &ManualClock, limits: &Limits, seed: u64, random: &mut Random) {
    let (mut reference, mut now): (_, Micros) = (Reference::default(), START);
    let mut owners = [DishonestOwner::default(); 2];
    store.clear().await.expect("cleared");
    for crowd in 0..CROWDS {
        now += random.pick(&[0, 1, 1_000, 100_000, 400_000, 30_000_000]);
        clock.set(now);
        let mut renewed = [false; 2];
        let requests: Vec<_> = (0..CROWD).map(|_| ask(limits, &mut owners, &mut renewed, random)).collect();
        let ours: Vec<_> = requests
            .iter()
            .map(|(plan, renewal)| {
                // A dry run changes nothing.
                let mut unchanged = plan.dry_run.then(|| reference.clone());
                let mut view = unchanged.as_mut().unwrap_or(&mut reference).view(plan, now);
                match renewal {
                    Some((_, renewal)) => {
                        let (decisions, grant) = renew(plan, &mut view, now, renewal);
                        (decisions, Some(grant))
                    }
                    None => (decide_with_holds(plan, &mut view, now).0, None),
                }
            })
            .collect();
        let theirs = join_all(requests.iter().map(|(plan, renewal)| async move {
            match renewal {
                Some((_, renewal)) => {
                    let (verdict, grant) = store.verdict_and_grant(plan, renewal).await.expect("a verdict");
                    (verdict.decisions, Some(grant))
                }
                None => (store.verdict(plan).await.expect("a verdict").decisions, None),
            }
        }));
        let sent =
            requests.iter().map(|(plan, renewal)| (plan.levels()[0].cost, plan.dry_run, plan.reservation, renewal));
        assert_eq!(theirs.await, ours, "WEIR_SEED={seed}, crowd {crowd}: {:#?}", sent.collect::<Vec<_>>());
        for ((_, renewal), (_, grant)) in requests.iter().zip(&ours) {
            if let (Some((owner, renewal)), Some(grant)) = (renewal, grant) {
                owners[*owner].answered(renewal, grant);
            }
        }
    }
}

#[tokio::test]
async fn pipelined_commands_are_served_in_order() {
    let server = Server::start(Options::socket());
    let clock = Arc::new(ManualClock::default());
    let Authority::Redis(store) = on_redis(&server.url(), &clock) else { unreachable!() };
    let first = from_environment("WEIR_SEED").unwrap_or_else(fresh_seed);
    for seed in (0..TRACES).map(|number| first.wrapping_add(number)) {
        for (stream, params) in examples().enumerate() {
            let mut random = Random::new(seed).fork(stream as u64);
            trace(&store, &clock, &Limits::new(&params), seed, &mut random).await;
        }
    }
}
