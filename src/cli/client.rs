//! What the commands share that talk to a service.

use std::{future::Future, path::PathBuf, time::Duration};

use clap::Args;
use hyper::header::HeaderValue;
use hyper_util::rt::TokioIo;
use tonic::{
    Code, Request, Status,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Channel, Endpoint},
};

use super::{
    Failure,
    dial::{Address, Destination, Trust, authorization},
};
use crate::{domain::time::parse_duration, settings::Secret, tls::client::Paths};

#[derive(Args)]
pub struct Client {
    /// The service: host:port, https://host:port or unix:PATH; without it WEIR_ADDR, or 127.0.0.1:8081
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<Address>,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_timeout)]
    timeout: Duration,
    /// Who may vouch for the service, in PEM; without it WEIR_TLS_CA, or whom the system trusts. Encrypts, as https:// does
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    tls_ca: Option<PathBuf>,
    /// The certificate to show, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = SECURITY)]
    tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = SECURITY)]
    tls_key: Option<PathBuf>,
    /// The name that the service's certificate must bear, where it is not the host in --addr; without --addr,
    /// WEIR_TLS_SERVER_NAME
    #[arg(long, value_name = "NAME", help_heading = SECURITY)]
    tls_server_name: Option<String>,
    /// The bearer token to show. Others on this machine can see an option, but not the variable
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true, default_value = "", hide_default_value = true,
        value_parser = parse_token, help_heading = SECURITY)]
    token: Secret,
}

const DEFAULT_ADDRESS: &str = "127.0.0.1:8081";

/// A variable of the environment; an empty one is not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The options of security in the help.
const SECURITY: &str = "TLS and authorization";

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).map(|micros| Duration::from_micros(micros.unsigned_abs()))
}

fn parse_token(text: &str) -> Result<Secret, String> {
    Ok(Secret::from(text.to_owned()))
}

/// A service that is told with every call who calls.
pub type Service = InterceptedService<Channel, ByToken>;

/// Adds the token to calls, where there is one.
#[derive(Clone)]
pub struct ByToken(Option<HeaderValue>);

impl Interceptor for ByToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            let value = MetadataValue::try_from(value.as_bytes());
            let mut value = value.map_err(|_| Status::invalid_argument("the token is no text"))?;
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

impl Client {
    /// Where the service is, and how to get there.
    ///
    /// Options stand above variables: those say how to get to a service that no option names, and no more than who vouches for
    /// one that an option names without saying that it is not encrypted.
    pub fn destination(&self) -> Result<Destination, Failure> {
        let address = match &self.addr {
            Some(address) => address.clone(),
            None => {
                let text = variable("WEIR_ADDR");
                let text = text.as_deref().unwrap_or(DEFAULT_ADDRESS);
                text.parse().map_err(|why| Failure(format!("WEIR_ADDR: {why}")))?
            }
        };
        let path = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        let (mut ca, cert, key) = (path(&self.tls_ca), path(&self.tls_cert), path(&self.tls_key));
        let mut server_name = self.tls_server_name.clone().unwrap_or_default();
        if address.may_be_encrypted() {
            if self.tls_ca.is_none() {
                ca = variable("WEIR_TLS_CA").unwrap_or_default().into();
            }
            if self.tls_server_name.is_none() && self.addr.is_none() {
                server_name = variable("WEIR_TLS_SERVER_NAME").unwrap_or_default();
            }
        }
        let trust = Trust { paths: Paths { ca: &ca, cert: &cert, key: &key }, server_name: &server_name };
        Destination::new(&address, trust).map_err(Failure)
    }

    /// What calls say of who makes them.
    pub fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        authorization(&self.token).map_err(Failure)
    }

    /// How long to wait for an answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A connection to the service.
    pub async fn connect(&self) -> Result<Service, Failure> {
        let (destination, token) = (self.destination()?, ByToken(self.authorization()?));
        // The scheme here is for the library, which leaves encryption to the connector; what calls carry is the origin's.
        let endpoint = Endpoint::try_from(format!("http://{}", destination.authority()))?
            .origin(format!("{}://{}", destination.scheme(), destination.authority()).parse()?)
            .connect_timeout(self.timeout)
            .timeout(self.timeout);
        let connector = {
            let destination = destination.clone();
            tower::service_fn(move |_| {
                let destination = destination.clone();
                async move { destination.connect().await.map(TokioIo::new) }
            })
        };
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| format!("cannot reach a service at {destination}: {}", cause(&error)))?;
        Ok(InterceptedService::new(channel, token))
    }

    /// Waits for a call, as long as was asked for.
    pub async fn call<T>(&self, call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Failure> {
        match call.await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => {
                let code = status.code();
                // What a connection broke by, as a certificate that the service does not accept, is not in the message.
                let broken = matches!(code, Code::Unknown | Code::Unavailable | Code::Internal);
                let inner = std::error::Error::source(&status).filter(|_| broken).map(cause);
                Err(Failure(format!("{} ({code:?})", inner.as_deref().unwrap_or(status.message()))))
            }
        }
    }
}

/// The innermost reason of an error: the outer ones say no more than "transport error".
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
