//! What happens, and when.

use std::cmp::{Ordering, Reverse};

use weir_core::domain::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time of all replicas goes on.
    Tick,
    /// A caller of a replica asks.
    Check(usize),
    /// A caller that waits for an answer since this attempt, or holds something, comes back.
    Again(u64, u64),
    /// A client has waited for the answer to this request, or its stream ends.
    Late(u64),
    /// Callers ask more or less.
    Load,
    /// A connection's beginning reaches the store.
    Dialed(u64),
    /// The next of what a replica has sent by a connection reaches the store.
    Up(u64),
    /// The next of what the store has sent by a connection reaches the replica.
    Down(u64),
    /// A replica goes on, or starts.
    Resume(usize),
    Fault(Fault),
    Server(Step),
    /// The step of a test that says itself what happens.
    Directed(usize),
    /// From now on nothing goes wrong and callers ask nothing.
    Heal,
    /// Each replica is asked once more, and the store has to decide, or not.
    LastChecks(bool),
    /// All replicas stop.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Cut,
    Pause,
    Crash,
    Drain,
    Reset,
    NewPolicy,
    StoreStops,
    MoveSlots,
}

/// What happens to servers after a fault, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Start(usize),
    /// `to` takes the place of `from`, of which the last writes may be lost.
    Promote {
        from: usize,
        to: usize,
        lag: Micros,
    },
    /// A Sentinel names another master.
    Name {
        sentinel: usize,
        master: usize,
    },
    /// A server hears that it is a master no more.
    Demote(usize),
    /// A node of a Cluster hears who serves which slots.
    Learn(usize),
    /// The next key of slots on their way moves.
    MoveKey,
}

/// An event and its time. The greatest is the first; of those at one time it is the one that was made first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub at: Micros,
    pub number: u64,
    pub event: Event,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        Reverse((self.at, self.number)).cmp(&Reverse((other.at, other.number)))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
