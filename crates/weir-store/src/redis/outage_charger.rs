//! Charges units admitted during an outage to the servers once they are healthy, a few levels in each round trip along
//! with the checks.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::sleep;
use tracing::debug;
use weir_telemetry::Causes;

use super::{encode::Part, io::Io};
use crate::{
    Failure,
    failure::ErrorCode,
    outage_charges::{ChargeOutcome, Due, OutageCharges},
};

/// Interval for checking whether servers are healthy again, and the longest, to which it grows while charges fail.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Most levels in flight: a small part of a round trip's work.
const MAX_IN_FLIGHT: usize = 64;

/// The background task that charges them.
pub(super) struct OutageCharger {
    pub charges: Arc<OutageCharges>,
    /// A charge has the timeout of a check.
    pub io: Io,
    /// Prefix of all Redis keys.
    pub prefix: Arc<[u8]>,
}

impl OutageCharger {
    /// Runs until aborted.
    pub(super) async fn run(self) {
        let mut interval = POLL_INTERVAL;
        loop {
            self.charges.wait().await;
            sleep(interval).await;
            let mut failed = false;
            for shard in self.charges.shards() {
                let due = self.charges.due(shard, |anchor| self.io.servers.serves(|| self.key(anchor)));
                let charges = stream::iter(due).map(|name| self.charge(shard, name)).buffer_unordered(MAX_IN_FLIGHT);
                failed |= charges.fold(false, async |failed, charged| failed | !charged).await;
            }
            // Such as those of a Cluster's slot that is not served, while the breaker of its master is closed.
            interval = if failed { MAX_POLL_INTERVAL.min(2 * interval) } else { POLL_INTERVAL };
        }
    }

    fn key(&self, anchor: &[u8]) -> Vec<u8> {
        [&self.prefix[..], anchor].concat()
    }

    /// Charges a level's units, and returns whether the attempt succeeded, or they are there no more.
    async fn charge(&self, shard: usize, name: Box<[u8]>) -> bool {
        let Some(due) = self.charges.take(shard, name) else { return true };
        let (deadline, units) = (self.io.deadline(), due.units());
        let part = || Part::outage_charge(&due, units, &self.prefix, self.io.servers.time());
        let charged = self.io.servers.charge(&self.key(due.anchor()), deadline, part).await;
        let is_charged = charged.is_ok();
        match charged {
            Ok(decided) => self.charges.charged(&due, decided.charged),
            Err(failure) => self.failed(due, &failure),
        }
        is_charged
    }

    fn failed(&self, due: Due, failure: &Failure) {
        debug!(error = %Causes(failure), "units admitted during an outage are not charged yet");
        // Keys that the server will not take together, it will not take later either.
        if failure.is_without_effect() && failure.error_code() != Some(ErrorCode::CrossSlot) {
            self.charges.put_back(due);
        } else {
            self.charges.give_up(&due, ChargeOutcome::Unknown);
        }
    }
}
