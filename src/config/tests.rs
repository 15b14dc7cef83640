use super::*;
use crate::transport::rls::Headers;

pub fn load(yaml: &str, environment: &[(&str, &str)]) -> Result<Settings, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.yaml");
    std::fs::write(&path, yaml).unwrap();
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let settings = Settings::load(Some(&path), environment, &Flags::default());
    settings.map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
}

#[test]
fn the_environment_overrides_the_file_which_overrides_defaults() {
    let settings =
        load("grpc: { listen: '127.0.0.1:1', workers: 3 }", &[("WEIR_GRPC__LISTEN", "unix:/run/w")]).unwrap();
    assert_eq!(settings.grpc.listen.to_string(), "unix:/run/w");
    assert_eq!((settings.grpc.workers, settings.http.listen.to_string().as_str()), (3, "127.0.0.1:8080"));
    assert_eq!(load("", &[]).unwrap(), Settings::default());
}

#[test]
fn relative_paths_are_resolved_against_the_settings_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.yaml");
    for (limits, snapshot, expected) in [
        ("policies", "counts", (dir.path().join("policies"), dir.path().join("counts"))),
        ("/etc/weir", "/var/weir", (PathBuf::from("/etc/weir"), PathBuf::from("/var/weir"))),
        ("''", "''", (PathBuf::new(), PathBuf::new())),
    ] {
        std::fs::write(&path, format!("limits: {limits}\nstore: {{ snapshot: {{ path: {snapshot} }} }}")).unwrap();
        let settings = Settings::load(Some(&path), [], &Flags::default()).unwrap();
        assert_eq!((settings.limits, settings.store.snapshot.path), expected);
    }
    let variable = [("WEIR_STORE__SNAPSHOT__PATH".to_owned(), "counts".to_owned())];
    let settings = Settings::load(Some(&path), variable, &Flags::default()).unwrap();
    assert_eq!(settings.store.snapshot.path, PathBuf::from("counts"));
}

#[test]
fn numeric_strings_stay_strings() {
    assert_eq!(load("", &[("WEIR_LIMITS", "0123")]).unwrap().limits, PathBuf::from("0123"));
    assert_eq!(load("", &[("WEIR_SHUTDOWN__TIMEOUT", "5")]).unwrap().shutdown.timeout, Time::seconds(5));
    assert_eq!(load("shutdown: { timeout: 5 }", &[]).unwrap().shutdown.timeout, Time::seconds(5));
}

#[test]
fn variables_are_parsed_as_numbers_and_booleans() {
    let variables =
        [("WEIR_TRACING__SAMPLE_RATIO", "0.25"), ("WEIR_GRPC__WORKERS", "3"), ("WEIR_HTTP__UI__ENABLED", "yes")];
    let settings = load("", &variables).unwrap();
    assert_eq!((settings.tracing.sample_ratio, settings.grpc.workers, settings.http.ui.enabled), (0.25, 3, true));
    for (name, value) in [("WEIR_GRPC__WORKERS", "1.5"), ("WEIR_GRPC__WORKERS", "-1"), ("WEIR_HTTP__UI__ENABLED", "")] {
        assert!(load("", &[(name, value)]).is_err(), "{name}={value}");
    }
}

#[test]
fn an_empty_variable_does_not_turn_off_authentication_or_tls() {
    let tls = "{ tls: { cert: c, key: k, client_ca: a, client_names: [n] } }";
    let yaml = format!("auth: {{ file: a }}\ngrpc: {tls}\nhttp: {tls}");
    let assert_rejected = |variables: &[(&str, &str)], key: &str, protection: &str, place: &str| {
        let name = variable(key);
        let expected = format!("{name} is empty and would turn off {protection} by {key} of weir.yaml:{place};");
        let error = load(&yaml, variables).unwrap_err();
        assert!(error.starts_with(&expected), "{variables:?}: {error}");
    };
    for (key, protection, place) in [
        ("auth.file", "the authentication", "1:15"),
        ("grpc.tls.client_ca", "the authentication", "2:44"),
        ("grpc.tls.client_names", "the restriction of clients", "2:61"),
        ("grpc.tls.cert", "TLS", "2:22"),
        ("grpc.tls.key", "TLS", "2:30"),
        ("http.tls.client_ca", "the authentication", "3:44"),
        ("http.tls.client_names", "the restriction of clients", "3:61"),
        ("http.tls.cert", "TLS", "3:22"),
        ("http.tls.key", "TLS", "3:30"),
    ] {
        let name = variable(key);
        assert_rejected(&[(&name, "")], key, protection, place);
        assert!(load(&yaml, &[(&name, "b")]).is_ok());
        assert!(load("auth: { file: '' }", &[(&name, "")]).is_ok());
    }
    for empty in [",", "[]"] {
        assert_rejected(
            &[("WEIR_GRPC__TLS__CLIENT_NAMES", empty)],
            "grpc.tls.client_names",
            "the restriction of clients",
            "2:61",
        );
    }
    let all = ["CERT", "KEY", "CLIENT_CA", "CLIENT_NAMES"].map(|name| format!("WEIR_HTTP__TLS__{name}"));
    let variables: Vec<_> = all.iter().map(|name| (name.as_str(), "")).collect();
    assert_rejected(&variables, "http.tls.client_ca", "the authentication", "3:44");
    let plain = "grpc: { tls: { cert: c, key: k } }";
    let error = load(plain, &[("WEIR_GRPC__TLS__CERT", ""), ("WEIR_GRPC__TLS__KEY", "")]).unwrap_err();
    assert!(error.contains("would turn off TLS by grpc.tls.cert of weir.yaml:1:22"), "{error}");
}

