//! The client that makes a call, and the audit log of resets.

use std::{net::SocketAddr, sync::Arc};

use tracing::info;
use weir_core::domain::{Key, key::domain_label};
use weir_store::ResetDone;
use weir_telemetry::request;

use crate::telemetry::CallKind;

/// Log target of the audit log, which has one line for each reset.
const AUDIT: &str = "weir::audit";

/// The client that makes a call.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The surface that received the call.
    pub surface: &'static str,
    /// The transport of the call.
    pub transport: CallKind,
    /// The client's address; `None` for a unix socket.
    pub peer: Option<SocketAddr>,
    /// The client's name in the credentials file, if authentication is enabled.
    pub client: Option<Arc<str>>,
}

impl Actor {
    /// Returns the client's name, or else its address.
    pub fn name(&self) -> String {
        match (&self.client, self.peer) {
            (Some(client), _) => client.to_string(),
            (None, Some(peer)) => peer.ip().to_string(),
            (None, None) => "unix".to_owned(),
        }
    }

    /// Logs a reset of a key of this domain, and its outcome. Only audit lines contain a key above the level `debug`.
    pub fn log_reset(&self, domain: &str, key: &Key, subtree: bool, done: Result<&ResetDone, &str>) {
        info!(
            target: AUDIT,
            client = self.client.as_deref(),
            peer = self.peer.map_or("unix".to_owned(), |peer| peer.to_string()),
            surface = self.surface,
            domain = domain_label(domain),
            key = written(key),
            subtree,
            existed = done.ok().map(|done| done.existed),
            removed = done.ok().map(|done| done.removed),
            error = done.err(),
            request_id = request::request_id(),
            trace_id = request::trace_id(),
            "reset"
        );
    }
}

/// Joins the segments of a key with `/`. Within a segment, `\` escapes `/` and `\`.
fn written(key: &Key) -> String {
    let segment = |segment: &[u8]| String::from_utf8_lossy(segment).replace('\\', r"\\").replace('/', r"\/");
    key.segments().map(segment).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_keys_are_unambiguous() {
        let of = |segments: &[&str]| written(&Key::new("", segments).unwrap());
        assert_eq!(of(&["user", "alex", "trade"]), "user/alex/trade");
        assert_eq!(of(&["a/b", r"c\"]), r"a\/b/c\\");
    }
}
