//! gRPC channels that this process opens: from the commands to a service, to a control plane, and to a
//! collector of spans.

use std::{error::Error, io};

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};
use tower::Service;
use weir_server::dial::{Destination, Transport};

type BoxError = Box<dyn Error + Send + Sync>;

/// Opens a channel. `with` sets the timeouts.
///
/// # Errors
/// The reason why the destination cannot be reached.
pub async fn channel(destination: &Destination, with: impl FnOnce(Endpoint) -> Endpoint) -> Result<Channel, BoxError> {
    let channel = with(endpoint(destination)?).connect_with_connector(connector(destination)).await;
    channel.map_err(|error| cause(&error).into())
}

/// Returns a channel that connects on first use and reconnects when necessary. `with` sets the timeouts.
///
/// # Errors
/// The address is not a valid URI.
pub fn lazy_channel(destination: &Destination, with: impl FnOnce(Endpoint) -> Endpoint) -> Result<Channel, BoxError> {
    Ok(with(endpoint(destination)?).connect_with_connector_lazy(connector(destination)))
}

fn endpoint(destination: &Destination) -> Result<Endpoint, BoxError> {
    let (scheme, authority) = (destination.scheme(), destination.authority());
    // This scheme is for tonic, which leaves encryption to the connector; calls carry the scheme of the origin.
    Ok(Endpoint::try_from(format!("http://{authority}"))?.origin(format!("{scheme}://{authority}").parse()?))
}

fn connector(
    destination: &Destination,
) -> impl Service<Uri, Response = TokioIo<Box<dyn Transport>>, Error = io::Error, Future: Send> + Send + use<> {
    let destination = destination.clone();
    tower::service_fn(move |_| {
        let destination = destination.clone();
        async move { destination.connect().await.map(TokioIo::new) }
    })
}

/// Returns the innermost cause of an error; the outer ones say only "transport error".
pub fn cause(error: &(dyn Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
