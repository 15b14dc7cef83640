//! The master according to Sentinels: looked up for each new connection, and polled at all Sentinels while there are
//! connections.
//!
//! The crate's own Sentinel client has no deadlines for look-ups, and does not detect that a live master was replaced.

mod promotion;
pub mod watch;

use std::{
    iter::zip,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use deadpool_redis::redis::{aio::MultiplexedConnection, from_redis_value};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use self::promotion::FollowedPromotion;
use super::{
    command::{command, query},
    connector::{Connector, Purpose},
};
use crate::{Failure, failure::ErrorCode, url::Address};

/// The Sentinels of one master.
pub struct Sentinels {
    addresses: Vec<Address>,
    master: String,
    connector: Arc<Connector>,
    /// Index of the Sentinel that last led to the master; it is asked first.
    first: AtomicUsize,
    /// The last promotion that was followed before the Sentinels reported the new master.
    followed_promotion: Mutex<Option<FollowedPromotion>>,
}

impl Sentinels {
    /// Creates a client for the Sentinels at these addresses, and the master that they know by this name.
    pub fn new(addresses: Vec<Address>, master: String, connector: Arc<Connector>) -> Self {
        Self { addresses, master, connector, first: AtomicUsize::new(0), followed_promotion: Mutex::default() }
    }

    /// Returns the master's name at the Sentinels.
    pub fn master(&self) -> &str {
        &self.master
    }

    /// Connects to the master that a Sentinel reports. If a Sentinel is down, does not know the master, or reports a
    /// server that is not a master (any more), the next one is asked. A look-up gets an equal share of the remaining
    /// time, the connection to the reported server at least half of it, since it takes more round trips.
    ///
    /// # Errors
    /// A master's [`Failure`], or else a Sentinel's. Of several, the failure of the first in the list, so that an
    /// outage has one cause and one log line, whichever is asked first.
    pub(crate) async fn connect_to_master<T, F>(
        &self,
        deadline: Instant,
        connect: impl Fn(Address, Instant) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (count, first) = (self.addresses.len(), self.first.load(Ordering::Relaxed));
        // Each with whether it is a Sentinel's, and the Sentinel's index.
        let mut failures = Vec::<(bool, usize, Failure)>::new();
        for (left, place) in zip((1..=count).rev(), first..) {
            let place = place % count;
            let share = |left| {
                let now = Instant::now();
                now + deadline.saturating_duration_since(now) / u32::try_from(left).unwrap_or(u32::MAX)
            };
            let master = match self.look_up(&self.addresses[place], share(left)).await {
                Ok(master) => master,
                Err(failure) => {
                    failures.push((true, place, failure));
                    continue;
                }
            };
            match connect(master.clone(), share(left.min(2))).await {
                Ok(connection) => {
                    self.first.store(place, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(failure) => {
                    if failure.error_code() == Some(ErrorCode::ReadOnly) {
                        self.demoted(&master);
                    }
                    failures.push((false, place, failure));
                }
            }
        }
        // The next attempt starts with another Sentinel: the first may have used up the time of the others.
        self.first.store((first + 1) % count.max(1), Ordering::Relaxed);
        let cause = failures.into_iter().min_by_key(|(is_of_sentinel, place, _)| (*is_of_sentinel, *place));
        Err(cause.map_or_else(|| Failure::Connect("no Sentinel is named".into()), |(.., failure)| failure))
    }

    async fn look_up(&self, sentinel: &Address, deadline: Instant) -> Result<Address, Failure> {
        let connect = self.connector.connect(sentinel, Purpose::Sentinel, deadline);
        let connection = connect.await.map_err(|failure| of_sentinel(sentinel, failure))?;
        self.ask(&connection, sentinel, deadline).await.map(|named| self.resolve(sentinel, named))
    }

    async fn ask(
        &self,
        connection: &MultiplexedConnection,
        sentinel: &Address,
        deadline: Instant,
    ) -> Result<Address, Failure> {
        let failed = |why: &str| Failure::Connect(format!("the Sentinel {sentinel} {why}").into());
        let question = command(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self.master.as_bytes()]);
        let asked = timeout_at(deadline, query(connection.clone(), &question, false)).await;
        let reply = asked.map_err(|_| failed("does not answer in time"))?;
        let reply = reply.map_err(|error| of_sentinel(sentinel, self.connector.connection_failure(sentinel, error)))?;
        match from_redis_value(reply) {
            Ok((host, port)) => {
                let named = Address::Tcp { host, port };
                self.record_report(sentinel, &named);
                Ok(named)
            }
            Err(_) => Err(failed(&format!("knows no master `{}`", self.master))),
        }
    }
}

/// Names the Sentinel in its rejection, which would seem to be the master's.
fn of_sentinel(sentinel: &Address, failure: Failure) -> Failure {
    match failure {
        Failure::Rejected { code, text } => {
            Failure::Rejected { code, text: format!("the Sentinel {sentinel}: {text}").into() }
        }
        other => other,
    }
}
