//! Events.

use weir_core::domain::Micros;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The clocks of all replicas advance.
    Tick,
    /// A caller of a replica sends a check.
    Check(usize),
    /// A caller's timeout since this attempt, or its holding time, is over.
    Again(u64, u64),
    /// A client's timeout for this request is over, or its stream ends.
    Late(u64),
    /// The load changes.
    Load,
    /// A connection attempt reaches the store.
    Dialed(u64),
    /// The next bytes of a replica on a connection reach the store.
    Up(u64),
    /// The next bytes of the store on a connection reach the replica.
    Down(u64),
    /// A replica continues or starts.
    Resume(usize),
    Fault(Fault),
    Server(Step),
    /// A step of a directed test.
    Directed(usize),
    /// Faults and load end.
    Heal,
    /// Each replica gets one more check.
    LastChecks(Expected),
    /// All replicas drain and stop.
    Stop,
}

/// The expected result of a check after the last fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing, since it may meet dead connections.
    Anything,
    /// The store decides it.
    Decision,
    /// The store admits it, since all limits have had time to recover, regardless of holds.
    Admission,
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

/// A consequence of a fault for servers, given by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Start(usize),
    /// `to` takes over from `from`, possibly without the latest writes.
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
    /// A server learns that it is no longer a master.
    Demote(usize),
    /// A node of a Cluster learns the current slot owners.
    Learn(usize),
    /// The next key under migration moves.
    MoveKey,
}
