//! The master as Sentinels name it, asked anew for each connection.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::{
    connection::{Connection, Reply},
    dial::{Dialer, Purpose, Step},
    greeting::text,
};
use crate::store::{Failure, url::Address};

/// Sentinels that watch one master.
#[derive(Debug)]
pub struct Sentinels {
    addresses: Vec<Address>,
    master: String,
    /// Who led to the master last, and is asked first.
    first: AtomicUsize,
}

impl Sentinels {
    /// Those at these addresses, about the master that they know by this name.
    pub fn new(addresses: Vec<Address>, master: String) -> Self {
        Self { addresses, master, first: AtomicUsize::new(0) }
    }

    /// What they call the master.
    pub fn master(&self) -> &str {
        &self.master
    }

    /// A connection to the master. A Sentinel that is down, knows nothing, or names a server that is no master (any more)
    /// leaves the word to the next; each gets its share of the time that is left.
    ///
    /// # Errors
    /// The last one's [`Failure`].
    pub async fn dial(&self, dialer: &Dialer) -> Result<Connection, Failure> {
        let (deadline, count) = (dialer.deadline(), self.addresses.len());
        let first = self.first.load(Ordering::Relaxed);
        let mut failure = Failure::Connect("no Sentinel is named".into());
        for (left, sentinel) in (1..=count).rev().zip(self.addresses.iter().cycle().skip(first)) {
            let share = u32::try_from(left).unwrap_or(u32::MAX);
            match self.dial_through(sentinel, dialer, part(deadline, share)).await {
                Ok(connection) => {
                    self.first.store((first + count - left) % count, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(next) => failure = next,
            }
        }
        // Another begins next time: the first may have led astray so slowly that the others had little time.
        self.first.store((first + 1) % count.max(1), Ordering::Relaxed);
        Err(failure)
    }

    async fn dial_through(
        &self,
        sentinel: &Address,
        dialer: &Dialer,
        deadline: Instant,
    ) -> Result<Connection, Failure> {
        let master = self.ask(dialer, sentinel, deadline).await?;
        dialer.dial_by(&master, Purpose::Checks, deadline).await
    }

    async fn ask(&self, dialer: &Dialer, sentinel: &Address, deadline: Instant) -> Result<Address, Failure> {
        let mut connection = dialer.dial_sentinel(sentinel, deadline).await?;
        let question: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self.master.as_bytes()];
        let step = Step { address: sentinel, deadline };
        let reply = step.answered("asking the Sentinel", connection.command(&question)).await?;
        let unknown = || Failure::Connect(format!("the Sentinel {sentinel} knows no master `{}`", self.master).into());
        let Reply::Array(parts) = reply else { return Err(unknown()) };
        let [host, port] = parts.as_slice() else { return Err(unknown()) };
        match (text(host), text(port).and_then(|port| port.parse().ok())) {
            (Some(host), Some(port)) => Ok(Address::Tcp { host, port }),
            _ => Err(unknown()),
        }
    }
}

/// The moment at which the first of so many equal parts of the time that is left is over.
fn part(deadline: Instant, parts: u32) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / parts
}
