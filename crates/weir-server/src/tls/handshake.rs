//! An encrypted port: handshakes, bounded in number and time, and certificates that may stop being accepted.

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

/// How long a wait for the end of a certificate lasts before the clock is read again: it may have been set meanwhile.
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

/// The clients that a service knows by their certificates.
pub trait Clients: Send + Sync {
    /// Told whenever [`Clients::knows`] may say something else.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Whether a client has a certificate that says this.
    fn knows(&self, bearer: &Bearer) -> bool;
}

/// Why a handshake failed, as the label of its counter.
fn reason(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented) => "certificate",
        Some(_) => "protocol",
        None => "closed",
    }
}

impl Tls {
    /// With these files, as they were loaded.
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

    /// The configuration in force.
    pub fn loaded(&self) -> Arc<Loaded> {
        self.loaded.load_full()
    }

    /// Replaces the configuration for new connections; connections that it no longer accepts are closed.
    pub fn replace(&self, loaded: Loaded) {
        self.meter.in_force(loaded.end);
        self.loaded.store(Arc::new(loaded));
        self.changes.send_replace(());
    }

    /// Counts and tells what the files of this port do.
    pub fn meter(&self) -> &TlsMeter {
        &self.meter
    }

    /// Waits until the certificate of a connection is not accepted any more: it has ended, those who vouch for clients have
    /// changed and do not vouch for it, or its name belongs to no client any more.
    pub(crate) async fn until_revoked(&self, shown: Shown, clients: Option<&dyn Clients>, listener: &str) {
        let bearer = Arc::clone(&shown.bearer);
        let why = shown.lost(self, clients).await;
        info!(listener, certificate = %bearer, why, "connection closed: the client certificate is no longer accepted");
        self.meter.revoked.increment(1);
    }

    /// The slot of a handshake. Taken as connections are accepted and not as their threads come to them, so that the oldest is
    /// the one that has been silent for longest.
    ///
    /// # Errors
    /// [`Full`], which those that are evicted do not lead to: connections are bounded.
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

/// The certificate that a client has shown.
pub(crate) struct Shown {
    chain: Vec<CertificateDer<'static>>,
    /// Its names and expiry.
    pub(crate) bearer: Arc<Bearer>,
    let_in_by: Arc<Loaded>,
}

impl Shown {
    fn new(chain: Vec<CertificateDer<'static>>, let_in_by: Arc<Loaded>) -> Option<Self> {
        // One that cannot be read was not let in.
        let bearer = Arc::new(Bearer::of(chain.first()?).ok()?);
        Some(Self { chain, bearer, let_in_by })
    }

    /// Waits until it is not accepted any more, and tells why.
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
