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

/// Interval for checking whether servers are healthy again.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
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
        loop {
            self.charges.wait().await;
            sleep(POLL_INTERVAL).await;
            for shard in self.charges.shards() {
                let due = self.charges.due(shard, |anchor| self.io.servers.serves(|| self.key(anchor)));
                stream::iter(due).for_each_concurrent(MAX_IN_FLIGHT, |name| self.charge(shard, name)).await;
            }
        }
    }

    fn key(&self, anchor: &[u8]) -> Vec<u8> {
        [&self.prefix[..], anchor].concat()
    }

    async fn charge(&self, shard: usize, name: Box<[u8]>) {
        let Some(due) = self.charges.take(shard, name) else { return };
        let (deadline, units) = (self.io.deadline(), due.units());
        let part = || Part::outage_charge(&due, units, &self.prefix, self.io.servers.time());
        match self.io.servers.charge(&self.key(due.anchor()), deadline, part).await {
            Ok(decided) => self.charges.charged(&due, decided.charged),
            Err(failure) => self.failed(due, &failure),
        }
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
