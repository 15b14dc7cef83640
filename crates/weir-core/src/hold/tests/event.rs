//! The events of a simulation.

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
