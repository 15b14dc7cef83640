//! Overrides, as operators set and end them.

use tonic::Status;
use weir::proto::{
    EndOverrideRequest, Override, SetOverrideRequest, SetOverrideResponse, admin_client::AdminClient,
    r#override::Change,
};

use super::{Server, requests::seconds_long};

/// Makes an override of a key pattern, from now on.
pub fn over<S: ToString>(key: &[S], change: Change) -> Override {
    let key = key.iter().map(ToString::to_string).collect();
    Override { key, change: Some(change), reason: "a test".to_owned(), ..Default::default() }
}

/// Sets an override, for this many seconds or until it is ended.
pub async fn try_set(server: &Server, one: Override, seconds: Option<i64>) -> Result<SetOverrideResponse, Status> {
    let request = SetOverrideRequest { r#override: Some(one), ttl: seconds.map(seconds_long), dry_run: false };
    AdminClient::new(server.channel().await).set_override(request).await.map(tonic::Response::into_inner)
}

/// Sets an override that lasts until it is ended, unless it has an end.
pub async fn set(server: &Server, one: Override) -> SetOverrideResponse {
    try_set(server, one, None).await.expect("it is set")
}

/// Ends the override of a key. Returns whether there was one.
pub async fn end(server: &Server, key: &[&str]) -> bool {
    let request = EndOverrideRequest { key: key.iter().map(ToString::to_string).collect(), ..Default::default() };
    let answer = AdminClient::new(server.channel().await).end_override(request).await.expect("an answer");
    answer.into_inner().ended.is_some()
}
