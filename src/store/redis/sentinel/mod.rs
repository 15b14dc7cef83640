//! The master as Sentinels name it: asked of one for each connection, and of all over and over while connections stand.

mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    connection::{Connection, Reply},
    dial::{Dialer, Purpose, Step},
    greeting::text,
    term::Term,
};
use crate::store::{Failure, url::Address};

/// Sentinels that watch one master.
#[derive(Debug)]
pub struct Sentinels {
    addresses: Vec<Address>,
    master: String,
    /// Who led to the master last, and is asked first.
    first: AtomicUsize,
    led: Mutex<Led>,
}

/// Where connections lead.
#[derive(Debug, Default)]
struct Led {
    /// Masters, each with the term of the connections to it: one, but while a master is replaced.
    terms: Vec<(Address, Term)>,
    /// How often there was another.
    changes: u64,
}

impl Led {
    /// The term of connections to `master`.
    fn to(&mut self, master: &Address) -> Term {
        if let Some((_, term)) = self.terms.iter().find(|(led, _)| led == master) {
            return term.clone();
        }
        let term = Term::default();
        self.terms.push((master.clone(), term.clone()));
        self.changes += 1;
        term
    }

    /// Ends the connections to all other masters; tells which.
    fn only_to(&mut self, master: &Address) -> Vec<Address> {
        let ended = self.terms.extract_if(.., |(led, _)| led != master);
        let ended = ended.map(|(led, term)| {
            term.end();
            led
        });
        let ended: Vec<_> = ended.collect();
        self.changes += ended.len() as u64;
        ended
    }
}

impl Sentinels {
    /// Those at these addresses, about the master that they know by this name.
    pub fn new(addresses: Vec<Address>, master: String) -> Self {
        Self { addresses, master, first: AtomicUsize::new(0), led: Mutex::default() }
    }

    /// What they call the master.
    pub fn master(&self) -> &str {
        &self.master
    }

    /// A number that changes whenever connections lead elsewhere than before.
    pub fn changes(&self) -> u64 {
        self.led.lock().changes
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
        let mut asked = dialer.dial_sentinel(sentinel, deadline).await?;
        let master = self.ask(&mut asked, sentinel, deadline).await?;
        let connection = dialer.dial_by(&master, Purpose::Checks, deadline).await?;
        Ok(connection.during(self.led.lock().to(&master)))
    }

    async fn ask(
        &self,
        connection: &mut Connection,
        sentinel: &Address,
        deadline: Instant,
    ) -> Result<Address, Failure> {
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
