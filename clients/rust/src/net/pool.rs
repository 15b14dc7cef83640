use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{Connection, Dialer, Target, target::Location};
use crate::{Error, error::CLOSED};

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Names are resolved again this often, and soon after a connection was lost: their servers may have moved.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
const RESOLVE_AFTER_LOSS: Duration = Duration::from_secs(1);

/// One connection to each server of a target, kept open in the background; calls go to those that are open in turn.
pub(crate) struct Pool {
    peers: watch::Receiver<Peers>,
    turn: AtomicUsize,
}

#[derive(Default)]
struct Peers {
    list: Vec<(Location, State)>,
    /// Why there are none.
    unresolved: Option<String>,
}

enum State {
    /// To be open soon.
    Opening,
    Open(Connection),
    /// The last attempt failed. It is tried again.
    Failed(String),
}

/// Where this call has failed: another server is asked first, since a dying one may still accept connections.
pub(crate) struct Avoid {
    pub(crate) connection: Connection,
    /// It is of no more use, which its state may not show yet.
    pub(crate) lost: bool,
}

impl Pool {
    /// Starts to connect, in tasks that end with the set.
    pub(crate) fn open(target: Target, dialer: Dialer, tasks: &mut JoinSet<()>) -> Self {
        let (sender, peers) = watch::channel(Peers::default());
        tasks.spawn(keep(target, Arc::new(dialer), Arc::new(sender)));
        Self { peers, turn: AtomicUsize::new(0) }
    }

    /// A connection for a call, another one than that to avoid if there is any. Waits while all are being opened.
    pub(crate) async fn ready(&self, avoid: Option<&Avoid>) -> Result<Connection, Error> {
        if let Some(picked) = self.pick(&self.peers.borrow(), avoid) {
            return picked;
        }
        let mut peers = self.peers.clone();
        peers.mark_changed();
        loop {
            peers.changed().await.map_err(|_| Error::closed())?;
            if let Some(picked) = self.pick(&peers.borrow_and_update(), avoid) {
                return picked;
            }
        }
    }

    /// The next connection that is open, or why there is none; `None`: one is being opened.
    fn pick(&self, peers: &Peers, avoid: Option<&Avoid>) -> Option<Result<Connection, Error>> {
        let (mut second_best, mut opening, mut failed) = (None, false, peers.unresolved.as_ref());
        let start = self.turn.fetch_add(1, Relaxed);
        for at in 0..peers.list.len() {
            let (location, state) = &peers.list[start.wrapping_add(at) % peers.list.len()];
            match state {
                State::Open(connection) if connection.is_closed() => opening = true,
                State::Open(connection) => match avoid.filter(|avoid| avoid.connection.location() == location) {
                    None => return Some(Ok(connection.clone())),
                    Some(avoid) if avoid.lost && avoid.connection.id() == connection.id() => opening = true,
                    Some(_) => second_best = Some(connection),
                },
                State::Opening => opening = true,
                State::Failed(why) => failed = Some(why),
            }
        }
        match (second_best, failed) {
            (Some(connection), _) => Some(Ok(connection.clone())),
            (None, Some(why)) if !opening => Some(Err(Error::Unavailable(why.clone()))),
            _ => None,
        }
    }
}

/// Forgets all connections when the tasks of a pool end, so that they close.
struct Closing(Arc<watch::Sender<Peers>>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.send_replace(Peers { list: Vec::new(), unresolved: Some(CLOSED.to_owned()) });
    }
}

/// Resolves the target, and connects to what is found.
async fn keep(target: Target, dialer: Arc<Dialer>, peers: Arc<watch::Sender<Peers>>) {
    let _closing = Closing(Arc::clone(&peers));
    let mut connecting = HashMap::new();
    let mut tasks = JoinSet::new();
    let mut losses = peers.subscribe();
    loop {
        match target.resolve().await {
            Ok(found) => {
                connecting.retain(|location, task: &mut tokio::task::AbortHandle| {
                    let stays = found.contains(location);
                    if !stays {
                        task.abort();
                    }
                    stays
                });
                peers.send_modify(|peers| {
                    peers.unresolved = None;
                    peers.list.retain(|(location, _)| found.contains(location));
                    let new = found.iter().filter(|location| !connecting.contains_key(*location));
                    peers.list.extend(new.map(|location| (location.clone(), State::Opening)));
                });
                for location in found {
                    connecting
                        .entry(location.clone())
                        .or_insert_with(|| tasks.spawn(connect(location, Arc::clone(&dialer), Arc::clone(&peers))));
                }
            }
            Err(error) => peers.send_modify(|peers| peers.unresolved = Some(error.to_string())),
        }
        while tasks.try_join_next().is_some() {}
        if !target.has_names() {
            // Nothing ends by itself, and nothing changes.
            return std::future::pending().await;
        }
        sleep(RESOLVE_AFTER_LOSS).await;
        let lost = losses.wait_for(|peers| {
            peers.list.is_empty() || peers.list.iter().any(|(_, state)| !matches!(state, State::Open(_)))
        });
        // Its error would be the end of `peers`, which is held here.
        let _ = tokio::time::timeout(RESOLVE_INTERVAL, lost).await;
    }
}

/// Keeps a connection to one server.
async fn connect(location: Location, dialer: Arc<Dialer>, peers: Arc<watch::Sender<Peers>>) {
    let set = |state| {
        peers.send_modify(|peers| {
            if let Some(peer) = peers.list.iter_mut().find(|(other, _)| *other == location) {
                peer.1 = state;
            }
        });
    };
    let mut backoff = BACKOFF_MIN;
    loop {
        let since = Instant::now();
        match dialer.connect(&location).await {
            Ok((connection, driver)) => {
                set(State::Open(connection));
                driver.await;
                set(State::Opening);
                // A server that closes each connection at once is as good as down.
                if since.elapsed() >= BACKOFF_MAX {
                    backoff = BACKOFF_MIN;
                    continue;
                }
            }
            Err(why) => {
                tracing::debug!(error = why, "no connection");
                set(State::Failed(why));
            }
        }
        sleep(backoff.mul_f64(rand::random_range(0.8..1.0))).await;
        backoff = BACKOFF_MAX.min(backoff.mul_f64(1.6));
    }
}
