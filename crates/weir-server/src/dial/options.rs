//! The connection options that all commands share.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use hyper::header::HeaderValue;
use weir_core::domain::time::parse_duration;
use weir_settings::{Secret, tls::Paths};

use super::{Address, Destination, HTTP_2, Hints, Trust};

/// A service, and how to get there.
#[derive(Args)]
pub struct Options {
    /// The service: host:port, https://host:port or unix:PATH; default: WEIR_ADDR, else 127.0.0.1:8081
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<Address>,
    /// Time to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_timeout)]
    timeout: Duration,
    /// CA bundle (PEM) that verifies the server; default: WEIR_TLS_CA, else the system's. Enables TLS, as https:// does
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    tls_ca: Option<PathBuf>,
    /// The client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = SECURITY)]
    tls_cert: Option<PathBuf>,
    /// The private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = SECURITY)]
    tls_key: Option<PathBuf>,
    /// The name that the server's certificate must have; default: the host in --addr, or without --addr
    /// WEIR_TLS_SERVER_NAME
    #[arg(long, value_name = "NAME", help_heading = SECURITY)]
    tls_server_name: Option<String>,
    /// The bearer token. Other users of this machine can see options, but not environment variables
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true, default_value = "", hide_default_value = true,
        value_parser = parse_token, help_heading = SECURITY)]
    token: Secret,
}

const DEFAULT_ADDRESS: &str = "127.0.0.1:8081";
const HINTS: Hints = Hints {
    requires_tls: |authority| format!("write https://{authority} (--tls-ca FILE for a CA of your own)"),
    without_tls: "write http:// and no --tls-… options",
    ca: "--tls-ca FILE (WEIR_TLS_CA)",
    server_name: "--tls-server-name NAME",
};

/// Returns an environment variable; an empty one counts as not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The heading of the security options in the help.
const SECURITY: &str = "TLS and authorization";

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).map(|micros| Duration::from_micros(micros.unsigned_abs()))
}

fn parse_token(text: &str) -> Result<Secret, String> {
    Ok(Secret::from(text.to_owned()))
}

impl Options {
    /// Returns the destination.
    ///
    /// Options override environment variables. With `--addr` the only other variable that applies is `WEIR_TLS_CA`, and
    /// only if the address may use TLS.
    ///
    /// # Errors
    /// A sentence that names the option, the variable or the file.
    pub fn destination(&self) -> Result<Destination, String> {
        let address = match &self.addr {
            Some(address) => address.clone(),
            None => {
                let text = variable("WEIR_ADDR");
                let text = text.as_deref().unwrap_or(DEFAULT_ADDRESS);
                text.parse().map_err(|why| format!("WEIR_ADDR: {why}"))?
            }
        };
        let path = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        let (mut ca, cert, key) = (path(&self.tls_ca), path(&self.tls_cert), path(&self.tls_key));
        let mut server_name = self.tls_server_name.clone().unwrap_or_default();
        if address.may_be_encrypted() {
            if self.tls_ca.is_none() {
                ca = variable("WEIR_TLS_CA").unwrap_or_default().into();
            }
            if self.tls_server_name.is_none() && self.addr.is_none() {
                server_name = variable("WEIR_TLS_SERVER_NAME").unwrap_or_default();
            }
        }
        let paths = Paths { ca: &ca, cert: &cert, key: &key };
        let trust = Trust { paths, server_name: &server_name, alpn: HTTP_2, hints: HINTS };
        Destination::new(&address, trust)
    }

    /// Returns the `authorization` header of calls; `None` without a token.
    ///
    /// # Errors
    /// A sentence without the token, if no header can hold the token.
    pub fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        if self.token.is_empty() {
            return Ok(None);
        }
        let value = HeaderValue::try_from(format!("Bearer {}", self.token.reveal()));
        let mut value = value.map_err(|_| "the token has characters that no header can hold".to_owned())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Whether connections present a client certificate.
    pub fn has_certificate(&self) -> bool {
        self.tls_cert.is_some()
    }

    /// Returns the timeout of a call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn authorization(token: &str) -> Result<Option<HeaderValue>, String> {
        Command::parse_from(["weir", "--token", token]).options.authorization()
    }

    #[test]
    fn tokens_are_never_printed() {
        let value = authorization("geheim").unwrap().unwrap();
        assert_eq!((value.as_bytes(), format!("{value:?}").as_str()), (&b"Bearer geheim"[..], "Sensitive"));
        assert_eq!(authorization(""), Ok(None));
        let error = authorization("geheim\n").unwrap_err();
        assert!(!error.contains("geheim"), "{error}");
    }
}