#[test]
fn envoy_headers_and_metadata_are_off_by_default() {
    let default = load("", &[]).unwrap().envoy;
    assert_eq!((default.headers, default.dynamic_metadata), (Headers::Off, false));
    for (headers, ratelimit, draft11) in [
        ("off", false, false),
        ("ratelimit", true, false),
        ("x-ratelimit-limit", true, false),
        ("draft11", false, true),
        ("both", true, true),
    ] {
        let set = load(&format!("envoy: {{ headers: {headers}, reset_header: X-Reset }}"), &[]).unwrap().envoy;
        assert_eq!((set.three().is_some(), set.headers.draft11()), (ratelimit, draft11), "{headers}");
        assert_eq!((set.limit_header.as_str(), set.reset_header.as_str()), ("RateLimit-Limit", "X-Reset"));
    }
    let variables = [("WEIR_ENVOY__SHADOW_MODE", "true"), ("WEIR_ENVOY__HEADERS", "ratelimit")];
    let set = load("", &variables).unwrap().envoy;
    assert!(set.shadow_mode && set.three().is_some() && !set.quota_mode && !set.merge_domains);
}

#[test]
fn lists_are_accepted_as_yaml_or_comma_separated() {
    let names = |settings: Settings| settings.grpc.tls.client_names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let section = |names: &str| format!("grpc: {{ tls: {{ cert: c, key: k, client_ca: a, client_names: {names} }} }}");
    for text in ["[a, '*.b']", "'a, *.b'", "'a,,*.b,'"] {
        assert_eq!(names(load(&section(text), &[]).unwrap()), ["a", "*.b"], "{text}");
    }
    let variable = [("WEIR_GRPC__TLS__CLIENT_NAMES", "spiffe://a/*,7")];
    assert_eq!(names(load(&section("[a]"), &variable).unwrap()), ["spiffe://a/*", "7"]);
    assert!(names(load(&section("[]"), &[]).unwrap()).is_empty());
}

#[test]
fn kubernetes_and_command_variables_are_not_settings() {
    let injected = [
        ("WEIR_PORT", "tcp://10.0.0.1:8081"),
        ("WEIR_SERVICE_HOST", "x"),
        ("WEIR_PORT_8081_TCP", "y"),
        ("WEIR_PORT_8081_TCP_ADDR", "10.0.0.1"),
        ("WEIR_SERVICE_PORT_GRPC", "8081"),
        ("WEIR_VALKEY_PORT", "tcp://10.0.0.2:6379"),
        ("WEIR_VALKEY_PORT_6379_TCP_PROTO", "tcp"),
        ("WEIR_VALKEY_SERVICE_HOST", "10.0.0.2"),
        ("WEIR_VALKEY_SERVICE_PORT_REDIS", "6379"),
        ("WEIR_TOKEN", "z"),
        ("WEIR_ADDR", "https://weir:8081"),
        ("WEIR_TLS_CA", "ca.crt"),
        ("WEIR_TLS_SERVER_NAME", "weir"),
        ("WEIR_DEADLINE_MS", "50"),
    ];
    assert_eq!(load("", &injected).unwrap(), Settings::default());
}

