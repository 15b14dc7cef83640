//! TLS to Redis: trusted certificates, and client certificates.

use std::{fs, path::PathBuf};

use weir_store::redis::settings::{RedisSettings, TlsSettings};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

use crate::server::{Server, TlsFiles, ask, connect, eventually, patient, pool, refused};

/// A certificate authority, with a directory for its certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With equal subject names the signed certificates would appear to be self-signed.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let (key, dir) = (KeyPair::generate().expect("a key"), tempfile::tempdir().expect("a directory"));
        fs::write(dir.path().join("ca.pem"), params.self_signed(&key).expect("a certificate").pem()).expect("written");
        fs::write(dir.path().join("ca.key"), key.serialize_pem()).expect("written");
        Self { issuer: Issuer::new(params, key), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a certificate for a host, and its key, to files with this name.
    fn sign(&self, name: &str, host: &str) -> (PathBuf, PathBuf) {
        self.sign_with(name, host, |_| ())
    }

    fn sign_with(&self, name: &str, host: &str, set: impl FnOnce(&mut CertificateParams)) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        set(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let (cert_file, key_file) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&cert_file, certificate.pem()).expect("written");
        fs::write(&key_file, key.serialize_pem()).expect("written");
        (cert_file, key_file)
    }

    /// Starts a server with a certificate for a host.
    fn server(&self, host: &str, clients_too: bool) -> Server {
        let (cert, key) = self.sign("server", host);
        Server::tls(TlsFiles { cert, key, ca: self.path("ca.pem"), clients_too })
    }

    /// Starts a server with a certificate with these parameters.
    fn server_with(&self, host: &str, set: impl FnOnce(&mut CertificateParams)) -> Server {
        let (cert, key) = self.sign_with("server", host, set);
        Server::tls(TlsFiles { cert, key, ca: self.path("ca.pem"), clients_too: false })
    }

    /// Starts a server that presents the authority's own certificate, which is for localhost.
    fn self_signed_server(&self) -> Server {
        let [cert, key] = ["ca.pem", "ca.key"].map(|name| self.path(name));
        Server::tls(TlsFiles { ca: cert.clone(), cert, key, clients_too: false })
    }

    fn trusted(&self) -> TlsSettings {
        TlsSettings { ca: self.path("ca.pem"), ..TlsSettings::default() }
    }
}

fn with(tls: TlsSettings) -> RedisSettings {
    RedisSettings { tls, ..patient() }
}

#[tokio::test]
async fn the_server_certificate_is_verified_by_ca_and_name() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server("localhost", false);
    let by_name = format!("rediss://localhost:{}", server.port);
    let by_number = format!("rediss://127.0.0.1:{}", server.port);
    connect(&by_name, &with(authority.trusted())).await.expect("connected");

    for (url, settings) in [
        (&by_name, stranger.trusted()),
        (&by_name, TlsSettings::default()),
        (&by_number, authority.trusted()),
        (&by_name, TlsSettings { server_name: "elsewhere".to_owned(), ..authority.trusted() }),
    ] {
        let failure = refused(url, &with(settings)).await;
        assert_eq!(failure.kind(), "connect", "{failure}");
        assert!(failure.to_string().contains("TLS"), "{failure}");
    }
    let named = TlsSettings { server_name: "localhost".to_owned(), ..authority.trusted() };
    connect(&by_number, &with(named)).await.expect("connected");

    let enabled = TlsSettings { enabled: true, ..authority.trusted() };
    connect(&format!("redis://localhost:{}", server.port), &with(enabled)).await.expect("connected");
    let plain = refused(&format!("redis://localhost:{}", server.port), &patient()).await;
    assert_eq!(plain.kind(), "connect", "{plain}");
}

