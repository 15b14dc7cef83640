//! What the HTTP port serves, and where: checks on threads of their own, pages for operators on the control runtime.

use axum::{
    Router,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::IntoResponse,
};
use tokio::runtime::Handle;

use super::AppError;
use crate::{
    admin::Admin,
    config::Settings,
    store::AnyStore,
    transport::{http, observe::Checks},
};

/// The API and the pages. Those run on the runtime that this is called on: to write a large `/metrics` takes long enough
/// to hold up the checks of a serving thread.
pub fn routes(settings: &Settings, checks: Checks<AnyStore>, admin: Admin) -> Result<Router, AppError> {
    let control = Handle::current();
    let pages = admin.routes().layer(from_fn(move |request, next: Next| {
        let page = control.spawn(next.run(request));
        async { page.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()) }
    }));
    let api = http::routes(checks, settings.http.headers, settings.grpc.max_message_bytes)?;
    Ok(api.merge(pages))
}
