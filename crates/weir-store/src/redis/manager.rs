//! How a pool makes and recycles connections: by the manager of `deadpool-redis`. Those over TLS are made here, because the
//! crate `redis` takes no certificate verifier, and its own refuses a self-signed certificate with CA:TRUE (`openssl req
//! -x509`) even where that is the configured CA certificate.

use std::{ops::Deref, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use deadpool::managed::{self, Metrics, RecycleResult};
use deadpool_redis::redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisResult,
    aio::MultiplexedConnection,
    io::tcp::{
        TcpSettings,
        socket2::{SockRef, TcpKeepalive},
    },
};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};
use tokio_util::task::AbortOnDropHandle;

use super::{connector::Secrets, settings::TlsSettings};
use crate::url::{Address, Credentials};
use weir_settings::tls::server_name;

/// How long a connection may be silent before the system probes its other end, and the pause between two probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A connection, which ends when this is dropped.
pub struct Connection {
    connection: MultiplexedConnection,
    /// Carries the connection, where the crate does not do that itself.
    _driver: Option<AbortOnDropHandle<()>>,
}

/// Makes the connections of one epoch.
pub struct Manager {
    /// Makes those without TLS, and recycles all.
    plain: deadpool_redis::Manager,
    tls: Option<Tls>,
}

struct Tls {
    host: String,
    port: u16,
    name: ServerName<'static>,
    config: ArcSwap<ClientConfig>,
    redis: RedisConnectionInfo,
    connection: AsyncConnectionConfig,
}

impl Manager {
    /// Of connections to this server by these secrets; `settings` are those of TLS, where that is enabled.
    ///
    /// # Errors
    /// No certificate can bear the server's name.
    pub(super) fn new(
        address: &Address,
        settings: Option<&TlsSettings>,
        secrets: &Secrets,
        connection: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        let redis = login(secrets.credentials.as_ref());
        let tls = match (address, settings.zip(secrets.certificates.as_ref())) {
            (Address::Tcp { host, port }, Some((settings, certificates))) => {
                let name = if settings.server_name.is_empty() { host } else { &settings.server_name };
                let name = server_name(name).map_err(|why| (ErrorKind::InvalidClientConfig, "TLS", why))?;
                let config = ArcSwap::from(Arc::clone(certificates.config()));
                let (host, redis, connection) = (host.clone(), redis.clone(), connection.clone());
                Some(Tls { host, port: *port, name, config, redis, connection })
            }
            _ => None,
        };
        let place = match (address, &tls) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
            // Never connected to by the crate, which is built without TLS and would refuse to.
            (Address::Tcp { host, port }, Some(_)) => {
                ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
            }
        };
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
        let info: ConnectionInfo = place.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(redis);
        Ok(Self { plain: deadpool_redis::Manager::new_with_config(info, connection)?, tls })
    }

    /// From now on new connections trust what was read last: the system's CA certificates may have changed in files that no
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
        match &self.tls {
            None => Ok(Connection { connection: self.plain.create().await?, _driver: None }),
            Some(tls) => tls.connect().await,
        }
    }

    async fn recycle(&self, connection: &mut Connection, metrics: &Metrics) -> RecycleResult<RedisError> {
        self.plain.recycle(&mut connection.connection, metrics).await
    }
}

impl Tls {
    async fn connect(&self) -> RedisResult<Connection> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
        let stream = TlsConnector::from(self.config.load_full()).connect(self.name.clone(), stream).await?;
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&self.redis, stream, self.connection.clone()).await?;
        // Or else it would go on until the last reply, which may never come.
        let driver = AbortOnDropHandle::new(tokio::spawn(driver));
        Ok(Connection { connection, _driver: Some(driver) })
    }
}

impl Deref for Connection {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.connection
    }
}

fn login(credentials: Option<&Credentials>) -> RedisConnectionInfo {
    let redis = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    let Some(Credentials { user, password }) = credentials else { return redis };
    let user = if user.is_empty() { "default" } else { user };
    redis.set_username(user).set_password(password.reveal())
}

fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE)
}