/// `openssl req -x509` makes such a certificate: self-signed, with CA:TRUE, and presented by the server itself.
#[tokio::test]
async fn a_self_signed_certificate_is_accepted_as_its_own_ca() {
    let (own, stranger) = (Authority::new(), Authority::new());
    let server = own.self_signed_server();
    let by_name = format!("rediss://localhost:{}", server.port);
    let by_number = format!("rediss://127.0.0.1:{}", server.port);
    connect(&by_name, &with(own.trusted())).await.expect("connected");
    let named = TlsSettings { server_name: "localhost".to_owned(), ..own.trusted() };
    connect(&by_number, &with(named)).await.expect("connected");
    for (url, settings, why) in [
        (&by_name, stranger.trusted(), "certificate"),
        (&by_name, TlsSettings::default(), "certificate"),
        (&by_number, own.trusted(), "not valid for name"),
    ] {
        let failure = refused(url, &with(settings)).await;
        assert_eq!(failure.kind(), "connect", "{failure}");
        assert!(failure.to_string().contains(why), "{failure}");
    }
}

#[tokio::test]
async fn a_discarded_tls_connection_is_closed_before_its_reply() {
    let authority = Authority::new();
    let server = authority.server("localhost", false);
    let url = format!("rediss://localhost:{}", server.port);
    let connection = connect(&url, &with(authority.trusted())).await.expect("connected");
    let blocked = connection.clone();
    let reply = tokio::spawn(async move { ask(&blocked, "BLPOP nothing 0").await });
    eventually("the command is sent", async || server.run("CLIENT LIST").contains("cmd=blpop")).await;
    connection.discard();
    eventually("it is closed", async || !server.run("CLIENT LIST").contains("name=weir")).await;
    assert!(reply.await.expect("a task").is_err());
}

#[tokio::test]
async fn client_certificates_are_sent_and_reloaded() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server("localhost", true);
    let url = format!("rediss://localhost:{}", server.port);
    let failure = refused(&url, &with(authority.trusted())).await;
    assert_eq!(failure.kind(), "connect", "{failure}");

    let (cert, key) = stranger.sign("weir", "weir");
    let settings = with(TlsSettings { cert: cert.clone(), key: key.clone(), ..authority.trusted() });
    let pool = pool(&url, &settings, 1);
    assert!(pool.get().await.is_err(), "a stranger's certificate is believed");
    let (new_cert, new_key) = authority.sign("weir", "weir");
    fs::copy(new_cert, &cert).expect("copied");
    fs::copy(new_key, &key).expect("copied");
    match pool.get().await {
        Ok(connection) => connection.discard(),
        Err(failure) => panic!("the new certificate is not taken up: {failure}"),
    }
    fs::remove_file(&cert).expect("removed");
    let Err(failure) = pool.get().await else { panic!("connected without the certificate") };
    assert!(failure.to_string().contains("weir.pem: No such file"), "{failure}");
}

#[tokio::test]
async fn a_closed_tls_connection_is_detected() {
    let authority = Authority::new();
    let server = authority.server("localhost", false);
    let url = format!("rediss://localhost:{}", server.port);
    let connection = connect(&url, &with(authority.trusted())).await.expect("connected");
    assert!(connection.is_usable());
    server.run("CLIENT KILL TYPE normal");
    eventually("the end is noticed", async || !connection.is_usable()).await;
}

/// Failures are logged when their text changes, so it must not contain the current time.
#[tokio::test]
async fn an_expired_certificate_has_one_error() {
    let authority = Authority::new();
    for (first, last, why) in [(2000, 2001, "Expired"), (4000, 4001, "NotValidYet")] {
        let server = authority.server_with("localhost", |params| {
            (params.not_before, params.not_after) = (date_time_ymd(first, 1, 1), date_time_ymd(last, 1, 1));
        });
        let url = format!("rediss://localhost:{}", server.port);
        let failure = refused(&url, &with(authority.trusted())).await.to_string();
        assert!(failure.ends_with(&format!("invalid peer certificate: {why}")), "{failure}");
    }
}