#[test]
fn every_problem_of_the_file_and_of_variables_is_reported() {
    let variables = [
        ("WEIR_FOO", "1"),
        ("WEIR_GRPC__WORKERS", "many"),
        ("WEIR_HTTP__UI__HOSTS", "[[a]]"),
        ("WEIR_HTTP__WORKERS", "2"),
    ];
    let error = load("log: { colour: red }", &variables).unwrap_err();
    let lines: Vec<_> = error.lines().collect();
    let starts = [
        "weir.yaml:1:8: unknown key `log.colour`",
        "unknown variable `WEIR_FOO`",
        "WEIR_GRPC__WORKERS: grpc.workers must be a whole number",
        "WEIR_HTTP__UI__HOSTS must have single values",
    ];
    assert_eq!(lines.len(), starts.len(), "{error}");
    assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{error}");
}

#[test]
fn a_list_in_a_variable_is_comma_separated_or_yaml() {
    let hosts = |text: &str| load("", &[("WEIR_HTTP__UI__HOSTS", text)]).map(|settings| settings.http.ui.hosts);
    for text in ["a,b", " a , b ", "[a, b]", r#"["a", "b"]"#, "- a\n- b", r#" ["a","b"] "#] {
        assert_eq!(hosts(text).unwrap(), ["a", "b"], "{text}");
    }
    assert_eq!(hosts("[]").unwrap(), [""; 0]);
    for text in ["[a", r#"["a"], b"#, "[[a]]", "[{ a: b }]"] {
        let error = hosts(text).unwrap_err();
        assert!(error.contains("WEIR_HTTP__UI__HOSTS"), "{text}: {error}");
    }
}

