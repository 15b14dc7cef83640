//! Creation and recycling of pooled connections. Recycling is delegated to the manager of `deadpool-redis`. Streams are
//! opened here, because the crate `redis` neither bounds replies nor accepts a certificate verifier: its own verifier
//! rejects a self-signed certificate with CA:TRUE (`openssl req -x509`) even if it is the configured CA certificate.

use std::{io, ops::Deref, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use deadpool::managed::{self, Metrics, RecycleResult};
use deadpool_redis::redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
    RedisError, RedisResult, aio::MultiplexedConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task_local,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{self, CertificateError, ClientConfig, pki_types::ServerName},
};
use tokio_util::task::AbortOnDropHandle;

use super::{bounded::Bounded, connector::Secrets, settings::TlsSettings};
use crate::{
    platform::Platform,
    url::{Address, Credentials},
};
use weir_settings::tls::server_name;

task_local! {
    /// Set while no connection may be opened.
    static IDLE_ONLY: ();
}

/// Runs `get`, in which no connection is opened.
pub(super) fn idle_only<T>(get: impl Future<Output = T>) -> impl Future<Output = T> {
    IDLE_ONLY.scope((), get)
}

/// A connection, which is closed when this value is dropped.
pub struct Connection {
    connection: MultiplexedConnection,
    /// The task that drives the connection.
    _driver: AbortOnDropHandle<()>,
}

/// Creates the connections of one epoch.
pub struct Manager {
    platform: Arc<dyn Platform>,
    address: Address,
    tls: Option<Tls>,
    redis: RedisConnectionInfo,
    config: AsyncConnectionConfig,
    /// Recycles connections. It never connects, so its address is unused.
    recycler: deadpool_redis::Manager,
}

struct Tls {
    name: ServerName<'static>,
    config: ArcSwap<ClientConfig>,
}

impl Manager {
    /// Creates a manager for this server and these secrets. `settings` are the TLS settings, if TLS is enabled.
    ///
    /// # Errors
    /// The server's name is not valid in a certificate.
    pub(super) fn new(
        platform: Arc<dyn Platform>,
        address: &Address,
        settings: Option<&TlsSettings>,
        secrets: &Secrets,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        let tls = match (address, settings.zip(secrets.certificates.as_ref())) {
            (Address::Tcp { host, .. }, Some((settings, certificates))) => {
                let name = if settings.server_name.is_empty() { host } else { &settings.server_name };
                let name = server_name(name).map_err(|why| (ErrorKind::InvalidClientConfig, "TLS", why))?;
                Some(Tls { name, config: ArcSwap::from(Arc::clone(certificates.config())) })
            }
            _ => None,
        };
        let redis = connection_info(secrets.credentials.as_ref());
        let recycler = deadpool_redis::Manager::new(ConnectionAddr::Unix(PathBuf::new()).into_connection_info()?)?;
        Ok(Self { platform, address: address.clone(), tls, redis, config, recycler })
    }

    /// Authenticates on a stream.
    async fn authenticate(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> RedisResult<Connection> {
        let stream = Bounded::new(stream);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&self.redis, stream, self.config.clone()).await?;
        // Otherwise the driver would run until the last reply, which may never arrive.
        let driver = AbortOnDropHandle::new(tokio::spawn(driver));
        Ok(Connection { connection, _driver: driver })
    }

    /// Uses the latest CA certificates for new connections: the operating system's may have changed in files that no
    /// setting names.
    pub(super) fn trust(&self, secrets: &Secrets) {
        if let Some((tls, certificates)) = self.tls.as_ref().zip(secrets.certificates.as_ref()) {
            tls.config.store(Arc::clone(certificates.config()));
        }
    }
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = RedisError;

    async fn create(&self) -> RedisResult<Connection> {
        if IDLE_ONLY.try_with(|()| ()).is_ok() {
            return Err((ErrorKind::Client, "no connection is idle").into());
        }
        let stream = self.platform.connect(&self.address).await?;
        match &self.tls {
            None => self.authenticate(stream).await,
            Some(tls) => {
                let connector = TlsConnector::from(tls.config.load_full());
                let stream = connector.connect(tls.name.clone(), stream).await.map_err(without_times)?;
                self.authenticate(stream).await
            }
        }
    }

    async fn recycle(&self, connection: &mut Connection, metrics: &Metrics) -> RecycleResult<RedisError> {
        self.recycler.recycle(&mut connection.connection, metrics).await
    }
}

impl Deref for Connection {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.connection
    }
}

/// Removes the time of the verification from a TLS error: failures are logged when their text changes.
fn without_times(error: io::Error) -> io::Error {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let invalid = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(ExpiredContext { .. })) => Expired,
        Some(rustls::Error::InvalidCertificate(NotValidYetContext { .. })) => NotValidYet,
        _ => return error,
    };
    io::Error::new(error.kind(), rustls::Error::InvalidCertificate(invalid))
}

fn connection_info(credentials: Option<&Credentials>) -> RedisConnectionInfo {
    let redis = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    let Some(Credentials { user, password }) = credentials else { return redis };
    let user = if user.is_empty() { "default" } else { user };
    redis.set_username(user).set_password(password.reveal())
}
