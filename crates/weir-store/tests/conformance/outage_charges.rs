//! Units admitted without the store are charged to it later as the library computes, for every algorithm.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use weir_core::{
    algorithm::{Bounds, Params, State, rates},
    domain::{Charge, Decision, Key, Micros, StepInput, time::SECOND},
    plan::{Level, Limit, Origin, Plan},
};
use weir_store::{
    outage_charges::{ChargeOutcome, OutageCharges, OutageChargesSettings},
    redis::Fate,
};

use super::{duplicates::START, redis::OnRedis, store_under_test::StoreUnderTest as _};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

/// The reference of a limit on its own key: its state in the store, and the units admitted without it.
struct Model {
    key: Key,
    limit: Limit,
    stored: Option<State>,
    admitted: Option<State>,
    units: u64,
}

impl Model {
    /// Returns models of every example of every algorithm.
    fn all(run: usize) -> Vec<Self> {
        let examples = rates().flat_map(|entry| entry.examples.iter().map(move |example| (entry, example)));
        let models = examples.enumerate().map(|(number, (entry, example))| {
            let params = (entry.parse)(example, &Bounds::default()).expect("an example");
            let key = Key::new("", &[format!("run{run}"), format!("{}{number}", entry.name)]).expect("a key");
            let limit = Limit::new(Origin::Policy, None, "*", 0, false, params);
            Self { key, limit, stored: None, admitted: None, units: 0 }
        });
        models.collect()
    }

    fn plan(&self, cost: i64) -> Plan<'_> {
        Plan::new([Level::new(&self.key, 2, 2, &self.limit, cost)].into_iter().collect(), Charge::AllOrNothing, None)
    }

    fn params(&self) -> &Params {
        &self.limit.params
    }

    fn phase(&self) -> Micros {
        self.plan(0).levels()[0].phase()
    }

    fn step(&self, now: Micros, cost: i64) -> (Decision, Option<State>) {
        self.params().step(self.stored.as_ref(), &StepInput { now, cost, max_wait: None, phase: self.phase() })
    }

    /// Returns the parameters by which admitted units expire, even if a key of the limit starts empty.
    fn starting_full(&self) -> Params {
        self.params().starting_full().unwrap_or_else(|| self.params().clone())
    }

    fn admit(&mut self, now: Micros, units: u64) {
        let next = self.starting_full().charge_what_fits(self.admitted.as_ref(), units, now, self.phase()).1;
        self.admitted = next.or(self.admitted.take());
        self.units += units;
    }

    /// Charges the units that still count, and returns their number.
    fn settle(&mut self, now: Micros) -> u64 {
        let counting = self.units.min(self.starting_full().spent(self.admitted.as_ref(), now, self.phase()));
        let (charged, next) = self.params().charge_what_fits(self.stored.as_ref(), counting, now, self.phase());
        self.stored = next.or(self.stored.take());
        charged
    }
}

/// Units charged by the store, units then admitted without it, and the duration of the outage.
const RUNS: [([i64; 2], Micros); 5] =
    [([0, 3], 0), ([2, 1], SECOND), ([4, 5], 2 * SECOND), ([1, 1 << 40], SECOND / 2), ([3, 2], 3_600 * SECOND)];

async fn charges_as_the_library(redis: &mut OnRedis<'_>) {
    for (run, ([stored, admitted], outage)) in RUNS.into_iter().enumerate() {
        let mut models = Model::all(run);
        for model in &mut models {
            let (decision, next) = model.step(START, stored);
            assert_eq!(redis.decide(&model.plan(stored), START).await[0], decision);
            model.stored = next;
        }
        let settings = OutageChargesSettings::default();
        let charges = Arc::new(OutageCharges::new(&settings, redis.clock(), 0));
        for at in [START, START + outage / 2] {
            redis.clock().set(at);
            for model in &mut models {
                charges.record(&model.plan(admitted), &[Decision::pass(1, 0, 0)], &[Fate::NotCharged]);
                model.admit(at, admitted.unsigned_abs());
            }
        }
        let now = START + outage;
        redis.clock().set(now);
        let charging = redis.charge_outages(&charges);
        while charges.keys() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        drop(charging);
        let expected: u64 = models.iter_mut().map(|model| model.settle(now)).sum();
        for model in &models {
            let described = model.params().describe();
            let ours = model.step(now, 0).0;
            assert_eq!(redis.decide(&model.plan(0), now).await[0], ours, "run {run}: {described}");
        }
        let told = ChargeOutcome::ALL.map(|outcome| charges.units(outcome));
        assert_eq!(told[0], expected, "run {run}: {told:?}");
        let admitted: u64 = models.iter().map(|model| model.units).sum();
        assert_eq!(told.into_iter().sum::<u64>(), admitted, "run {run}: {told:?}");
    }
}

#[tokio::test]
async fn redis_charges_afterwards_as_the_library() {
    let server = Server::start(Options::socket());
    charges_as_the_library(&mut OnRedis::new("Redis", &server.url(), vec![&server])).await;
}

#[tokio::test]
async fn a_cluster_charges_afterwards_as_the_library() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let masters = cluster.nodes.iter().collect();
    charges_as_the_library(&mut OnRedis::new("a Cluster", &cluster.url(), masters)).await;
}
