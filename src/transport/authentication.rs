//! Authentication and authorization of the calls of a connection.

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
use weir_server::tls::{CertificateClients as _, CertificateIdentity};
use weir_telemetry::request;

use crate::{
    auth::{Access, Auth, AuthError, Principal, TokenHash},
    telemetry::AuthMetrics,
};

/// Longest wait for the expiry of a credential before the clock is read again, in case it was set meanwhile.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The authentication of a listener's clients.
#[derive(Clone)]
pub struct Authentication {
    /// The clients and their roles.
    pub auth: Arc<Auth>,
    /// Its counters.
    pub metrics: AuthMetrics,
}

/// The identity of a connection: its certificate, and the credentials of its last call.
pub struct ConnectionIdentity {
    authentication: Authentication,
    certificate: Option<Arc<CertificateIdentity>>,
    revoked: CancellationToken,
    latest: Mutex<Option<Latest>>,
}

/// The name of the client that makes a request, as a request extension.
#[derive(Clone, Debug)]
pub struct ClientName(pub Arc<str>);

/// The result for the credentials of the last call, so that the same credentials need no second lookup.
struct Latest {
    generation: u64,
    authorization: Option<HeaderValue>,
    principal: Principal,
}

/// The credentials of a stream, which is served as long as they are valid.
#[derive(Clone)]
pub struct StreamAuthorization {
    authentication: Authentication,
    token: Option<TokenHash>,
    certificate: Option<Arc<CertificateIdentity>>,
    access: Access,
    revoked: CancellationToken,
}

impl Authentication {
    /// Returns the identity of a connection with this certificate. `revoked` is cancelled once that is no longer valid.
    pub fn identity(
        &self,
        certificate: Option<Arc<CertificateIdentity>>,
        revoked: CancellationToken,
    ) -> ConnectionIdentity {
        ConnectionIdentity { authentication: self.clone(), certificate, revoked, latest: Mutex::new(None) }
    }
}

impl ConnectionIdentity {
    /// Authorizes a request for `access`. As request extensions it inserts a [`StreamAuthorization`] for a long-lived
    /// call (`lasts`), the client's [`Roles`](crate::auth::Roles) for [`Access::Authenticated`], and its [`ClientName`]
    /// for [`Access::Named`].
    ///
    /// # Errors
    /// [`AuthError`]: the call is rejected.
    pub fn admit<B>(&self, request: &mut Request<B>, access: Access, lasts: bool) -> Result<(), AuthError> {
        if access == Access::Public {
            return Ok(());
        }
        let (principal, name) = self.authorize(request.headers(), access).inspect_err(|denied| {
            debug!(request_id = request::request_id(), trace_id = request::trace_id(), %denied, "call rejected");
            self.authentication.metrics.rejected(denied.is_unauthenticated()).increment(1);
        })?;
        if access == Access::Authenticated {
            request.extensions_mut().insert(principal.roles);
        }
        if let Some(name) = name {
            request.extensions_mut().insert(ClientName(name));
        }
        if lasts {
            let token = token(request.headers())?.map(TokenHash::of);
            request.extensions_mut().insert(StreamAuthorization {
                authentication: self.authentication.clone(),
                token,
                certificate: self.certificate.clone(),
                access,
                revoked: self.revoked.clone(),
            });
        }
        Ok(())
    }

    /// Returns the client and, for [`Access::Named`], its name.
    fn authorize(&self, headers: &HeaderMap, access: Access) -> Result<(Principal, Option<Arc<str>>), AuthError> {
        if self.revoked.is_cancelled() {
            return Err(AuthError::Revoked);
        }
        let (principal, name) = match access {
            Access::Named(role) => {
                // Both from one read: the client may be removed at any moment, and a call without its name would
                // belong to another client.
                let (token, certificate) = (token(headers)?.map(TokenHash::of), self.certificate.as_deref());
                let (credentials, now) = (self.authentication.auth.credentials(), SystemTime::now());
                let principal = credentials.authenticate(token.as_ref(), certificate, now)?;
                (principal, credentials.name(token.as_ref(), certificate, role, now))
            }
            _ => (self.authenticate(headers)?, None),
        };
        principal.allows(access, SystemTime::now).map(|()| (principal, name))
    }

