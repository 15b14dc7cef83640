use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use weir_client::{Check, Error, Tls};

use crate::support::{POLICY, Setup, TRADE, dir, eventually, patient, text};

fn token(dir: &Path, name: &str) -> (String, String) {
    let mut command = std::process::Command::new(crate::support::program());
    let out = command.args(["token", name, "--json"]).current_dir(dir).output().expect("it runs").stdout;
    let token: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    let field = |name: &str| token[name].as_str().expect("a text").to_owned();
    (field("token"), field("sha256"))
}

fn clients(dir: &Path, hashes: &[&str]) {
    let tokens: Vec<_> = hashes.iter().map(|hash| format!("{{ sha256: {hash} }}")).collect();
    let yaml = format!("callers: {{ shop: {{ roles: [check], tokens: [{}] }} }}", tokens.join(", "));
    fs::write(dir.join("new"), yaml).expect("written");
    fs::rename(dir.join("new"), dir.join("auth.yaml")).expect("renamed");
}

#[tokio::test]
async fn a_token_file_rotates() {
    let dir = dir();
    let (first, first_hash) = token(dir.path(), "shop");
    let (second, second_hash) = token(dir.path(), "shop");
    clients(dir.path(), &[&first_hash]);
    let setup = Setup::new(&dir, POLICY).env("WEIR_AUTH__FILE", text(&dir.path().join("auth.yaml")));
    let service = setup.start();
    let file = dir.path().join("token");
    fs::write(&file, format!("{first}\n")).unwrap();
    for coalesce in [false, true] {
        let weir = patient(&service.address).token_file(&file).coalesce(coalesce).build().unwrap();
        let passes = async || weir.check(Check::new(TRADE).cost(0)).await.ok();
        eventually("valid", passes).await;
        // The token is revoked before the client gets another one.
        clients(dir.path(), &[&second_hash]);
        let fails = async || matches!(weir.check(TRADE).await, Err(Error::Unauthenticated(_))).then_some(());
        eventually("revoked", fails).await;
        fs::write(&file, &second).unwrap();
        eventually("read again", passes).await;
        clients(dir.path(), &[&first_hash]);
        fs::write(&file, &first).unwrap();
    }
    let error = patient(&service.address).build().unwrap().check(TRADE).await.unwrap_err();
    assert!(matches!(error, Error::Unauthenticated(_)), "{error:?}");
    let weir = patient(&service.address).token(first).build().unwrap();
    let denied = async || matches!(weir.reset(TRADE).await, Err(Error::PermissionDenied(_))).then_some(());
    eventually("the role is missing", denied).await;
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate for this name and its key to files.
    fn sign(&self, dir: &Path, name: &str) -> [std::path::PathBuf; 2] {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("parameters");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        let files = [dir.join(format!("{name}.pem")), dir.join(format!("{name}.key"))];
        fs::write(&files[0], cert).expect("written");
        fs::write(&files[1], key.serialize_pem()).expect("written");
        files
    }
}

#[tokio::test]
async fn both_sides_have_certificates() {
    let (dir, authority) = (dir(), Authority::new());
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, &authority.pem).unwrap();
    let [cert, key] = authority.sign(dir.path(), "weir.test");
    let setup = Setup::new(&dir, POLICY).env("WEIR_GRPC__TLS__CLIENT_CA", text(&ca));
    let service = setup.env("WEIR_GRPC__TLS__CERT", text(&cert)).env("WEIR_GRPC__TLS__KEY", text(&key)).start();
    let [cert, key] = authority.sign(dir.path(), "shop.test");

    let weir = |tls| patient(&service.address).tls(tls).retries(0).build().unwrap();
    let tls = Tls::new().ca(&ca).server_name("weir.test");
    weir(tls.clone().identity(&cert, &key)).check(TRADE).await.unwrap();
    for wrong in
        [tls, Tls::new().ca(&ca).identity(&cert, &key), Tls::new().server_name("weir.test").identity(&cert, &key)]
    {
        let error = weir(wrong).check(TRADE).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    }
}

/// Writes a certificate as `openssl req -x509` does, a self-signed CA certificate, and its key to files.
fn self_signed(dir: &Path, not_after: i32) -> [std::path::PathBuf; 2] {
    let mut params = CertificateParams::new(["weir.test".to_owned()]).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(not_after, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let files = [dir.join("own.pem"), dir.join("own.key")];
    fs::write(&files[0], params.self_signed(&key).expect("a certificate").pem()).expect("written");
    fs::write(&files[1], key.serialize_pem()).expect("written");
    files
}

#[tokio::test]
async fn a_self_signed_certificate_is_its_own_authority() {
    for (not_after, name, passes) in
        [(2100, "weir.test", true), (2100, "other.test", false), (2020, "weir.test", false)]
    {
        let dir = dir();
        let [cert, key] = self_signed(dir.path(), not_after);
        let setup = Setup::new(&dir, POLICY).env("WEIR_GRPC__TLS__CERT", text(&cert));
        let service = setup.env("WEIR_GRPC__TLS__KEY", text(&key)).start();
        let tls = Tls::new().ca(&cert).server_name(name);
        let weir = patient(&service.address).tls(tls).retries(0).build().unwrap();
        let answer = weir.check(TRADE).await;
        assert_eq!(answer.is_ok(), passes, "{answer:?}");
    }
}
