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
    time::{Instant, sleep, timeout_at},
};

use super::{Connection, Dialer, Target, target::Location};
use crate::Error;

const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Intervals between name resolutions: regular, and after a connection was lost, when the server may have moved.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
const RESOLVE_AFTER_LOSS: Duration = Duration::from_secs(1);
/// Time to wait for another connection before a server that may be shutting down is used again.
const AVOID_FOR: Duration = Duration::from_millis(20);

/// One connection to each server of a target, kept open in the background; calls use the open ones round-robin.
pub(crate) struct Pool {
    peers: watch::Receiver<Peers>,
    turn: AtomicUsize,
}

#[derive(Default)]
struct Peers {
    list: Vec<(Location, State)>,
    /// The error of the last name resolution.
    unresolved: Option<String>,
    /// Whether the client is closed.
    is_closed: bool,
}

enum State {
    /// A connection attempt is in progress or due.
    Opening,
    Open(Connection),
    /// The last attempt failed. It is retried.
    Failed(String),
}

/// The connection on which this call failed. Another server is preferred, since one that shuts down may still accept
/// connections.
pub(crate) struct Avoid {
    pub(crate) connection: Connection,
    /// Whether the connection is unusable, even if its state does not show that yet.
    pub(crate) lost: bool,
}

impl Pool {
    /// Starts to connect, in tasks that end with the set.
    pub(crate) fn open(target: Target, dialer: Dialer, tasks: &mut JoinSet<()>) -> Self {
        let (sender, peers) = watch::channel(Peers::default());
        tasks.spawn(keep(target, Arc::new(dialer), Arc::new(sender)));
        Self { peers, turn: AtomicUsize::new(0) }
    }

    /// Returns a connection for a call, preferably not the one to avoid. Waits while all are being opened. If none can
    /// be opened, a first attempt fails, and a retry waits for one.
    pub(crate) async fn ready(&self, avoid: Option<&Avoid>, is_retry: bool) -> Result<Connection, Error> {
        let is_final = |picked: &_| !is_retry || !matches!(picked, Err(Error::Unavailable(_)));
        if let Some(picked) = self.pick(&self.peers.borrow(), avoid, true).filter(is_final) {
            return picked;
        }
        let until = Instant::now() + AVOID_FOR;
        let mut peers = self.peers.clone();
        let mut is_patient = true;
        loop {
            if let Some(picked) = self.pick(&peers.borrow_and_update(), avoid, is_patient).filter(is_final) {
                return picked;
            }
            let changed = if is_patient { timeout_at(until, peers.changed()).await } else { Ok(peers.changed().await) };
            match changed {
                Ok(changed) => changed.map_err(|_| Error::closed())?,
                Err(_) => is_patient = false,
            }
        }
    }

    /// Returns the next open connection, or the reason why there is none; `None` while one is being opened. With
    /// `is_patient` the one to avoid is not returned while another one is being opened.
    fn pick(&self, peers: &Peers, avoid: Option<&Avoid>, is_patient: bool) -> Option<Result<Connection, Error>> {
        if peers.is_closed {
            return Some(Err(Error::closed()));
        }
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
            (Some(connection), _) if !opening || !is_patient => Some(Ok(connection.clone())),
            (None, Some(why)) if !opening => Some(Err(Error::Unavailable(why.clone()))),
            _ => None,
        }
    }
}

/// Drops all connections when the tasks of a pool end, so that they close.
struct Closing(Arc<watch::Sender<Peers>>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.send_replace(Peers { is_closed: true, ..Peers::default() });
    }
}

/// Resolves the target and connects to each address.
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
            // The tasks never end, and the addresses never change.
            return std::future::pending().await;
        }
        sleep(RESOLVE_AFTER_LOSS).await;
        let lost = losses.wait_for(|peers| {
            peers.list.is_empty() || peers.list.iter().any(|(_, state)| !matches!(state, State::Open(_)))
        });
        // `wait_for` fails only without a sender, and `peers` is one.
        let _ = tokio::time::timeout(RESOLVE_INTERVAL, lost).await;
    }
}

/// Keeps a connection to one server open.
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
                // A server that closes each connection immediately counts as down.
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

#[cfg(test)]
mod tests {
    use hyper::client::conn::http2::handshake;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tower_service::Service as _;

    use super::*;
    use crate::call::Failure;

    fn location(server: usize) -> Location {
        Location::Unix(std::path::Path::new(&format!("/run/{server}.sock")).into())
    }

    /// Opens a connection that lasts until the returned end of it is dropped.
    async fn connection(server: usize) -> (Connection, tokio::io::DuplexStream) {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(near)).await.expect("a connection");
        let (connection, closing) =
            Connection::new(location(server), sender, "http://localhost".parse().expect("a URI"));
        tokio::spawn(async move {
            let _closing = closing;
            driver.await
        });
        (connection, far)
    }

    fn picked(states: Vec<State>, avoid: &Avoid, is_patient: bool) -> Option<Result<u64, Error>> {
        let list = states.into_iter().enumerate().map(|(server, state)| (location(server), state)).collect();
        let (_, peers) = watch::channel(Peers::default());
        let pool = Pool { peers, turn: AtomicUsize::new(0) };
        let picked = pool.pick(&Peers { list, ..Peers::default() }, Some(avoid), is_patient);
        picked.map(|picked| picked.map(|connection| connection.id()))
    }

    #[tokio::test]
    async fn an_avoided_server_is_used_when_there_is_no_other() {
        let ((ending, _far), (other, _other_far)) = (connection(0).await, connection(1).await);
        let avoid = |lost| Avoid { connection: ending.clone(), lost };
        let open = || State::Open(ending.clone());
        let down = || State::Failed("down".to_owned());
        assert_eq!(picked(vec![open(), State::Open(other.clone())], &avoid(false), true), Some(Ok(other.id())));
        assert_eq!(picked(vec![open(), State::Opening], &avoid(false), true), None);
        assert_eq!(picked(vec![open(), State::Opening], &avoid(false), false), Some(Ok(ending.id())));
        assert_eq!(picked(vec![open(), down()], &avoid(false), true), Some(Ok(ending.id())));
        assert_eq!(picked(vec![open()], &avoid(false), true), Some(Ok(ending.id())));
        assert_eq!(picked(vec![open(), down()], &avoid(true), true), None);
        assert_eq!(picked(vec![down(), down()], &avoid(true), true), Some(Err(Error::Unavailable("down".to_owned()))));
    }

    /// Each round has calls at the moment when the connection's task ends.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_call_that_meets_the_end_of_its_connection_is_answered() {
        for _ in 0..1_000 {
            let (connection, far) = connection(0).await;
            let mut callers = JoinSet::new();
            for _ in 0..4 {
                let mut connection = connection.clone();
                callers.spawn(async move {
                    let calls: Vec<_> = (0..100).map(|_| connection.call(http::Request::default())).collect();
                    for call in calls {
                        let status = call.await.expect_err("no server");
                        assert!(Failure::from(status).lost);
                    }
                });
            }
            drop(far);
            let all = tokio::time::timeout(Duration::from_secs(60), callers.join_all()).await;
            all.expect("an answer to each call");
        }
    }
}
