//! Promotions, as announced by the Sentinel that carries them out. From then on charges at the old master are lost, but
//! Sentinels keep reporting it for about a second. Checks are therefore paused until the new master accepts them.

use std::time::Duration;

use deadpool_redis::redis::{PushInfo, PushKind, aio::MultiplexedConnection, from_redis_value_ref};
use tokio::{
    pin,
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use tracing::warn;
use weir_telemetry::Causes;

use super::{Sentinels, of_sentinel};
use crate::{
    Failure,
    redis::{
        connector::{Connector, Purpose},
        manager::Connection,
        pool::Pool,
        retry::retried,
    },
    url::Address,
};

/// The channel on which the Sentinel that leads a failover, planned or not, publishes when it sends `REPLICAOF NO ONE`
/// to the replica.
const CHANNEL: &str = "+failover-state-wait-promotion";
/// Time for a replica to become the master. After that, polling the Sentinels finds it.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which the new master replaces the old one in a Sentinel's answers: afterwards all Sentinels know of the
/// promotion, or have reverted it.
const AGREED_AFTER: Duration = Duration::from_secs(10);

/// A replica that replaces its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Promotion {
    from: Address,
    to: Address,
}

/// A promotion that was followed.
#[derive(Debug)]
pub(super) struct FollowedPromotion {
    promotion: Promotion,
    until: Instant,
    /// Sentinels that have reported the new master. If one reports the old one later, that is the master again.
    known_to: Vec<Address>,
}

impl Promotion {
    /// Parses `slave NAME HOST PORT @ MASTER HOST PORT`; `None` if it concerns another master.
    fn read(push: &PushInfo, master: &str) -> Option<Self> {
        let (PushKind::Message, [_, message]) = (&push.kind, &push.data[..]) else { return None };
        let message: String = from_redis_value_ref(message).ok()?;
        let words: Vec<_> = message.split(' ').collect();
        let &[_, _, to, to_port, "@", name, from, from_port] = &words[..] else { return None };
        let address = |host: &str, port: &str| Some(Address::Tcp { host: host.to_owned(), port: port.parse().ok()? });
        let promotion = Self { from: address(from, from_port)?, to: address(to, to_port)? };
        (name == master).then_some(promotion)
    }
}

impl Sentinels {
    /// Records that a Sentinel reported this server as the master.
    pub(super) fn record_report(&self, sentinel: &Address, named: &Address) {
        if let Some(FollowedPromotion { promotion, known_to, .. }) = &mut *self.followed_promotion.lock()
            && promotion.to == *named
            && !known_to.contains(sentinel)
        {
            known_to.push(sentinel.clone());
        }
    }

    /// Resolves the master that a Sentinel reports, since it may not know of a followed promotion yet.
    pub(super) fn resolve(&self, sentinel: &Address, named: Address) -> Address {
        match &*self.followed_promotion.lock() {
            Some(FollowedPromotion { promotion, until, known_to })
                if promotion.from == named && Instant::now() < *until && !known_to.contains(sentinel) =>
            {
                promotion.to.clone()
            }
            _ => named,
        }
    }

    /// Discards a followed promotion to this server, which is a replica.
    pub(super) fn demoted(&self, server: &Address) {
        let mut followed = self.followed_promotion.lock();
        if followed.as_ref().is_some_and(|followed| followed.promotion.to == *server) {
            *followed = None;
        }
    }

    /// Connects to a Sentinel, and sends the promotions of the master to `announce` if the user may subscribe.
    pub(super) async fn subscribed(
        &self,
        sentinel: &Address,
        announce: &mpsc::Sender<Promotion>,
        deadline: Instant,
    ) -> Result<(Connection, Result<(), Failure>), Failure> {
        let (announce, master) = (announce.clone(), self.master.clone());
        let config = Connector::config().set_push_sender(move |push: PushInfo| match Promotion::read(&push, &master) {
            Some(promotion) => announce.try_send(promotion),
            None => Ok(()),
        });
        let connect = self.connector.connect_with(sentinel, Purpose::Sentinel, config, deadline);
        let connection = connect.await.map_err(|failure| of_sentinel(sentinel, failure))?;
        let mut subscriber = MultiplexedConnection::clone(&connection);
        let subscribed = match timeout_at(deadline, subscriber.subscribe(CHANNEL)).await {
            Ok(subscribed) => subscribed.map_err(|error| self.connector.connection_failure(sentinel, error)),
            Err(_) => Err(Failure::Late),
        };
        Ok((connection, subscribed))
    }

    /// Follows promotions of the master of `pool`. Checks are paused for at most `pause`, until the new master accepts
    /// them.
    pub(super) async fn follow(&self, mut announced: mpsc::Receiver<Promotion>, pool: &Pool, pause: Duration) {
        while let Some(promotion) = announced.recv().await {
            // If no connection leads to either server, the Sentinel watches another master. If this failover reverts
            // the previous one, connections may already lead to the new master, and it must be followed all the same,
            // because Sentinels still report the old one.
            if pool.connects_to_neither(&[&promotion.from, &promotion.to]) {
                continue;
            }
            let takes_checks = retried(Instant::now() + TRIAL_TIMEOUT, || pool.try_checks(&promotion.to));
            pin!(takes_checks);
            let mut paused = Some(pool.pause_checks().await);
            let promoted = match timeout(pause, &mut takes_checks).await {
                Ok(promoted) => promoted,
                Err(_) => {
                    paused = None;
                    takes_checks.await
                }
            };
            match promoted {
                Ok(()) => self.switch_to(&promotion, pool),
                Err(failure) => warn!(
                    master = self.master, to = %promotion.to, error = %Causes(&failure),
                    "a Sentinel promotes a replica that does not accept checks: the previous master stays in use"
                ),
            }
            drop(paused);
        }
    }

    fn switch_to(&self, promotion: &Promotion, pool: &Pool) {
        let until = Instant::now() + AGREED_AFTER;
        *self.followed_promotion.lock() =
            Some(FollowedPromotion { promotion: promotion.clone(), until, known_to: Vec::new() });
        self.disconnect_others(&promotion.to, pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadpool_redis::redis::Value;

    fn push(kind: PushKind, message: &str) -> PushInfo {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        PushInfo { kind, data: vec![text(CHANNEL), text(message)] }
    }

    #[test]
    fn an_event_names_both_servers() {
        let message = "slave 10.0.0.2:6380 10.0.0.2 6380 @ main 10.0.0.1 6379";
        let address = |host: &str, port| Address::Tcp { host: host.to_owned(), port };
        let promotion = Promotion { from: address("10.0.0.1", 6379), to: address("10.0.0.2", 6380) };
        assert_eq!(Promotion::read(&push(PushKind::Message, message), "main"), Some(promotion));
        for (kind, message, master) in [
            (PushKind::Message, message, "other"),
            (PushKind::Subscribe, message, "main"),
            (PushKind::Message, "master main 10.0.0.1 6379", "main"),
            (PushKind::Message, "slave x 10.0.0.2 port @ main 10.0.0.1 6379", "main"),
            (PushKind::Message, "", "main"),
        ] {
            assert_eq!(Promotion::read(&push(kind, message), master), None, "{message}");
        }
    }
}
