use tonic::transport::{Error, Server, server::TcpIncoming};
use weir_client::{Check, Client, GuardLayer};

pub async fn serve(weir: Client, incoming: TcpIncoming) -> Result<(), Error> {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let by_method = |request: &http::Request<tonic::body::Body>| {
        let user = request.headers().get("x-user")?.to_str().ok()?;
        let method = request.uri().path().rsplit('/').next()?;
        Some(Check::new(["user", user, method]))
    };
    Server::builder().layer(GuardLayer::new(weir, by_method)).add_service(health).serve_with_incoming(incoming).await
}
