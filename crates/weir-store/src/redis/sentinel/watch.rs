//! Polling of the Sentinels, to detect a change of the master while there are connections to it.

use std::{iter::zip, sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::sleep};
use tracing::{info, warn};

use super::{Sentinels, promotion::Promotion};
use crate::{
    Failure,
    redis::{manager::Connection, pool::Pool},
    url::Address,
};

/// Interval of requests to a Sentinel. A live master that is replaced keeps accepting checks for about this long after
/// the new one is reported, and their charges are lost.
const PAUSE: Duration = Duration::from_millis(250);
/// Consecutive rounds with too few answers after which that is logged.
const SILENT_ROUNDS: u32 = 8;

/// Most announced promotions waiting to be followed. The Sentinels together announce one at a time.
const ANNOUNCED: usize = 4;

/// The master that a Sentinel last reported; `None`: no answer.
type Said = Option<Address>;

/// Polls all Sentinels for the master until dropped. Once a majority reports the same master and it accepts checks, it
/// ends the connections of `pool` to all other servers: a failover of a live master (`SENTINEL FAILOVER`) leaves the
/// old one writable for about ten seconds, and a partitioned Sentinel may report it for longer.
///
/// An announced promotion is followed earlier, with checks paused for at most `pause`.
pub async fn watch(sentinels: &Sentinels, pool: &Pool, pause: Duration) {
    let said: Vec<_> = sentinels.addresses.iter().map(|_| Mutex::default()).collect();
    let (announce, announced) = mpsc::channel(ANNOUNCED);
    let listen = |(sentinel, said)| sentinels.listen(sentinel, said, &announce);
    let asked = sentinels.addresses.iter().zip(&said).map(listen);
    tokio::join!(join_all(asked), sentinels.judge(&said, pool), sentinels.follow(announced, pool, pause));
}

impl Sentinels {
    /// Polls one Sentinel.
    async fn listen(&self, sentinel: &Address, said: &Mutex<Said>, announce: &mpsc::Sender<Promotion>) {
        let (mut kept, mut refused) = (None, None);
        loop {
            let answer = self.ask_again(&mut kept, &mut refused, sentinel, announce).await;
            *said.lock() = answer.ok();
            sleep(PAUSE).await;
        }
    }

    /// Asks on the connection of the previous round, or on a new one.
    async fn ask_again(
        &self,
        kept: &mut Option<Connection>,
        refused: &mut Option<Failure>,
        sentinel: &Address,
        announce: &mpsc::Sender<Promotion>,
    ) -> Result<Address, Failure> {
        let deadline = self.connector.deadline();
        if let Some(connection) = kept.take()
            && let Ok(master) = self.ask(&connection, sentinel, deadline).await
        {
            *kept = Some(connection);
            return Ok(master);
        }
        let (connection, subscribed) = self.subscribed(sentinel, announce, deadline).await?;
        if let Err(failure) = subscribed
            && refused.as_ref() != Some(&failure)
        {
            warn!(
                master = self.master, %sentinel, error = &failure as &dyn std::error::Error,
                "a failover of a living master loses charges for about a second: the Sentinel does not announce promotions"
            );
            *refused = Some(failure);
        }
        let master = self.ask(&connection, sentinel, deadline).await?;
        *kept = Some(connection);
        Ok(master)
    }

    async fn judge(&self, said: &[Mutex<Said>], pool: &Pool) {
        let (mut silent, mut logged) = (0, None);
        loop {
            sleep(PAUSE).await;
            let meant =
                |(sentinel, said): (&Address, &Mutex<Said>)| said.lock().clone().map(|it| self.meant(sentinel, it));
            let said: Vec<Said> = zip(&self.addresses, said).map(meant).collect();
            self.log_silence(&said, &mut silent);
            let Some(master) = majority(&said) else { continue };
            if !pool.leads_elsewhere(master) {
                logged = None;
                self.begin_with_one_that_names(&said, master);
                continue;
            }
            // Only once it accepts checks: charges at the old master are better than failing checks.
            match pool.try_checks(master).await {
                Ok(()) => {
                    self.begin_with_one_that_names(&said, master);
                    self.leave_others(master, pool);
                }
                Err(failure) => {
                    let failure = failure.to_string();
                    if logged.as_ref() != Some(&failure) {
                        warn!(
                            master = self.master, to = %master, error = failure,
                            "the Sentinels name another master, which takes no checks: they go on where they went"
                        );
                        logged = Some(failure);
                    }
                }
            }
        }
    }

    /// Ends the connections to all other servers.
    pub(super) fn leave_others(&self, master: &Address, pool: &Pool) {
        for before in pool.leave_others(master) {
            info!(master = self.master, from = %before, to = %master, "connections lead to the master that Sentinels name now");
        }
    }

    /// Starts the next look-ups with a Sentinel that reports `master`.
    fn begin_with_one_that_names(&self, said: &[Said], master: &Address) {
        let names = |index: usize| said.get(index).and_then(Option::as_ref) == Some(master);
        if !names(self.first.load(Ordering::Relaxed))
            && let Some(index) = (0..said.len()).find(|index| names(*index))
        {
            self.first.store(index, Ordering::Relaxed);
        }
    }

    fn log_silence(&self, said: &[Said], silent: &mut u32) {
        let answered = said.iter().flatten().count();
        if 2 * answered > said.len() {
            if *silent >= SILENT_ROUNDS {
                info!(master = self.master, answered, "enough Sentinels answer again");
            }
            *silent = 0;
            return;
        }
        *silent = silent.saturating_add(1);
        if *silent == SILENT_ROUNDS {
            let of = said.len();
            warn!(
                master = self.master,
                answered, of, "too few Sentinels answer: a master that is replaced would not be noticed"
            );
        }
    }
}

/// Returns the master reported by more than half of the Sentinels.
fn majority(said: &[Said]) -> Option<&Address> {
    let count = |named: &Address| said.iter().flatten().filter(|other| *other == named).count();
    said.iter().flatten().find(|named| 2 * count(named) > said.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ports: &[u16]) -> Vec<Said> {
        let address = |port: &u16| Address::Tcp { host: "h".to_owned(), port: *port };
        ports.iter().map(|port| (*port > 0).then(|| address(port))).collect()
    }

    #[test]
    fn a_majority_of_all_sentinels_must_agree() {
        for (ports, named) in [
            (&[1][..], 1),
            (&[1, 2], 0),
            (&[1, 1], 1),
            (&[1, 0], 0),
            (&[2, 1, 1], 1),
            (&[1, 0, 1], 1),
            (&[1, 0, 0], 0),
            (&[1, 2, 3], 0),
            (&[1, 1, 2, 2], 0),
            (&[0, 0, 0], 0),
            (&[], 0),
        ] {
            assert_eq!(majority(&said(ports)).cloned(), said(&[named]).remove(0), "{ports:?}");
        }
    }
}
