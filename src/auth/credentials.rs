//! The authenticated clients, their credentials and roles.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use weir_server::tls::{CertificateIdentity, NamePattern};

use super::{
    AuthError,
    role::{Access, Role, Roles},
    token::TokenHash,
};

/// The clients, with their credentials and roles.
#[derive(Debug, Default)]
pub struct Credentials {
    tokens: Vec<Token>,
    certificates: Vec<Certificate>,
    count: usize,
}

#[derive(Debug)]
struct Certificate {
    pattern: NamePattern,
    client: Arc<str>,
    roles: Roles,
}

#[derive(Debug)]
struct Token {
    client: Arc<str>,
    hash: TokenHash,
    roles: Roles,
    end: Option<SystemTime>,
}

/// The result of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The roles of the client.
    pub roles: Roles,
    /// The expiry of the token; `None`: it does not expire.
    pub end: Option<SystemTime>,
}

impl Credentials {
    /// Returns the clients without a credentials file: every client with a certificate has the role `check`.
    pub fn by_certificate_alone() -> Self {
        let mut credentials = Self::default();
        if let Ok(any) = NamePattern::try_from("*".to_owned()) {
            credentials.add("*", [Role::Check].into_iter().collect(), [], [any]);
        }
        credentials
    }

    /// Returns the number of clients.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the clients with tokens that expire or have expired, each with the earliest expiry.
    pub fn expiries(&self) -> BTreeMap<Arc<str>, SystemTime> {
        let mut expiries = BTreeMap::new();
        for Token { client, end, .. } in &self.tokens {
            if let Some(end) = *end {
                let first = expiries.entry(Arc::clone(client)).or_insert(end);
                *first = end.min(*first);
            }
        }
        expiries
    }

    /// Adds a client by its name, with hashes of tokens, their expiry, and names of certificates.
    pub(super) fn add(
        &mut self,
        name: &str,
        roles: Roles,
        tokens: impl IntoIterator<Item = (TokenHash, Option<SystemTime>)>,
        certificates: impl IntoIterator<Item = NamePattern>,
    ) {
        let name = Arc::<str>::from(name);
        self.tokens.extend(tokens.into_iter().map(|(hash, end)| Token { client: Arc::clone(&name), hash, roles, end }));
        let certificates = certificates.into_iter();
        let certificate = |pattern| Certificate { pattern, client: Arc::clone(&name), roles };
        self.certificates.extend(certificates.map(certificate));
        self.count += 1;
    }

    /// Authenticates a client by token and certificate together. An invalid token fails the call.
    ///
    /// # Errors
    /// [`AuthError`] if there are no credentials, or the token is unknown or has expired.
    pub fn authenticate(
        &self,
        token: Option<&TokenHash>,
        certificate: Option<&CertificateIdentity>,
        now: SystemTime,
    ) -> Result<Principal, AuthError> {
        let by_certificate = certificate.and_then(|certificate| self.certificate(certificate));
        match (token, by_certificate) {
            (Some(token), roles) => {
                let Token { roles: own, end, .. } = self.token(token, now)?;
                Ok(Principal { roles: own.and(roles.unwrap_or_default()), end: *end })
            }
            (None, Some(roles)) => Ok(Principal { roles, end: None }),
            (None, None) => Err(AuthError::Missing),
        }
    }

    /// Returns the roles of all clients that a certificate names; `None`: it names none.
    pub fn certificate(&self, certificate: &CertificateIdentity) -> Option<Roles> {
        self.named_by(certificate).map(|found| found.roles).reduce(Roles::and)
    }

    /// Returns the name of the client that has a role: by its token, or else by its certificate. If the certificate
    /// names several, the one with the most precise pattern, and of those the first.
    pub fn name(
        &self,
        token: Option<&TokenHash>,
        certificate: Option<&CertificateIdentity>,
        role: Role,
        now: SystemTime,
    ) -> Option<Arc<str>> {
        if let Some(token) = token {
            let token = self.token(token, now).ok()?;
            if token.roles.has(role) {
                return Some(Arc::clone(&token.client));
            }
        }
        let named = self.named_by(certificate?).filter(|found| found.roles.has(role));
        named.rev().max_by_key(|found| found.pattern.precision()).map(|found| Arc::clone(&found.client))
    }

    fn named_by(&self, certificate: &CertificateIdentity) -> impl DoubleEndedIterator<Item = &Certificate> {
        self.certificates.iter().filter(|found| certificate.matches(&found.pattern))
    }

    fn token(&self, hash: &TokenHash, now: SystemTime) -> Result<&Token, AuthError> {
        // All hashes are compared, so that the time taken does not reveal which one matches.
        let mut found = None;
        for token in &self.tokens {
            if token.hash.is(hash) {
                found = Some(token);
            }
        }
        let token = found.ok_or(AuthError::Unknown)?;
        if token.end.is_some_and(|end| end <= now) { Err(AuthError::Expired) } else { Ok(token) }
    }
}

impl Principal {
    /// Checks that the roles are sufficient and not expired.
    ///
    /// # Errors
    /// [`AuthError`] if a role is missing or the credentials have expired.
    pub fn allows(&self, access: Access, now: impl FnOnce() -> SystemTime) -> Result<(), AuthError> {
        if self.end.is_some_and(|end| end <= now()) {
            return Err(AuthError::Expired);
        }
        match access {
            Access::Role(role) | Access::Named(role) if !self.roles.has(role) => Err(AuthError::Role(role)),
            _ => Ok(()),
        }
    }
}
