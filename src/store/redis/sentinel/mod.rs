//! The master as Sentinels name it: asked of one for each connection, and of all over and over while connections stand.
//!
//! The crate's own Sentinel client has no deadlines for look-ups, and does not notice that a master was replaced alive.

mod watch;

use std::{
    iter,
    sync::atomic::{AtomicUsize, Ordering},
};

use deadpool_redis::redis::{aio::MultiplexedConnection, from_redis_value};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    command::{command, query},
    connector::{Connector, at},
    epoch::ConnectionEpoch,
};
use crate::store::{Failure, url::Address};

/// Sentinels that watch one master.
#[derive(Debug)]
pub struct Sentinels {
    addresses: Vec<Address>,
    master: String,
    /// Who led to the master last, and is asked first.
    first: AtomicUsize,
    connected: Mutex<Connected>,
}

/// Where connections lead.
#[derive(Debug, Default)]
struct Connected {
    /// Masters, each with the epoch of connections to it: one, but while a master or the secrets are replaced.
    epochs: Vec<(Address, ConnectionEpoch)>,
    /// How often there was another master.
    changes: u64,
}

impl Connected {
    /// A connection of this epoch leads to `master`.
    fn add(&mut self, master: &Address, epoch: &ConnectionEpoch) {
        self.epochs.retain(|(_, known)| known.is_shared());
        if self.epochs.iter().any(|(_, known)| known.is(epoch)) {
            return;
        }
        self.changes += u64::from(!self.epochs.iter().any(|(known, _)| known == master));
        self.epochs.push((master.clone(), epoch.clone()));
    }

    /// Ends the epochs of all other masters; returns which.
    fn only_to(&mut self, master: &Address) -> Vec<Address> {
        let ended = self.epochs.extract_if(.., |(known, _)| known != master);
        let mut ended: Vec<_> = ended.inspect(|(_, epoch)| epoch.end()).map(|(known, _)| known).collect();
        ended.dedup();
        self.changes += ended.len() as u64;
        ended
    }
}

/// One question to one Sentinel, of several that have to be done before a deadline.
pub struct Lookup<'a> {
    /// Whom to ask.
    pub sentinel: &'a Address,
    /// Its place among the Sentinels.
    pub index: usize,
    /// Sentinels that are left, with this one.
    left: u32,
}

impl Lookup<'_> {
    /// Until when this one may take: its share of the time that is left.
    pub fn share_of(&self, deadline: Instant) -> Instant {
        let now = Instant::now();
        now + deadline.saturating_duration_since(now) / self.left
    }
}

impl Sentinels {
    /// Those at these addresses, about the master that they know by this name.
    pub fn new(addresses: Vec<Address>, master: String) -> Self {
        Self { addresses, master, first: AtomicUsize::new(0), connected: Mutex::default() }
    }

    /// What they call the master.
    pub fn master(&self) -> &str {
        &self.master
    }

    /// A number that changes whenever connections lead elsewhere than before.
    pub fn changes(&self) -> u64 {
        self.connected.lock().changes
    }

    /// Whom to ask, in this order. One that is down, knows nothing, or names a server that is not a master (any more) leaves
    /// the word to the next.
    pub fn lookups(&self) -> impl Iterator<Item = Lookup<'_>> {
        let (count, first) = (self.addresses.len(), self.first.load(Ordering::Relaxed));
        let left = (1..=u32::try_from(count).unwrap_or(u32::MAX)).rev();
        let sentinels = self.addresses.iter().enumerate().cycle().skip(first);
        iter::zip(left, sentinels).map(|(left, (index, sentinel))| Lookup { sentinel, index, left })
    }

    /// The next connection begins with this Sentinel.
    pub fn ask_first(&self, index: usize) {
        self.first.store(index, Ordering::Relaxed);
    }

    /// The next connection begins with another Sentinel than this one.
    pub fn ask_next_first(&self) {
        self.ask_first((self.first.load(Ordering::Relaxed) + 1) % self.addresses.len().max(1));
    }

    /// A connection of this epoch leads to `master`.
    pub fn connected(&self, master: &Address, epoch: &ConnectionEpoch) {
        self.connected.lock().add(master, epoch);
    }

    /// The master that a Sentinel names.
    ///
    /// # Errors
    /// Why it names none.
    pub async fn look_up(
        &self,
        connector: &Connector,
        sentinel: &Address,
        deadline: Instant,
    ) -> Result<Address, Failure> {
        let connection = connector.to_sentinel(sentinel, deadline).await?;
        connector.in_time(sentinel, deadline, self.ask(&connection, sentinel)).await?
    }

    async fn ask(&self, connection: &MultiplexedConnection, sentinel: &Address) -> Result<Address, Failure> {
        let question = command(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self.master.as_bytes()]);
        let reply = query(connection, question, false).await;
        let reply = reply.map_err(|failure| at("asking the Sentinel", sentinel, failure))?;
        match from_redis_value(reply) {
            Ok((host, port)) => Ok(Address::Tcp { host, port }),
            Err(_) => {
                let why = format!("the Sentinel {sentinel} knows no master `{}`", self.master);
                Err(Failure::Connect(why.into()))
            }
        }
    }
}
