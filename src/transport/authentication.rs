//! Authentication of the calls of a connection, and authorization of what they call.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use hyper::{
    HeaderMap, Request,
    header::{AUTHORIZATION, HeaderValue},
};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use weir_server::tls::{Bearer, Clients as _};
use weir_telemetry::request;

use crate::{
    auth::{Access, Auth, Denied, Grant, TokenHash},
    telemetry::AuthMeter,
};

/// How long a wait for the end of a credential lasts before the clock is read again: it may have been set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How a listener authenticates its clients.
#[derive(Clone)]
pub struct Authentication {
    /// The clients and their roles.
    pub auth: Arc<Auth>,
    /// Its counters.
    pub meter: AuthMeter,
}

/// The identity of a connection: its certificate, and the credentials of its last call.
pub struct ConnectionIdentity {
    authentication: Authentication,
    bearer: Option<Arc<Bearer>>,
    revoked: CancellationToken,
    latest: Mutex<Option<Latest>>,
}

/// The name of the client that calls, among a request's extensions.
#[derive(Clone, Debug)]
pub struct ClientName(pub Arc<str>);

/// The result for the credentials of the last call, so that the same credentials need no second lookup.
struct Latest {
    generation: u64,
    authorization: Option<HeaderValue>,
    grant: Grant,
}

/// The credentials of a stream, which goes on as long as they are valid.
#[derive(Clone)]
pub struct StreamAuthorization {
    authentication: Authentication,
    token: Option<TokenHash>,
    bearer: Option<Arc<Bearer>>,
    access: Access,
    revoked: CancellationToken,
}

impl Authentication {
    /// The identity of a connection with this certificate. `revoked` tells when that is not valid any more.
    pub fn identity(&self, bearer: Option<Arc<Bearer>>, revoked: CancellationToken) -> ConnectionIdentity {
        ConnectionIdentity { authentication: self.clone(), bearer, revoked, latest: Mutex::new(None) }
    }
}

impl ConnectionIdentity {
    /// Whether a request may have what it asks for. One that `lasts` is given its [`StreamAuthorization`]; what is for any caller that is
    /// known, the caller's [`Roles`](crate::auth::Roles); [`Access::Named`], its [`ClientName`].
    ///
    /// # Errors
    /// [`Denied`]: the call is rejected.
    pub fn admit<B>(&self, request: &mut Request<B>, access: Access, lasts: bool) -> Result<(), Denied> {
        if access == Access::Open {
            return Ok(());
        }
        let grant = self.judge(request.headers(), access).inspect_err(|denied| {
            debug!(request_id = request::request_id(), trace_id = request::trace_id(), %denied, "call rejected");
            self.authentication.meter.refused(denied.is_unauthenticated()).increment(1);
        })?;
        if access == Access::Known {
            request.extensions_mut().insert(grant.roles);
        }
        if let Access::Named(role) = access {
            let token = token(request.headers())?.map(TokenHash::of);
            let callers = self.authentication.auth.callers();
            if let Some(name) = callers.name(token.as_ref(), self.bearer.as_deref(), role, SystemTime::now()) {
                request.extensions_mut().insert(ClientName(name));
            }
        }
        if lasts {
            let token = token(request.headers())?.map(TokenHash::of);
            request.extensions_mut().insert(StreamAuthorization {
                authentication: self.authentication.clone(),
                token,
                bearer: self.bearer.clone(),
                access,
                revoked: self.revoked.clone(),
            });
        }
        Ok(())
    }

    fn judge(&self, headers: &HeaderMap, access: Access) -> Result<Grant, Denied> {
        if self.revoked.is_cancelled() {
            return Err(Denied::Revoked);
        }
        let mut latest = self.latest.lock();
        let generation = self.authentication.auth.generation();
        let grant = match &*latest {
            Some(latest) if latest.generation == generation && is_same(latest.authorization.as_ref(), headers) => {
                latest.grant
            }
            _ => {
                let token = token(headers)?.map(TokenHash::of);
                let callers = self.authentication.auth.callers();
                let grant = callers.grant(token.as_ref(), self.bearer.as_deref(), SystemTime::now())?;
                let authorization = headers.get(AUTHORIZATION).cloned();
                *latest = Some(Latest { generation, authorization, grant });
                grant
            }
        };
        drop(latest);
        grant.allows(access, SystemTime::now).map(|()| grant)
    }
}

