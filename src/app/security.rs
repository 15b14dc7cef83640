//! TLS and credentials: loaded at startup and reloaded when their files change.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tracing::{error, info, warn};
use weir_server::{
    metrics::TlsMetrics,
    tls::{CertificateClients, ListenerTls, Tls, TlsFiles},
};
use weir_settings::{FileWatch, Problems, file::is_set};
use weir_telemetry::Render;

use super::{error::AppError, reload::FileReloader};
use crate::{
    auth::{Auth, Credentials, file},
    config::Settings,
    telemetry::{AuthMetrics, Metrics, auth},
    transport::Authentication,
};

const GRPC: &[&[u8]] = &[b"h2"];
const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];

/// TLS and authentication of both ports.
pub(super) struct Security {
    auth: Option<Arc<Auth>>,
    grpc: Option<Arc<Tls>>,
    http: Option<Arc<Tls>>,
    /// The reload tasks, to run concurrently with the service.
    pub reloads: Vec<BoxFuture<'static, ()>>,
    poll: Duration,
    hangups: watch::Receiver<()>,
    metrics: Arc<Metrics>,
}

impl Security {
    /// Loads the files that the settings name; each change of `hangups` reloads them.
    ///
    /// # Errors
    /// [`AppError`] names the setting and the file.
    pub(super) fn open(
        settings: &Settings,
        metrics: &Arc<Metrics>,
        hangups: &watch::Receiver<()>,
    ) -> Result<Self, AppError> {
        let mut security = Self {
            auth: None,
            grpc: None,
            http: None,
            reloads: Vec::new(),
            poll: settings.limits_poll.duration(),
            hangups: hangups.clone(),
            metrics: Arc::clone(metrics),
        };
        security.grpc = security.load_tls("grpc", &settings.grpc.tls, GRPC)?;
        security.http = security.load_tls("http", &settings.http.tls, HTTP)?;
        let (path, ports) = (&settings.auth.file, [("grpc", &settings.grpc.tls), ("http", &settings.http.tls)]);
        if is_set(path) {
            security.auth = Some(security.load_credentials(path.clone())?);
        } else if ports.iter().any(|(_, tls)| tls.asks_clients()) {
            info!(
                "clients are authenticated by certificate alone and have the role check; for the roles reset, metrics and admin set `auth.file`"
            );
            for (name, _) in ports.iter().filter(|(_, tls)| !tls.asks_clients()) {
                warn!(
                    "{name}.listen rejects all calls: no client can authenticate there; set {name}.tls.client_ca or auth.file"
                );
            }
            security.auth = Some(Arc::new(Auth::new(Credentials::by_certificate_alone())));
        }
        Ok(security)
    }

