//! The TLS of a port: handshakes, bounded in number and time, and the revocation of client certificates.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwap;
use rustls::{Error as TlsError, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::sleep,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{debug, info, warn};

use weir_telemetry::LogLimit;

use super::{Bearer, ListenerTls, Loaded};
use crate::{
    metrics::TlsMeter,
    slots::{Full, Slot, Slots},
};

/// Maximum wait for the expiry of a certificate before the clock is read again, since it may have been set.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The TLS acceptor of a port.
pub struct Tls {
    loaded: ArcSwap<Loaded>,
    changes: watch::Sender<()>,
    handshakes: Arc<Slots>,
    timeout: Duration,
    meter: TlsMeter,
    warnings: LogLimit,
}

/// The clients that a service identifies by certificates.
pub trait Clients: Send + Sync {
    /// Returns a receiver that is notified whenever [`Clients::knows`] may have changed.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Whether a client has a certificate with this identity.
    fn knows(&self, bearer: &Bearer) -> bool;
}

/// Returns why a handshake failed, as the label of its counter.
fn reason(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented) => "certificate",
        Some(_) => "protocol",
        None => "closed",
    }
}

impl Tls {
    /// Makes the acceptor with the loaded files.
    pub fn new(settings: &ListenerTls, loaded: Loaded, meter: TlsMeter) -> Self {
        meter.in_force(loaded.end);
        Self {
            loaded: ArcSwap::from_pointee(loaded),
            changes: watch::Sender::new(()),
            handshakes: Slots::new(settings.max_handshakes, usize::MAX),
            timeout: settings.handshake_timeout.duration(),
            meter,
            warnings: LogLimit::default(),
        }
    }

    /// Returns the configuration in force.
    pub fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// Replaces the configuration for new connections; connections that it no longer accepts are closed.
    pub fn replace(&self, loaded: Loaded) {
        self.meter.in_force(loaded.end);
        self.loaded.store(Arc::new(loaded));
        self.changes.send_replace(());
    }

    /// Returns the metrics of the TLS files and handshakes.
    pub fn meter(&self) -> &TlsMeter {
        &self.meter
    }

    /// Waits until the certificate of a connection is no longer accepted: it has expired, the CA bundle has changed and
    /// does not verify it, or its name belongs to no client any more.
    pub(crate) async fn until_revoked(&self, shown: Shown, clients: Option<&dyn Clients>, listener: &str) {
        let bearer = Arc::clone(&shown.bearer);
        let why = shown.lost(self, clients).await;
        info!(listener, certificate = %bearer, why, "connection closed: the client certificate is no longer accepted");
        self.meter.revoked.increment(1);
    }

    /// Takes the slot of a handshake. It is taken when the connection is accepted, not when its worker begins to serve
    /// it, so that the oldest slot is the one that has been silent for longest.
    ///
    /// # Errors
    /// [`Full`]. Evicted slots do not cause it: connections are bounded.
    pub(crate) fn slot(&self) -> Result<Slot, Full> {
        self.handshakes.take(self.handshakes.owner(), 1)
    }

    /// Performs the handshake. `None`: it failed, which is logged and counted.
    pub(crate) async fn accept<I>(&self, slot: Slot, io: I, listener: &str) -> Option<(TlsStream<I>, Option<Shown>)>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let loaded = self.loaded();
        let accepted = tokio::select! {
            biased;
            accepted = TlsAcceptor::from(Arc::clone(&loaded.config)).accept(io) => {
                accepted.map_err(|error| (reason(&error), error.to_string()))
            }
            () = slot.evicted().cancelled() => Err(("evicted", "evicted: too many handshakes in progress".to_owned())),
            () = sleep(self.timeout) => Err(("timeout", "handshake timeout".to_owned())),
        };
        match accepted {
            Ok(stream) => {
                let chain = stream.get_ref().1.peer_certificates().filter(|chain| !chain.is_empty());
                let chain: Option<Vec<_>> =
                    chain.map(|chain| chain.iter().map(|one| one.clone().into_owned()).collect());
                let shown = chain.and_then(|chain| Shown::new(chain, loaded));
                Some((stream, shown))
            }
            Err((reason, error)) => {
                self.meter.failed(reason).increment(1);
                if matches!(reason, "certificate" | "evicted") && self.warnings.allows(Instant::now()) {
                    warn!(listener, %error, "a TLS handshake failed");
                } else {
                    debug!(listener, %error, "a TLS handshake failed");
                }
                None
            }
        }
    }
}

/// The certificate of a client, with the configuration that verified it.
pub(crate) struct Shown {
    chain: Vec<CertificateDer<'static>>,
    /// Its names and expiry.
    pub(crate) bearer: Arc<Bearer>,
    let_in_by: Arc<Loaded>,
}

impl Shown {
    fn new(chain: Vec<CertificateDer<'static>>, let_in_by: Arc<Loaded>) -> Option<Self> {
        // A certificate that cannot be parsed was not accepted.
        let bearer = Arc::new(Bearer::of(chain.first()?).ok()?);
        Some(Self { chain, bearer, let_in_by })
    }

    /// Waits until the certificate is no longer accepted, and returns why.
    async fn lost(mut self, tls: &Tls, clients: Option<&dyn Clients>) -> &'static str {
        let mut files = tls.changes.subscribe();
        let mut known_clients = clients.map(|clients| clients.changes());
        let bearer = Arc::clone(&self.bearer);
        let is_known = || clients.is_some_and(|clients| clients.knows(&bearer));
        let mut known = is_known();
        loop {
            let loaded = tls.loaded();
            if !loaded.lets_in_the_same(&self.let_in_by) && !loaded.lets_in(&self.chain) {
                return "no CA certificate verifies it any more";
            }
            self.let_in_by = loaded;
            if known && !is_known() {
                return "no client has it any more";
            }
            known = is_known();
            let Ok(left) = self.bearer.end.duration_since(SystemTime::now()) else { return "it has expired" };
            let changed = async {
                match &mut known_clients {
                    Some(known) => drop(known.changed().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The senders live as long as `tls` and `clients`.
                _ = files.changed() => {}
                () = changed => {}
                () = sleep(left.min(LONGEST_WAIT)) => {}
            }
        }
    }
}
