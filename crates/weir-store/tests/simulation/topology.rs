//! The servers of a case, and their faults.

use std::ops::Range;

use weir_core::{domain::Micros, testing::Random};

use super::{
    case::{Case, Faults, Scene},
    redis::{MASTER, PORT, Role, host},
};

/// The servers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Alone,
    /// A master, its replica, and Sentinels.
    Sentinels,
    /// A Cluster with this many masters, each with a replica.
    Cluster(usize),
}

impl Topology {
    const SENTINELS: usize = 3;

    pub fn roles(self) -> Vec<Role> {
        match self {
            Self::Alone => vec![Role::Master],
            Self::Sentinels => [vec![Role::Master, Role::Replica], vec![Role::Sentinel(0); Self::SENTINELS]].concat(),
            Self::Cluster(shards) => [vec![Role::Master; shards], vec![Role::Replica; shards]].concat(),
        }
    }

    pub fn shards(self) -> Option<usize> {
        if let Self::Cluster(shards) = self { Some(shards) } else { None }
    }

    /// Draws a topology. Reservations and request IDs require a store without data loss, so not Sentinels.
    pub fn draw(random: &mut Random, scene: Scene) -> Self {
        match random.below(4) {
            0 | 1 => Self::Alone,
            2 if !scene.has_callers() => Self::Sentinels,
            _ => Self::Cluster(2 + random.below(2)),
        }
    }

    pub fn url(self) -> String {
        let hosts = |servers: Range<usize>| {
            servers.map(|server| format!("{}:{PORT}", host(server))).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::Alone => format!("redis://{}", host(0)),
            Self::Sentinels => format!("redis-sentinel://{}/{MASTER}", hosts(2..2 + Self::SENTINELS)),
            Self::Cluster(_) => format!("redis-cluster://{}", hosts(0..2)),
        }
    }
}

impl Case {
    /// Returns the longest time after a failover for which the old master may be used, if there are no other faults:
    /// from the announcement, or without one from when all Sentinels name the new master.
    pub fn left_within(&self, is_announced: bool) -> Option<Micros> {
        let Faults { drift, restart, lose_data, lose_scripts, reset, .. } = self.faults;
        let quiet = Faults { drift, restart, lose_data, lose_scripts, reset, ..Faults::default() };
        (self.faults == quiet).then_some(if is_announced { 200_000 } else { 1_500_000 })
    }

    /// Whether slot migrations are the only faults, and checks have enough time to connect to a master that had no
    /// slots.
    pub fn only_moves_slots(&self) -> bool {
        let Faults { drift, move_slots, .. } = self.faults;
        let is_quiet = self.faults == Faults { drift, move_slots, ..Faults::default() };
        is_quiet && move_slots > 0 && self.command_timeout >= 50 * self.latency
    }
}

impl Faults {
    /// Adjusts the faults to the topology.
    pub fn suit(&mut self, topology: Topology, loses: bool, random: &mut Random) {
        if topology == Topology::Alone || *self == (Self { drift: self.drift, ..Self::default() }) {
            return;
        }
        if topology != Topology::Sentinels && random.once_in(4) {
            *self = Self { drift: self.drift, move_slots: 60_000, ..Self::default() };
            return;
        }
        if topology == Topology::Sentinels || random.once_in(2) {
            self.restart = random.pick(&[300_000, 600_000]);
        }
        if topology != Topology::Sentinels && (self.restart == 0 || random.once_in(2)) {
            self.move_slots = random.pick(&[60_000, 200_000]);
        }
        self.lose_data = if loses { 2 } else { 0 };
    }
}
