use axum::{Router, extract::Request, routing::get};
use weir_client::{Check, Client, GuardLayer, OnFailure, key};

pub fn app(weir: Client) -> Router {
    let trade = |request: &Request| Some(Check::new(["user", user(request), "trade"]));
    // Fail closed: during an outage no password may be tried.
    let login = |request: &Request| {
        let check = Check::new(["user", user(request), "login"]);
        Some(check.on_failure(OnFailure::Deny))
    };
    Router::new()
        .route("/trade", get("traded").layer(GuardLayer::new(weir.clone(), trade)))
        .route("/login", get("logged in").layer(GuardLayer::new(weir.clone(), login)))
        .fallback_service(get("something else").layer(GuardLayer::new(weir, key::header("user", "x-user"))))
}

fn user(request: &Request) -> &str {
    request.headers().get("x-user").and_then(|user| user.to_str().ok()).unwrap_or("-")
}
