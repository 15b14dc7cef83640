//! The master as Sentinels name it: asked for each connection, and over and over while connections stand.

use std::{
    mem,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::{
    connection::{Connection, Reply},
    dial::{Dialer, Purpose, Step},
    greeting::text,
    term::Term,
};
use crate::store::{Failure, url::Address};

/// Between two questions to a Sentinel while connections stand. For so long a master that is replaced while it lives goes on
/// taking checks after the other is named, and what they charge is lost.
const PAUSE: Duration = Duration::from_millis(250);

/// Sentinels that watch one master.
#[derive(Debug)]
pub struct Sentinels {
    addresses: Vec<Address>,
    master: String,
    /// Who led to the master last, and is asked first.
    first: AtomicUsize,
    reign: Mutex<Reign>,
}

/// The master that connections lead to.
#[derive(Debug, Default)]
struct Reign {
    /// Where it is; `None` before the first connection.
    master: Option<Address>,
    term: Term,
}

/// A Sentinel that is asked again and again.
struct Asked {
    index: usize,
    connection: Connection,
}

impl Sentinels {
    /// Those at these addresses, about the master that they know by this name.
    pub fn new(addresses: Vec<Address>, master: String) -> Self {
        Self { addresses, master, first: AtomicUsize::new(0), reign: Mutex::default() }
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
        let mut asked = dialer.dial_sentinel(sentinel, deadline).await?;
        let master = self.ask(&mut asked, sentinel, deadline).await?;
        let connection = dialer.dial_by(&master, Purpose::Checks, deadline).await?;
        Ok(connection.during(self.term_of(&master)))
    }

    /// Asks for ever whether the master is still the same, and ends the term of its connections when another one takes
    /// checks in its place: a Sentinel that is told to fail over (`SENTINEL FAILOVER`) leaves the old one writable for
    /// about ten seconds.
    pub async fn watch(&self, dialer: &Dialer) {
        let (mut asked, mut unanswered) = (None, 0);
        loop {
            sleep(PAUSE).await;
            match self.look(&mut asked, dialer).await {
                Ok(()) => {
                    if mem::take(&mut unanswered) >= self.addresses.len() {
                        info!(master = self.master, "a Sentinel answers again");
                    }
                }
                Err(failure) => {
                    unanswered += 1;
                    if unanswered == self.addresses.len() {
                        let error = failure.to_string();
                        warn!(master = self.master, error, "no Sentinel answers: another master would not be noticed");
                    }
                    let next = (self.first.load(Ordering::Relaxed) + 1) % self.addresses.len().max(1);
                    self.first.store(next, Ordering::Relaxed);
                }
            }
        }
    }

    /// Asks the Sentinel whose turn it is; keeps the connection to it in `asked`.
    async fn look(&self, asked: &mut Option<Asked>, dialer: &Dialer) -> Result<(), Failure> {
        let (index, deadline) = (self.first.load(Ordering::Relaxed), dialer.deadline());
        let Some(sentinel) = self.addresses.get(index) else { return Ok(()) };
        let before = asked.take().filter(|before| before.index == index).map(|before| before.connection);
        let usable = before.and_then(|mut connection| connection.is_usable().then_some(connection));
        let mut connection = match usable {
            Some(connection) => connection,
            None => dialer.dial_sentinel(sentinel, deadline).await?,
        };
        let master = self.ask(&mut connection, sentinel, deadline).await?;
        *asked = Some(Asked { index, connection });
        let is_other = self.reign.lock().master.as_ref().is_some_and(|before| *before != master);
        // Not before it takes checks: those that go to the old one are worth more than those that go nowhere.
        if is_other && dialer.dial_by(&master, Purpose::Checks, deadline).await.is_ok() {
            self.term_of(&master);
        }
        Ok(())
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

    /// For how long connections to `master` are good. It is the master from now on: the term of another one ends.
    fn term_of(&self, master: &Address) -> Term {
        let mut reign = self.reign.lock();
        if reign.master.as_ref() != Some(master) {
            let before = mem::replace(&mut *reign, Reign { master: Some(master.clone()), term: Term::default() });
            before.term.end();
            if let Some(before) = before.master {
                info!(master = self.master, from = %before, to = %master, "the Sentinels name another master");
            }
        }
        reign.term.clone()
    }
}

/// The moment at which the first of so many equal parts of the time that is left is over.
fn part(deadline: Instant, parts: u32) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / parts
}
