//! The TLS of a port: handshakes, bounded in number and time, and the revocation of client certificates.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwap;
use futures_util::future::OptionFuture;
use rustls::{AlertDescription as Alert, Error as TlsError, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::sleep,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{debug, info, warn};

use weir_telemetry::LogLimit;

use super::{CertificateIdentity, ListenerTls, TlsFiles};
use crate::{
    metrics::TlsMetrics,
    slots::{Full, Slot, Slots},
};

/// Maximum wait for the expiry of a certificate before the clock is read again, since it may have been set.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The TLS acceptor of a port.
pub struct Tls {
    files: ArcSwap<TlsFiles>,
    changes: watch::Sender<()>,
    handshakes: Arc<Slots>,
    timeout: Duration,
    metrics: TlsMetrics,
    /// Limits warnings about certificates: apart, so that a flood of evictions hides none.
    certificate_warnings: LogLimit,
    eviction_warnings: LogLimit,
    /// Limits lines about closed connections: a new CA bundle may close all.
    revocations: LogLimit,
}

/// The clients that a service identifies by certificates.
pub trait CertificateClients: Send + Sync {
    /// Returns a receiver that is notified whenever [`CertificateClients::knows`] may have changed.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Whether a client has a certificate with this identity.
    fn knows(&self, identity: &CertificateIdentity) -> bool;
}

/// Returns why a handshake failed, as the label of its counter.
fn reason(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented) => "certificate",
        // The client does not accept the server's.
        Some(TlsError::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA,
        )) => "certificate",
        Some(_) => "protocol",
        None => "closed",
    }
}

impl Tls {
    /// Makes the acceptor with these files.
    pub fn new(settings: &ListenerTls, files: TlsFiles, metrics: TlsMetrics) -> Self {
        metrics.in_force(files.end);
        Self {
            files: ArcSwap::from_pointee(files),
            changes: watch::Sender::new(()),
            handshakes: Slots::new(settings.max_handshakes, usize::MAX),
            timeout: settings.handshake_timeout.duration(),
            metrics,
            certificate_warnings: LogLimit::default(),
            eviction_warnings: LogLimit::default(),
            revocations: LogLimit::default(),
        }
    }

    /// Returns the current configuration.
    pub fn files(&self) -> Arc<TlsFiles> {
        self.files.load_full()
    }

    /// Replaces the configuration for new connections; connections that it no longer accepts are closed.
    pub fn replace(&self, files: TlsFiles) {
        self.metrics.in_force(files.end);
        self.files.store(Arc::new(files));
        self.changes.send_replace(());
    }

    /// Returns the metrics of the TLS files and handshakes.
    pub fn metrics(&self) -> &TlsMetrics {
        &self.metrics
    }

    /// Waits until the certificate of a connection is no longer accepted: it has expired, the CA bundle has changed and
    /// does not verify it, or no client has its name any more.
    pub(crate) async fn until_revoked(
        &self,
        certificate: ClientCertificate,
        clients: Option<&dyn CertificateClients>,
        listener: &str,
    ) {
        let identity = Arc::clone(&certificate.identity);
        let why = certificate.lost(self, clients).await;
        let message = "connection closed: the client certificate is no longer accepted";
        if self.revocations.allows(Instant::now()) {
            info!(listener, certificate = %identity, why, "{message}");
        } else {
            debug!(listener, certificate = %identity, why, "{message}");
        }
        self.metrics.revoked.increment(1);
    }

    /// Takes the slot of a handshake. It is taken when the connection is accepted, not when its worker starts to serve
    /// it, so that the oldest slot is the one that has been silent for longest.
    ///
    /// # Errors
    /// [`Full`]. Evicted slots do not cause it: connections are bounded.
    pub(crate) fn slot(&self) -> Result<Slot, Full> {
        self.handshakes.take(self.handshakes.owner(), 1)
    }

    /// Performs the handshake. `None`: it failed, which is logged and counted.
    pub(crate) async fn accept<I>(
        &self,
        slot: Slot,
        io: I,
        listener: &str,
    ) -> Option<(TlsStream<I>, Option<ClientCertificate>)>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let files = self.files();
        let accepted = tokio::select! {
            biased;
            accepted = TlsAcceptor::from(Arc::clone(&files.config)).accept(io) => {
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
                let certificate = chain.and_then(|chain| ClientCertificate::new(chain, files));
                Some((stream, certificate))
            }
            Err((reason, error)) => {
                self.metrics.failed(reason).increment(1);
                let warnings = match reason {
                    "certificate" => Some(&self.certificate_warnings),
                    "evicted" => Some(&self.eviction_warnings),
                    _ => None,
                };
                if warnings.is_some_and(|warnings| warnings.allows(Instant::now())) {
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
pub(crate) struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    /// Its names and expiry.
    pub(crate) identity: Arc<CertificateIdentity>,
    verified_by: Arc<TlsFiles>,
}

impl ClientCertificate {
    fn new(chain: Vec<CertificateDer<'static>>, verified_by: Arc<TlsFiles>) -> Option<Self> {
        // A certificate that cannot be parsed was not accepted.
        let identity = Arc::new(CertificateIdentity::of(chain.first()?).ok()?);
        Some(Self { chain, identity, verified_by })
    }

    /// Waits until the certificate is no longer accepted, and returns why.
    async fn lost(mut self, tls: &Tls, clients: Option<&dyn CertificateClients>) -> &'static str {
        let mut changes = tls.changes.subscribe();
        let mut known_clients = clients.map(|clients| clients.changes());
        let identity = Arc::clone(&self.identity);
        let is_known = || clients.is_some_and(|clients| clients.knows(&identity));
        let mut known = is_known();
        loop {
            let files = tls.files();
            if !files.accepts_same(&self.verified_by) && !files.accepts(&self.chain) {
                return "no CA certificate verifies it any more";
            }
            self.verified_by = files;
            if known && !is_known() {
                return "no client has it any more";
            }
            known = is_known();
            let Ok(left) = self.identity.end.duration_since(SystemTime::now()) else { return "it has expired" };
            tokio::select! {
                // The senders live as long as `tls` and `clients`.
                _ = changes.changed() => {}
                Some(_) = OptionFuture::from(known_clients.as_mut().map(watch::Receiver::changed)) => {}
                () = sleep(left.min(LONGEST_WAIT)) => {}
            }
        }
    }
}
