//! Protection against cross-site requests and DNS rebinding: in a browser only Weir's own pages may send requests. A
//! simple request of another site must have no effect, and a host name that resolves to this server does not make a
//! page Weir's own.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::Request,
    http::{HeaderName, StatusCode, header, uri::Authority},
};

use super::problem::Problem;

/// The header by which a browser describes the origin of a request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The sites of Weir's own pages.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    names: Arc<[String]>,
    /// Whether authentication is enabled. If so, a page of another origin has no token.
    is_authentication_enabled: bool,
}

impl Sites {
    /// Returns sites that accept pages opened by an IP address, as `localhost`, over TLS, or by one of these host
    /// names; by any name if authentication is enabled (`is_authentication_enabled`).
    pub fn new(names: &[String], is_authentication_enabled: bool) -> Self {
        Self { names: names.into(), is_authentication_enabled }
    }

    /// Accepts requests of other clients than browsers, and of Weir's own pages.
    ///
    /// # Errors
    /// [`Problem`], 403: the request is of another site's page; or the page was opened over plain HTTP by another host
    /// name, and authentication is disabled. The owner of such a name can let it resolve to a page of theirs first, and
    /// to this server afterwards (DNS rebinding).
    pub fn check(&self, request: &Request) -> Result<(), Problem> {
        let forbidden = |detail: String| Err(Problem::new(StatusCode::FORBIDDEN, detail));
        if !is_same_site(request) {
            return forbidden("requests from other sites are rejected".to_owned());
        }
        let Some(origin) = request.headers().get(header::ORIGIN) else { return Ok(()) };
        let (scheme, host) = origin.to_str().ok().and_then(|origin| origin.split_once("://")).unwrap_or_default();
        let authority = host.parse::<Authority>();
        let name = authority.as_ref().map_or("", Authority::host);
        if scheme == "https" || scheme == "http" && (self.is_authentication_enabled || self.is_own(name)) {
            return Ok(());
        }
        forbidden(format!(
            "the page was opened by the name `{name}`, which any site could have resolved to this address: open it by an address or over https, or \
             name it in http.ui.hosts"
        ))
    }

    fn is_own(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(&host))
    }
}

/// Whether the request is same-origin, as far as a browser's headers show. Other clients send none of these headers.
fn is_same_site(request: &Request) -> bool {
    let headers = request.headers();
    match (headers.get(SITE), headers.get(header::ORIGIN)) {
        (Some(site), _) => site == "same-origin" || site == "none",
        (None, Some(origin)) => {
            let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
            let host = host.or_else(|| request.uri().authority().map(Authority::as_str));
            let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            origin.is_some_and(|(_, origin)| host.is_some_and(|host| host.eq_ignore_ascii_case(origin)))
        }
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request {
        let asked = headers.iter().fold(Request::builder(), |asked, (name, value)| asked.header(*name, *value));
        asked.body(Body::empty()).unwrap()
    }

    fn asks(headers: &[(&str, &str)]) -> bool {
        Sites::new(&["weir.example".to_owned()], false).check(&request(headers)).is_ok()
    }

    #[test]
    fn cross_site_requests_are_rejected() {
        let host = ("host", "weir.example:8080");
        assert!(asks(&[host]));
        assert!(asks(&[host, ("origin", "http://weir.example:8080")]));
        assert!(asks(&[("host", "within:1"), ("origin", "https://other.example"), ("sec-fetch-site", "same-origin")]));
        assert!(asks(&[host, ("sec-fetch-site", "none")]));
        for origin in ["null", "http://other.example", "http://weir.example", "http://weir.example:8080.other"] {
            assert!(!asks(&[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(!asks(&[host, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!asks(&[("origin", "http://weir.example")]));
    }

    #[test]
    fn unknown_host_names_are_rejected() {
        let opened = |host: &str| asks(&[("host", host), ("origin", &format!("http://{host}"))]);
        for own in [
            "127.0.0.1:8080",
            "[::1]:8080",
            "10.1.2.3",
            "localhost:8080",
            "LOCALHOST",
            "weir.localhost:1",
            "WEIR.example:8080",
        ] {
            assert!(opened(own), "{own}");
        }
        for other in [
            "rebound.example:8080",
            "localhost.example",
            "127.0.0.1.example",
            "weir.example.other",
            "notlocalhost",
            "other.weir.example",
        ] {
            assert!(!opened(other), "{other}");
        }
        let rebound = request(&[("host", "rebound.example"), ("origin", "http://rebound.example")]);
        assert!(Sites::default().check(&rebound).is_err());
        assert!(Sites::new(&[], true).check(&rebound).is_ok());
        assert!(!asks(&[("origin", "null"), ("sec-fetch-site", "same-origin")]));
    }
}
