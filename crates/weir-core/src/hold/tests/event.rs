//! The events of a simulation, ordered by time.

use std::cmp::Ordering;

use crate::{
    domain::Micros,
    hold::{Grant, Renewal},
};

#[derive(Clone)]
pub(super) enum Event {
    Check(usize),
    Tick(usize),
    Serve(Box<Message>),
    Reply(Box<Message>),
    GiveUp(usize, u64, u64),
    Crash,
    Pause,
    Partition,
    Reset,
}

#[derive(Clone)]
pub(super) struct Message {
    pub(super) holder: usize,
    pub(super) life: u64,
    pub(super) cost: i64,
    /// Time of sending, by the holder's clock.
    pub(super) sent: Micros,
    pub(super) renewal: Option<Renewal>,
    /// The grant and its time, by the authority's clock.
    pub(super) grant: Option<(Grant, Micros)>,
    pub(super) refused: bool,
    pub(super) is_copy: bool,
}

/// An event with its time. The earliest is the greatest, so that a heap returns it first.
pub(super) struct Due {
    pub(super) at: Micros,
    pub(super) number: u64,
    pub(super) event: Event,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}
