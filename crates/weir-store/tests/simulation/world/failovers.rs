//! Failovers of a live master and back, step by step: orders of events found by random seeds, each of which once led
//! replicas to the wrong master.

use std::ops::Range;

use weir_core::{
    domain::{Micros, time::SECOND},
    testing::Random,
};

use super::World;
use crate::{
    case::Case,
    event::{Event, Step},
    redis::Role,
    topology::Topology,
};

/// The numbers of the master, its replica, and the first Sentinel.
const MASTER: usize = 0;
const REPLICA: usize = 1;
const SENTINEL: usize = 2;

/// A step of a test and its time.
type Directed = (Micros, fn(&mut World));

/// Runs a world with these steps.
fn run(length: Micros, steps: &[Directed]) {
    run_case(Case::directed(Topology::Sentinels, length), steps);
}

fn run_case(case: Case, steps: &[Directed]) {
    let mut world = World::new(case, &Random::new(1));
    for (index, (at, step)) in steps.iter().enumerate() {
        world.directed.push(*step);
        world.after(*at, Event::Directed(index));
    }
    world.run().unwrap_or_else(|why| panic!("{why}"));
}

impl World {
    fn name(&mut self, sentinels: Range<usize>, master: usize) {
        sentinels.for_each(|sentinel| self.redis.servers[sentinel].role = Role::Sentinel(master));
    }

    /// Demotes a master, which keeps running as a replica.
    fn demote(&mut self, server: usize) {
        self.server(Step::Demote(server));
        self.end_connections(server, true);
    }

    fn ask_for(&mut self, user: usize) {
        self.begin_check_of(user, 0);
        self.drive(0);
    }
}

/// One worker connects to the new master, which one Sentinel already names, before the promotion is announced. The
/// other worker must still leave the old master.
#[test]
fn an_announcement_of_a_connected_master_is_followed() {
    run(
        2 * SECOND,
        &[
            (600_000, |world| {
                world.promote(MASTER, REPLICA, 0);
                world.name(SENTINEL..SENTINEL + 3, REPLICA);
                world.demote(MASTER);
            }),
            // Both connections are lost, and one worker reconnects.
            (1_390_000, |world| world.end_connections(REPLICA, true)),
            (1_400_000, |world| world.ask_for(0)),
            (1_420_000, |world| {
                world.promote(REPLICA, MASTER, 0);
                world.name(SENTINEL..SENTINEL + 1, MASTER);
                // Some of these users' keys belong to the other worker.
                (0..world.case.users).for_each(|user| world.ask_for(user));
            }),
            (1_440_000, |world| {
                world.announce(SENTINEL, REPLICA, MASTER);
                world.record.is_left_by(1_500_000);
            }),
            (1_500_000, |world| world.ask_for(0)),
            (2_100_000, |world| world.name(SENTINEL + 1..SENTINEL + 3, MASTER)),
            (2_500_000, |world| world.demote(REPLICA)),
        ],
    );
}

/// An announced failover is reverted before this replica gets the new master from any Sentinel. The Sentinels that name
/// the old one then seem to be outdated, although the new one is a replica again.
#[test]
fn a_promotion_is_over_when_its_server_is_a_replica_again() {
    run(
        1_500_000,
        &[
            (1_000_000, |world| {
                world.promote(MASTER, REPLICA, 0);
                world.announce(SENTINEL, MASTER, REPLICA);
            }),
            (1_050_000, |world| world.demote(MASTER)),
            (1_200_000, |world| world.promote(REPLICA, MASTER, 0)),
            (1_210_000, |world| world.demote(REPLICA)),
        ],
    );
}

/// The connection timeout is 200 ms for three Sentinels, and a round trip takes 8 to 16 ms.
#[test]
fn a_slow_network_leaves_time_to_connect() {
    let mut case = Case::directed(Topology::Sentinels, SECOND);
    case.latency = 4_000;
    run_case(case, &[]);
}
