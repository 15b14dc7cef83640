//! gRPC channels that this process opens: from the commands to a service, and to a control plane.

use std::error::Error;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};
use weir_server::dial::Destination;

/// Opens a channel. `with` sets the timeouts.
///
/// # Errors
/// The reason why the destination cannot be reached.
pub async fn channel(
    destination: &Destination,
    with: impl FnOnce(Endpoint) -> Endpoint,
) -> Result<Channel, Box<dyn Error + Send + Sync>> {
    // This scheme is for tonic, which leaves encryption to the connector; calls carry the scheme of the origin.
    let endpoint = Endpoint::try_from(format!("http://{}", destination.authority()))?
        .origin(format!("{}://{}", destination.scheme(), destination.authority()).parse()?);
    let connector = {
        let destination = destination.clone();
        tower::service_fn(move |_| {
            let destination = destination.clone();
            async move { destination.connect().await.map(TokioIo::new) }
        })
    };
    let channel = with(endpoint).connect_with_connector(connector).await;
    channel.map_err(|error| cause(&error).into())
}

/// Returns the innermost cause of an error; the outer ones say only "transport error".
pub fn cause(error: &(dyn Error + 'static)) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
