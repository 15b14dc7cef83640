//! A guarded service: each user has limits, and so has each route of a user. Environment variables: `WEIR_ADDR`,
//! `WEIR_DEADLINE_MS`, `WEIR_TOKEN`, `WEIR_TLS_CA` and `PORT`.

use std::{env, error::Error, time::Duration};

use axum::{Router, extract::Request, http::StatusCode, routing::get};
use tokio::net::TcpListener;
use weir_client::{Check, Client, GuardLayer, OnFailure, Tls};

fn client() -> Result<Client, Box<dyn Error>> {
    let mut builder = Client::builder(env::var("WEIR_ADDR").unwrap_or("127.0.0.1:8081".to_owned()));
    if let Ok(deadline) = env::var("WEIR_DEADLINE_MS") {
        builder = builder.deadline(Duration::from_millis(deadline.parse()?));
    }
    if let Ok(token) = env::var("WEIR_TOKEN") {
        builder = builder.token(token);
    }
    if let Ok(ca) = env::var("WEIR_TLS_CA") {
        builder = builder.tls(Tls::new().ca(ca));
    }
    Ok(builder.build()?)
}

/// Guards a route for each user.
fn guard(
    weir: &Client,
    route: &'static str,
    on_failure: OnFailure,
) -> GuardLayer<impl Fn(&Request) -> Option<Check> + Clone + use<>> {
    GuardLayer::new(weir.clone(), move |request: &Request| {
        Some(Check::new(["user", user(request), route]).on_failure(on_failure))
    })
}

/// Use the user that your authentication has verified, never a header that the client sets, as in this example.
fn user(request: &Request) -> &str {
    request.headers().get("x-user").and_then(|user| user.to_str().ok()).unwrap_or("anonymous")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_ansi(false).init();
    let weir = client()?;
    let app = Router::new()
        .route("/trade", get("traded").layer(guard(&weir, "trade", OnFailure::Allow)))
        .route("/login", get("welcome").layer(guard(&weir, "login", OnFailure::Deny)))
        .route("/health", get("healthy"))
        .fallback_service(get(async || StatusCode::NOT_FOUND).layer(guard(&weir, "other", OnFailure::Allow)));
    let port = env::var("PORT").unwrap_or("8000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("serving on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