impl StreamAuthorization {
    /// Waits until the credentials are not valid or not enough any more. Returns why.
    pub async fn lost(self) -> Denied {
        let Self { authentication: Authentication { auth, meter }, token, bearer, access, revoked } = self;
        let mut changes = auth.changes();
        let lost = async {
            loop {
                changes.mark_unchanged();
                let now = SystemTime::now();
                let granted = auth.callers().grant(token.as_ref(), bearer.as_deref(), now);
                let end = match granted.and_then(|grant| grant.allows(access, || now).map(|()| grant.end)) {
                    Ok(end) => end,
                    Err(denied) => return denied,
                };
                let left = end.and_then(|end| end.duration_since(now).ok()).unwrap_or(LONGEST_WAIT);
                tokio::select! {
                    // The sender lives as long as `auth`.
                    _ = changes.changed() => {}
                    () = sleep(left.min(LONGEST_WAIT)) => {}
                }
            }
        };
        let denied = tokio::select! {
            () = revoked.cancelled() => Denied::Revoked,
            denied = lost => denied,
        };
        debug!(request_id = request::request_id(), trace_id = request::trace_id(), %denied, "stream closed");
        meter.refused(denied.is_unauthenticated()).increment(1);
        denied
    }
}

/// The token of a request, where it has one.
fn token(headers: &HeaderMap) -> Result<Option<&[u8]>, Denied> {
    const SCHEME: &[u8] = b"bearer ";
    let mut found = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = found.next() else { return Ok(None) };
    let (scheme, token) = value.as_bytes().split_at_checked(SCHEME.len()).ok_or(Denied::NotBearer)?;
    let token = token.trim_ascii();
    if found.next().is_some() || !scheme.eq_ignore_ascii_case(SCHEME) || token.is_empty() {
        return Err(Denied::NotBearer);
    }
    Ok(Some(token))
}

/// Whether the authorization is the same, in a time that does not tell where it differs: one connection may carry the calls
/// of several callers.
fn is_same(before: Option<&HeaderValue>, headers: &HeaderMap) -> bool {
    let mut found = headers.get_all(AUTHORIZATION).iter();
    match (before, found.next()) {
        (None, None) => true,
        (Some(before), Some(value)) => bool::from(before.as_bytes().ct_eq(value.as_bytes())) && found.next().is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION as HeaderName, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn exactly_one_bearer_token_is_accepted() {
        for (values, expected) in [
            (&[][..], Ok(None)),
            (&["Bearer abc"], Ok(Some(&b"abc"[..]))),
            (&["bEARER   abc "], Ok(Some(b"abc"))),
            (&["Bearer"], Err(Denied::NotBearer)),
            (&["Bearer "], Err(Denied::NotBearer)),
            (&["Basic YTpi"], Err(Denied::NotBearer)),
            (&["Bearer abc", "Bearer abd"], Err(Denied::NotBearer)),
        ] {
            assert_eq!(token(&headers(values)), expected, "{values:?}");
        }
    }

    #[test]
    fn an_unchanged_authorization_header_is_recognized() {
        let before = HeaderValue::from_static("Bearer abc");
        assert!(is_same(None, &headers(&[])));
        assert!(is_same(Some(&before), &headers(&["Bearer abc"])));
        for other in [&[][..], &["Bearer abd"], &["Bearer ab"], &["Bearer abc", "Bearer abc"]] {
            assert!(!is_same(Some(&before), &headers(other)), "{other:?}");
        }
        assert!(!is_same(None, &headers(&["Bearer abc"])));
    }
}
