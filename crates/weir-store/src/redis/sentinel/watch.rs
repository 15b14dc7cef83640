//! Polling of the Sentinels, to detect a change of the master while there are connections to it.

use std::{iter::zip, sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::sleep};
use tracing::{info, warn};
use weir_telemetry::Causes;

use super::{Sentinels, promotion::Promotion};
use crate::{
    Failure,
    redis::{manager::Connection, pool::Pool},
    url::Address,
};

/// Interval of requests to a Sentinel. A live master that is replaced keeps accepting checks for about this long after
/// the new one is reported, and their charges are lost.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Consecutive rounds with too few answers after which that is logged, and again after each further minute.
const SILENT_ROUNDS: u32 = 8;
const ROUNDS_IN_A_MINUTE: u32 = 240;

/// Most announced promotions waiting to be followed. The Sentinels together announce one at a time.
const MAX_ANNOUNCED: usize = 4;

/// The master that a Sentinel last reported; `None`: no answer.
type ReportedMaster = Option<Address>;

/// A Sentinel's last answer; no failure before the first.
type LastAnswer = Result<Address, Option<Failure>>;

/// Polls all Sentinels for the master until dropped. Once a majority reports the same master and it accepts checks, it
/// ends the connections of `pool` to all other servers: a failover of a live master (`SENTINEL FAILOVER`) leaves the
/// old one writable for about ten seconds, and a partitioned Sentinel may report it for longer.
///
/// An announced promotion is followed earlier, with checks paused for at most `pause`.
pub async fn watch(sentinels: &Sentinels, pool: &Pool, pause: Duration) {
    let answers: Vec<_> = sentinels.addresses.iter().map(|_| Mutex::new(Err(None))).collect();
    let (announce, announced) = mpsc::channel(MAX_ANNOUNCED);
    let poll = |(sentinel, last)| sentinels.poll(sentinel, last, &announce);
    let asked = sentinels.addresses.iter().zip(&answers).map(poll);
    tokio::join!(
        join_all(asked),
        sentinels.switch_on_majority(&answers, pool),
        sentinels.follow(announced, pool, pause)
    );
}

impl Sentinels {
    async fn poll(&self, sentinel: &Address, last: &Mutex<LastAnswer>, announce: &mpsc::Sender<Promotion>) {
        let (mut idle, mut logged) = (None, None);
        loop {
            let answer = self.poll_once(&mut idle, &mut logged, sentinel, announce).await;
            *last.lock() = answer.map_err(Some);
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Asks on the connection of the previous round, or on a new one.
    async fn poll_once(
        &self,
        idle: &mut Option<Connection>,
        logged: &mut Option<Failure>,
        sentinel: &Address,
        announce: &mpsc::Sender<Promotion>,
    ) -> Result<Address, Failure> {
        let deadline = self.connector.deadline();
        if let Some(connection) = idle.take()
            && let Ok(master) = self.ask(&connection, sentinel, deadline).await
        {
            *idle = Some(connection);
            return Ok(master);
        }
        let (connection, subscribed) = self.subscribed(sentinel, announce, deadline).await?;
        if let Err(failure) = subscribed
            && logged.as_ref() != Some(&failure)
        {
            warn!(
                master = self.master, %sentinel, error = %Causes(&failure),
                "a failover of a living master loses charges for about a second: the Sentinel does not announce promotions"
            );
            *logged = Some(failure);
        }
        let master = self.ask(&connection, sentinel, deadline).await?;
        *idle = Some(connection);
        Ok(master)
    }

    async fn switch_on_majority(&self, answers: &[Mutex<LastAnswer>], pool: &Pool) {
        let (mut silent, mut logged) = (0, None);
        loop {
            sleep(POLL_INTERVAL).await;
            let answers: Vec<LastAnswer> = answers.iter().map(|last| last.lock().clone()).collect();
            self.log_silence(&answers, &mut silent);
            let resolve = |(sentinel, last): (&Address, LastAnswer)| Some(self.resolve(sentinel, last.ok()?));
            let reported: Vec<ReportedMaster> = zip(&self.addresses, answers).map(resolve).collect();
            let Some(master) = majority(&reported) else { continue };
            // Only once it accepts checks: charges at the old master are better than failing checks.
            if pool.connects_to_other(master)
                && let Err(failure) = pool.try_checks(master).await
            {
                let failure = failure.to_string();
                if logged.as_ref() != Some(&failure) {
                    warn!(
                        master = self.master, to = %master, error = failure,
                        "Sentinels report another master that does not accept checks: the previous one stays in use"
                    );
                    logged = Some(failure);
                }
                continue;
            }
            logged = None;
            self.prefer_sentinel_of(&reported, master);
            self.disconnect_others(master, pool);
        }
    }

    /// Ends the connections to all other servers.
    pub(super) fn disconnect_others(&self, master: &Address, pool: &Pool) {
        for before in pool.disconnect_others(master) {
            info!(master = self.master, from = %before, to = %master, "connections go to the new master");
        }
    }

    /// Starts the next look-ups with a Sentinel that reports `master`.
    fn prefer_sentinel_of(&self, reported: &[ReportedMaster], master: &Address) {
        let names = |index: usize| reported.get(index).and_then(Option::as_ref) == Some(master);
        if !names(self.first.load(Ordering::Relaxed))
            && let Some(index) = (0..reported.len()).find(|index| names(*index))
        {
            self.first.store(index, Ordering::Relaxed);
        }
    }

    fn log_silence(&self, answers: &[LastAnswer], silent: &mut u32) {
        let (master, of, answered) = (&self.master, answers.len(), answers.iter().flatten().count());
        if 2 * answered > of {
            if *silent >= SILENT_ROUNDS {
                info!(master, answered, "enough Sentinels answer again");
            }
            *silent = 0;
            return;
        }
        *silent = silent.saturating_add(1);
        if is_logged(*silent) {
            let failure = answers.iter().find_map(|last| last.as_ref().err()?.as_ref());
            warn!(
                master,
                answered,
                of,
                error = failure.map(tracing::field::display),
                "too few Sentinels answer: a master that is replaced would not be noticed"
            );
        }
    }
}

/// Whether that many rounds with too few answers are logged.
fn is_logged(silent: u32) -> bool {
    silent.checked_sub(SILENT_ROUNDS).is_some_and(|further| further.is_multiple_of(ROUNDS_IN_A_MINUTE))
}

/// Returns the master reported by more than half of the Sentinels.
fn majority(reported: &[ReportedMaster]) -> Option<&Address> {
    let count = |named: &Address| reported.iter().flatten().filter(|other| *other == named).count();
    reported.iter().flatten().find(|named| 2 * count(named) > reported.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(ports: &[u16]) -> Vec<ReportedMaster> {
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
            assert_eq!(majority(&reported(ports)).cloned(), reported(&[named]).remove(0), "{ports:?}");
        }
    }

    #[test]
    fn silence_is_logged_after_two_seconds_and_each_minute() {
        let seconds: Vec<_> = (0..1_000).filter(|silent| is_logged(*silent)).map(|silent| silent / 4).collect();
        assert_eq!(seconds, [2, 62, 122, 182, 242]);
    }
}
