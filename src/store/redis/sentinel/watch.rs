//! Whether the master is still the same, while connections to it stand.

use std::{sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout_at};
use tracing::{info, warn};

use super::Sentinels;
use crate::store::{
    Failure,
    redis::{
        connection::Connection,
        dial::{Dialer, Purpose},
        run::{self, ProbeKey},
    },
    url::Address,
};

/// Between two questions to a Sentinel. For about so long a master that is replaced while it lives goes on taking checks after
/// the other is named, and what they charge is lost.
const PAUSE: Duration = Duration::from_millis(250);
/// Rounds in a row in which too few answer, before that is told.
const SILENT_ROUNDS: u32 = 8;

/// What a Sentinel said last; `None`: it did not answer.
type Said = Option<Address>;

impl Sentinels {
    /// Asks all Sentinels for ever who the master is, and ends the connections to every other one once more than half of them
    /// name the same and it takes checks: whoever fails over a master that lives (`SENTINEL FAILOVER`) leaves it writable for
    /// about ten seconds, and a Sentinel that was cut off may name it for longer.
    pub async fn watch(&self, dialer: &Dialer, probe_key: &ProbeKey) {
        let said: Vec<_> = self.addresses.iter().map(|_| Mutex::default()).collect();
        let asked = self.addresses.iter().zip(&said).map(|(sentinel, said)| self.listen(sentinel, dialer, said));
        tokio::join!(join_all(asked), self.judge(&said, dialer, probe_key));
    }

    /// Asks one.
    async fn listen(&self, sentinel: &Address, dialer: &Dialer, said: &Mutex<Said>) {
        let mut kept = None;
        loop {
            let answer = self.ask_again(&mut kept, sentinel, dialer).await;
            *said.lock() = answer.ok();
            sleep(PAUSE).await;
        }
    }

    /// Asks by the connection of the last time, if that is good for it.
    async fn ask_again(
        &self,
        kept: &mut Option<Connection>,
        sentinel: &Address,
        dialer: &Dialer,
    ) -> Result<Address, Failure> {
        let deadline = dialer.deadline();
        let usable = kept.take().and_then(|mut connection| connection.is_usable().then_some(connection));
        let mut connection = match usable {
            Some(connection) => connection,
            None => dialer.dial_sentinel(sentinel, deadline).await?,
        };
        let master = self.ask(&mut connection, sentinel, deadline).await?;
        *kept = Some(connection);
        Ok(master)
    }

    async fn judge(&self, said: &[Mutex<Said>], dialer: &Dialer, probe_key: &ProbeKey) {
        let (mut silent, mut told) = (0, None);
        loop {
            sleep(PAUSE).await;
            let said: Vec<Said> = said.iter().map(|said| said.lock().clone()).collect();
            self.tell_of_silence(&said, &mut silent);
            let Some(master) = majority(&said) else { continue };
            if !self.led.lock().terms.iter().any(|(led, _)| led != master) {
                told = None;
                self.ask_first(&said, master);
                continue;
            }
            // Not before it takes checks: those that go to the old one are worth more than those that go nowhere.
            match takes_checks(master, dialer, probe_key).await {
                Ok(()) => {
                    self.ask_first(&said, master);
                    for before in self.led.lock().only_to(master) {
                        info!(master = self.master, from = %before, to = %master, "connections lead to the master that Sentinels name now");
                    }
                }
                Err(failure) => {
                    let failure = failure.to_string();
                    if told.as_ref() != Some(&failure) {
                        warn!(
                            master = self.master, to = %master, error = failure,
                            "the Sentinels name another master, which takes no checks: they go on where they went"
                        );
                        told = Some(failure);
                    }
                }
            }
        }
    }

    /// Has connections be led by one of those who name the `master`.
    fn ask_first(&self, said: &[Said], master: &Address) {
        let names = |index: usize| said.get(index).and_then(Option::as_ref) == Some(master);
        if !names(self.first.load(Ordering::Relaxed))
            && let Some(index) = (0..said.len()).find(|index| names(*index))
        {
            self.first.store(index, Ordering::Relaxed);
        }
    }

    fn tell_of_silence(&self, said: &[Said], silent: &mut u32) {
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

/// Whom more than half name.
fn majority(said: &[Said]) -> Option<&Address> {
    let count = |named: &Address| said.iter().flatten().filter(|other| *other == named).count();
    said.iter().flatten().find(|named| 2 * count(named) > said.len())
}

async fn takes_checks(master: &Address, dialer: &Dialer, probe_key: &ProbeKey) -> Result<(), Failure> {
    let deadline = dialer.deadline();
    let mut connection = dialer.dial_by(master, Purpose::Checks, deadline).await?;
    let tried = timeout_at(deadline, run::probe(&mut connection, &probe_key.get())).await;
    tried.unwrap_or_else(|_| Err(Failure::Lost("no reply in time".into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(ports: &[u16]) -> Vec<Said> {
        let address = |port: &u16| Address::Tcp { host: "h".to_owned(), port: *port };
        ports.iter().map(|port| (*port > 0).then(|| address(port))).collect()
    }

    #[test]
    fn more_than_half_of_all_must_agree() {
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