    /// Authenticates the client, by the result for the last call if the credentials are the same.
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, AuthError> {
        let mut latest = self.latest.lock();
        let generation = self.authentication.auth.generation();
        if let Some(latest) = &*latest
            && latest.generation == generation
            && is_same(latest.authorization.as_ref(), headers)
        {
            return Ok(latest.principal);
        }
        let token = token(headers)?.map(TokenHash::of);
        let credentials = self.authentication.auth.credentials();
        let principal = credentials.authenticate(token.as_ref(), self.certificate.as_deref(), SystemTime::now())?;
        let authorization = headers.get(AUTHORIZATION).cloned();
        *latest = Some(Latest { generation, authorization, principal });
        Ok(principal)
    }
}

impl StreamAuthorization {
    /// Waits until the credentials become invalid or insufficient, and returns the reason.
    pub async fn lost(self) -> AuthError {
        let Self { authentication: Authentication { auth, metrics }, token, certificate, access, revoked } = self;
        let mut changes = auth.changes();
        let lost = async {
            loop {
                changes.mark_unchanged();
                let now = SystemTime::now();
                let authenticated = auth.credentials().authenticate(token.as_ref(), certificate.as_deref(), now);
                let end = match authenticated
                    .and_then(|principal| principal.allows(access, || now).map(|()| principal.end))
                {
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
            () = revoked.cancelled() => AuthError::Revoked,
            denied = lost => denied,
        };
        debug!(request_id = request::request_id(), trace_id = request::trace_id(), %denied, "stream closed");
        metrics.rejected(denied.is_unauthenticated()).increment(1);
        denied
    }
}

/// Returns the bearer token of a request, if it has one.
fn token(headers: &HeaderMap) -> Result<Option<&[u8]>, AuthError> {
    const SCHEME: &[u8] = b"bearer ";
    let mut found = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = found.next() else { return Ok(None) };
    let (scheme, token) = value.as_bytes().split_at_checked(SCHEME.len()).ok_or(AuthError::NotBearer)?;
    let token = token.trim_ascii();
    if found.next().is_some() || !scheme.eq_ignore_ascii_case(SCHEME) || token.is_empty() {
        return Err(AuthError::NotBearer);
    }
    Ok(Some(token))
}

/// Whether the authorization is unchanged. The time of the comparison does not show where they differ, because one
/// connection may carry the calls of several clients.
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
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use hyper::header::HeaderName;
    use weir_telemetry::Registry;

    use super::*;
    use crate::auth::{Credentials, Role, file::parse};

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION as HeaderName, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn exactly_one_bearer_token_is_accepted() {
        for (values, expected) in [
            (&[][..], Ok(None)),
            (&["Bearer abc"], Ok(Some(&b"abc"[..]))),
            (&["bEARER   abc "], Ok(Some(b"abc"))),
            (&["Bearer"], Err(AuthError::NotBearer)),
            (&["Bearer "], Err(AuthError::NotBearer)),
            (&["Basic YTpi"], Err(AuthError::NotBearer)),
            (&["Bearer abc", "Bearer abd"], Err(AuthError::NotBearer)),
        ] {
            assert_eq!(token(&headers(values)), expected, "{values:?}");
        }
    }

    #[test]
    fn a_call_is_never_admitted_without_the_name_of_its_client() {
        const FILE: &str = "clients: { shop: { roles: [check], tokens: [{ sha256: \
                            ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad }] } }";
        let auth = Arc::new(Auth::new(Credentials::default()));
        let metrics = AuthMetrics::new(&Registry::default(), "grpc");
        let identity = Authentication { auth: Arc::clone(&auth), metrics }.identity(None, CancellationToken::new());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    auth.replace(parse(FILE).unwrap());
                    thread::yield_now();
                    auth.replace(Credentials::default());
                }
            });
            let (mut admitted, mut unnamed) = (0, 0);
            // The other thread may not run for a while.
            for _ in 0..50_000_000 {
                if admitted == 10_000 {
                    break;
                }
                let mut request = Request::get("/").header(AUTHORIZATION, "Bearer abc").body(()).unwrap();
                if identity.admit(&mut request, Access::Named(Role::Check), false).is_ok() {
                    admitted += 1;
                    unnamed += usize::from(request.extensions().get::<ClientName>().is_none());
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(admitted > 0 && unnamed == 0, "{unnamed} of {admitted} have no name");
        });
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