#[test]
fn errors_name_the_key_and_its_position() {
    for (yaml, environment, text) in [
        ("grcp: {}", &[][..], "weir.yaml:1:1: unknown key `grcp`; did you mean `grpc`?"),
        ("a: [", &[], "weir.yaml:2:1: not valid YAML"),
        ("grpc:\n  lisen: x", &[], "weir.yaml:2:3: unknown key `grpc.lisen`; did you mean `grpc.listen`?"),
        ("http: { ui: { enabled: true, max_hot_keys: 9 } }", &[], "http.ui.max_hot_keys must be 10 to 10000"),
        ("http: { ui: { hosts: ['weir:8080'] } }", &[], "http.ui.hosts has `weir:8080`: a name has no scheme, port"),
        ("grpc: { listen: nowhere }", &[], "`nowhere` is not an address"),
        (
            &format!("grpc: {{ listen: 'unix:/{}' }}", "a".repeat(107)),
            &[],
            "the path of a socket can have at most 107 bytes",
        ),
        ("grpc: 7", &[], "weir.yaml:1:7: grpc must be a map"),
        ("grpc: [", &[], "weir.yaml:2:1: not valid YAML"),
        ("", &[("WEIR_", "x")], "unknown variable `WEIR_`"),
        ("", &[("WEIR_GRPC", "x")], "unknown variable `WEIR_GRPC`"),
        (
            "",
            &[("WEIR_LISTEN", "x")],
            "unknown variable `WEIR_LISTEN`; did you mean `WEIR_GRPC__LISTEN`, `WEIR_HTTP__LISTEN` or `WEIR_METRICS__LISTEN`?",
        ),
        ("", &[("WEIR_GRPC__WORKER", "1")], "WEIR_GRPC__WORKER"),
        (
            "",
            &[("WEIR_GRPC__WORKERS", "many")],
            "WEIR_GRPC__WORKERS: grpc.workers must be a whole number from 0, not `many`",
        ),
        ("", &[("WEIR_GRPC__LISTEN", "nowhere")], "grpc.listen"),
        ("", &[("WEIR_GRPC__RUNTIME", "fast")], "grpc.runtime"),
        ("", &[("WEIR_LIMIT_SPEC", "forbid")], "WEIR_LIMIT_SPEC: limit_spec must be `allow` or `deny`, not `forbid`"),
        ("", &[("WEIR_SHUTDOWN__DELAY", "soon")], "shutdown.delay"),
        ("", &[("WEIR_MAX_PERIOD", "400d")], "max_period"),
        ("", &[("WEIR_LOG__FORMAT", "xml")], "log.format"),
        ("", &[("WEIR_LOG__LEVEL", "weir=loud")], "log.level"),
        ("", &[("WEIR_LOG__LEVEL", "verbose")], "log.level"),
        ("store: { url: 'rdis://:secret@h' }", &[], "unknown store `rdis`"),
        ("", &[("WEIR_STORE__URL", "redis://:secret@h/db")], "store.url: the database is not a number"),
        ("", &[("WEIR_STORE__MAX_KEYS", "0")], "store.max_keys"),
        ("", &[("WEIR_STORE__WHEN_FULL", "forget")], "store.when_full"),
        ("", &[("WEIR_STORE__SNAPSHOT__EVERY", "999ms")], "store.snapshot.every"),
        ("", &[("WEIR_STORE__SNAPSHOT__EVERY", "25h")], "store.snapshot.every"),
        ("max_period: 400d", &[], "max_period must be"),
        ("auth: { file: x, fil: y }", &[], "unknown key `auth.fil`; did you mean `auth.file`?"),
        ("grpc: { tls: { cert: a } }", &[], "grpc.tls.cert and key: either both are set or none"),
        ("http: { tls: { client_ca: a } }", &[], "http.tls.client_ca is set, but no certificate"),
        ("http: { tls: { cert: a, key: a, client_names: [b] } }", &[], "http.tls.client_names is set, but client_ca"),
        ("http: { tls: { client_names: b: c } }", &[], "weir.yaml"),
        ("http: { tls: { client_names: { b: c } } }", &[], "http.tls.client_names must be a list, not a map"),
        ("http: { tls: { client_names: [[b]] } }", &[], "http.tls.client_names must have single values, not a list"),
        ("http: { tls: { client_names: ['*b'] } }", &[], "`*b` may have a `*` only in"),
        ("grpc: { listen: 'unix:/s', tls: { cert: a, key: a } }", &[], "grpc.tls.cert: a unix socket is not encrypted"),
        ("grpc: { tls: { handshake_timeout: 99ms } }", &[], "grpc.tls.handshake_timeout must be 100ms to 60s"),
        ("grpc: { tls: { max_handshakes: 0 } }", &[], "grpc.tls.max_handshakes must be 1 to 100000"),
        (
            "http: { max_connections: 256, tls: { cert: a, key: a } }",
            &[],
            "max_handshakes must be less than max_connections",
        ),
        ("grpc: { tls: { client_auth: maybe } }", &[], "grpc.tls.client_auth"),
        ("grpc: { max_connection_age: 99ms }", &[], "grpc.max_connection_age must be 100ms to 366d, or 0 for none"),
        ("http: { max_connection_age_grace: 25h }", &[], "http.max_connection_age_grace must be 0 to 1d"),
        ("http: { idle_timeout: 367d }", &[], "http.idle_timeout must be 100ms to 366d"),
        ("grpc: { max_requests_per_second: 10000001 }", &[], "grpc.max_requests_per_second must be 1 to 10000000"),
        ("", &[("WEIR_GRPC__MAX_CONCURRENT_REQUESTS", "some")], "grpc.max_concurrent_requests"),
        ("http: { max_concurrent_requests: 10000001 }", &[], "max_concurrent_requests must be 0 to 10000000"),
        ("grpc: { message_timeout: 99ms }", &[], "grpc.message_timeout must be 100ms to 1d"),
        ("grpc: { listen: ' 127.0.0.1:1' }", &[], "grpc.listen: ` 127.0.0.1:1` is not an address: it has a space"),
        ("", &[("WEIR_METRICS__LISTEN", "127.0.0.1 :1")], "metrics.listen: `127.0.0.1 :1` is not an address"),
        (
            "{ grpc: { listen: 'a:1' }, metrics: { listen: 'a:1' } }",
            &[],
            "metrics.listen overlaps grpc.listen: a:1 and a:1",
        ),
        (
            "{ grpc: { listen: '0.0.0.0:1' }, http: { listen: '127.0.0.1:1' } }",
            &[],
            "http.listen overlaps grpc.listen: 127.0.0.1:1 and 0.0.0.0:1",
        ),
        (
            "{ grpc: { listen: '127.0.0.1:1' }, http: { listen: '[::]:1' } }",
            &[],
            "http.listen overlaps grpc.listen: [::]:1 and 127.0.0.1:1",
        ),
        ("shutdown: { delay: 2d }", &[], "shutdown.delay must be 0 to 1d"),
        ("envoy: { headers: on }", &[], "envoy.headers"),
        ("envoy: { reset_header: 'a b' }", &[], "envoy.reset_header: `a b` is not a header name"),
        ("envoy: { limit_header: '' }", &[], "envoy.limit_header: `` is not a header name"),
    ] {
        let error = load(yaml, environment).unwrap_err();
        assert!(error.contains(text), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
