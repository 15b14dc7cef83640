//! A stub of Envoy Gateway, which starts the program as `ratelimit`: a control plane with mTLS, a Redis, and
//! environment variables.

use weir_test_redis::{Options, Server as Redis};

use super::{
    control_plane::ControlPlane,
    pki::{Authority, Leaf, Pair, acceptor},
    server::Setup,
};

/// The variables of Envoy Gateway, without addresses and certificates.
const VARIABLES: &str = "RUNTIME_ROOT=/data\nRUNTIME_SUBDIRECTORY=ratelimit\nRUNTIME_IGNOREDOTFILES=true\n\
    RUNTIME_WATCH_ROOT=false\nLOG_LEVEL=info\nUSE_STATSD=false\nCONFIG_TYPE=GRPC_XDS_SOTW\n\
    CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit\nFORCE_START_WITHOUT_INITIAL_CONFIG=true\nREDIS_SOCKET_TYPE=tcp\n\
    GRPC_SERVER_USE_TLS=true\nCONFIG_GRPC_XDS_SERVER_USE_TLS=true\nUSE_PROMETHEUS=true\nPROMETHEUS_ADDR=127.0.0.1:0";

/// The control plane and the other dependencies of the service.
pub struct Gateway {
    pub plane: ControlPlane,
    pub authority: Authority,
    /// The certificate of all parts.
    pub pair: Pair,
    redis: Redis,
}

impl Gateway {
    pub fn start() -> Self {
        let authority = Authority::new("envoy-gateway");
        let pair = authority.sign(Leaf::host("localhost"));
        let plane = ControlPlane::at("127.0.0.1:0", Some(acceptor(&pair, Some(&authority))));
        Self { plane, authority, pair, redis: Redis::start(Options::port()) }
    }

    /// Configures the service like Envoy Gateway.
    pub fn setup(&self) -> Setup {
        let (_, port) = self.plane.address().rsplit_once(':').expect("a port");
        let setup = Setup::ratelimit()
            .variables(VARIABLES)
            .env("CONFIG_GRPC_XDS_SERVER_URL", &format!("localhost:{port}"))
            .env("REDIS_URL", &format!("127.0.0.1:{}", self.redis.port()))
            .env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "60s");
        [
            ("GRPC_SERVER_TLS_CERT", "tls.crt", &self.pair.cert),
            ("GRPC_SERVER_TLS_KEY", "tls.key", &self.pair.key),
            ("GRPC_CLIENT_TLS_CACERT", "ca.crt", &self.authority.pem),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "tls.crt", &self.pair.cert),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "tls.key", &self.pair.key),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "ca.crt", &self.authority.pem),
        ]
        .into_iter()
        .fold(setup, |setup, (variable, name, text)| setup.file(variable, name, text))
    }
}