    fn load_tls(
        &mut self,
        listener: &'static str,
        settings: &ListenerTls,
        protocols: &'static [&'static [u8]],
    ) -> Result<Option<Arc<Tls>>, AppError> {
        if !settings.is_on() {
            return Ok(None);
        }
        let paths = settings.files();
        let setting = if listener == "grpc" { "grpc.tls" } else { "http.tls" };
        let watch = FileWatch::new(move || paths.clone());
        let reload = FileReloader::new(setting, watch, &self.hangups, self.metrics.read_timeouts(setting));
        let wrong = |cause| AppError::Tls { setting: setting.to_owned(), cause };
        let files = TlsFiles::read(settings, protocols, None).map_err(wrong)?;
        if files.has_ended() {
            warn!(listener, file = %settings.cert.display(), "the certificate has expired");
        }
        let tls = Arc::new(Tls::new(settings, files, TlsMetrics::new(self.metrics.registry(), listener)));
        let read = {
            let (tls, settings) = (Arc::clone(&tls), settings.clone());
            move || read_again(&tls, &settings, protocols)
        };
        let apply = {
            let tls = Arc::clone(&tls);
            move |files| replace_tls(&tls, listener, files)
        };
        self.reloads.push(Box::pin(reload.run(self.poll, read, apply)));
        Ok(Some(tls))
    }

    fn load_credentials(&mut self, path: PathBuf) -> Result<Arc<Auth>, AppError> {
        let watch = FileWatch::new({
            let path = path.clone();
            move || vec![path.clone()]
        });
        let reload = FileReloader::new("auth.file", watch, &self.hangups, self.metrics.read_timeouts("auth.file"));
        let credentials = file::load(&path).map_err(AppError::Auth)?;
        info!(path = %path.display(), clients = credentials.count(), "credentials loaded");
        let auth = Arc::new(Auth::new(credentials));
        self.metrics.registry().add(Arc::clone(&auth) as Arc<dyn Render>);
        let apply = {
            let (auth, reloads) = (Arc::clone(&auth), auth::reloads(self.metrics.registry()));
            move |loaded: Result<Credentials, Problems>| match loaded {
                Ok(credentials) => {
                    info!(clients = credentials.count(), "credentials reloaded");
                    auth.replace(credentials);
                    reloads.count(true);
                    true
                }
                Err(problems) => {
                    for problem in &problems.0 {
                        error!(%problem, "auth.file on disk is not valid; the previous credentials stay in force");
                    }
                    reloads.count(false);
                    false
                }
            }
        };
        self.reloads.push(Box::pin(reload.run(self.poll, move || file::load(&path), apply)));
        Ok(auth)
    }

    /// Returns the TLS of a listener; `None`: not encrypted.
    pub(super) fn tls(&self, listener: &str) -> Option<&Arc<Tls>> {
        if listener == "grpc" { self.grpc.as_ref() } else { self.http.as_ref() }
    }

    /// Returns the clients that authenticate by certificate.
    pub(super) fn clients(&self) -> Option<Arc<dyn CertificateClients>> {
        self.auth.clone().map(|auth| auth as Arc<dyn CertificateClients>)
    }

    /// Returns the authentication of a listener; `None`: disabled.
    pub(super) fn authentication(&self, listener: &str) -> Option<Authentication> {
        let auth = self.auth.clone()?;
        Some(Authentication { auth, metrics: AuthMetrics::new(self.metrics.registry(), listener) })
    }

    /// Warns about each port beyond loopback without TLS or without authentication.
    pub(super) fn warn_of_open(&self, listeners: [(&str, &str); 2]) {
        for (name, address) in listeners {
            // An address that does not parse is a unix socket.
            if !address.parse().is_ok_and(|address: SocketAddr| !address.ip().is_loopback()) {
                continue;
            }
            if self.tls(name).is_none() {
                warn!(
                    address,
                    "{name}.listen is not loopback and has no TLS: traffic can be read and changed on the network; set {name}.tls.cert"
                );
            }
            if self.auth.is_none() {
                let more = if name == "http" { ", read metrics and, if it is enabled, the explorer" } else { "" };
                warn!(
                    address,
                    "{name}.listen is not loopback and has no authentication: every client that reaches it may check{more} and, with `reset: allow`, reset keys; set auth.file or {name}.tls.client_ca"
                );
            }
        }
    }
}

fn read_again(tls: &Tls, settings: &ListenerTls, protocols: &[&[u8]]) -> Result<TlsFiles, String> {
    let before = tls.files();
    let files = TlsFiles::read(settings, protocols, Some(&before))?;
    let worse = files.has_ended() && !before.has_ended();
    if worse { Err(format!("{}: the certificate has expired", settings.cert.display())) } else { Ok(files) }
}

/// Replaces the certificates, if they are usable, and returns whether they are.
fn replace_tls(tls: &Tls, listener: &str, files: Result<TlsFiles, String>) -> bool {
    let is_usable = files.is_ok();
    tls.metrics().reloads.count(is_usable);
    match files {
        Ok(files) => {
            info!(listener, "certificates reloaded");
            tls.replace(files);
        }
        Err(problem) => {
            error!(listener, %problem, "{listener}.tls on disk cannot be used; the previous certificates stay in force");
        }
    }
    is_usable
}
