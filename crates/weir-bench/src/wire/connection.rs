//! A shared connection that reconnects.

use std::{future::poll_fn, sync::Arc, time::Duration};

use bytes::Bytes;
use h2::{SendStream, client::ResponseFuture};
use hyper::Request;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    super::pacing::Stop,
    dial::{Connection, Sender, Target},
};

/// Pause before each attempt to reconnect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that broke.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Number of lost connections.
    pub count: u64,
    /// Reason why the last one broke, or could not be reopened.
    pub last: String,
}

/// Lost connections of all threads.
pub(crate) type Losses = Arc<Mutex<Lost>>;

/// A caller's handle of a shared connection.
#[derive(Clone)]
pub(crate) struct SharedConnection {
    connection: watch::Receiver<Option<Sender>>,
    /// The connection in use; `None` once it broke.
    sender: Option<Sender>,
    stop: Stop,
}

impl SharedConnection {
    /// Shares an open connection. The future drives and reopens it; it must be polled, and never ends.
    pub(crate) fn new(
        target: Arc<Target>,
        (sender, connection): (Sender, Connection),
        losses: Losses,
        stop: Stop,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (known, receiver) = watch::channel(Some(sender.clone()));
        (Self { connection: receiver, sender: Some(sender), stop }, drive(target, connection, known, losses))
    }

    /// Waits until a call can be sent. `false`: the load ended first.
    pub(crate) async fn is_ready(&mut self) -> bool {
        loop {
            match &mut self.sender {
                Some(sender) => tokio::select! {
                    biased;
                    ready = poll_fn(|context| sender.poll_ready(context)) => match ready {
                        Ok(()) => return true,
                        Err(_) => self.sender = None,
                    },
                    () = self.stop.wait() => return false,
                },
                None => tokio::select! {
                    biased;
                    () = self.stop.wait() => return false,
                    changed = self.connection.changed() => {
                        if changed.is_err() {
                            return false;
                        }
                        self.sender = self.connection.borrow_and_update().clone();
                    }
                },
            }
        }
    }

    /// Starts a call. `None`: the connection is broken and nothing was sent.
    pub(crate) fn start(&mut self, head: Request<()>) -> Option<(ResponseFuture, SendStream<Bytes>)> {
        let started = self.sender.as_mut()?.send_request(head, false).ok();
        if started.is_none() {
            self.sender = None;
        }
        started
    }
}

/// Drives a connection, reopens it when it breaks, and publishes each new one.
async fn drive(target: Arc<Target>, mut connection: Connection, known: watch::Sender<Option<Sender>>, losses: Losses) {
    loop {
        let end = connection.await;
        known.send_replace(None);
        {
            let mut lost = losses.lock();
            lost.count += 1;
            lost.last = end.err().map_or_else(|| "the service closed it".to_owned(), |error| error.to_string());
        }
        connection = loop {
            tokio::time::sleep(RECONNECT_PAUSE).await;
            match target.dial().await {
                Ok((sender, connection)) => {
                    known.send_replace(Some(sender));
                    break connection;
                }
                Err(cause) => losses.lock().last = cause,
            }
        };
    }
}
