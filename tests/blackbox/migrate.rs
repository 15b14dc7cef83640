//! `weir migrate envoy-ratelimit`: its output is loaded, and is equivalent to the variables.

use std::{fs, path::Path};

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use weir::config::{Flags, Settings};

use crate::support::{Folder, finish, run_with, server::Setup, weir};

/// The migration guide, whose table of variables comes from the command.
const GUIDE: &str = include_str!("../../docs/envoy.md");
const PASSWORD: &str = "geheim";

/// A realistic environment, and the expected result.
struct Case {
    /// The variables, one a line; `CERTS` is a directory with certificates.
    variables: &'static str,
    /// The settings that differ from the defaults; ports are listed only if they differ from envoyproxy/ratelimit's.
    settings: Value,
    /// The variables reported as manual steps, without an equivalent, and not needed.
    reported: [&'static [&'static str]; 3],
}

fn case(variables: &'static str, settings: Value, reported: [&'static [&'static str]; 3]) -> Case {
    Case { variables, settings, reported }
}

fn cases() -> Vec<Case> {
    vec![
        case(
            "# nothing\nPORT=\n",
            json!({ "store.url": "redis+unix:///var/run/nutcracker/ratelimit.sock?db=0" }),
            [&[]; 3],
        ),
        case(
            "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=redis.example:6379\nREDIS_AUTH=geheim\nREDIS_POOL_SIZE=50\nREDIS_TYPE=single",
            json!({ "store.url": "redis://redis.example:6379/0", "store.redis.password": "***" }),
            [&["REDIS_AUTH"], &[], &["REDIS_POOL_SIZE"]],
        ),
        case(
            "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=redis://app:geheim@redis.example:7000/3\nUSE_STATSD=false",
            json!({ "store.url": "redis://redis.example:7000/3", "store.redis.username": "app", "store.redis.password": "***" }),
            [&["REDIS_URL"], &[], &["USE_STATSD"]],
        ),
        case(
            "TRACING_ENABLED=1\nOTEL_EXPORTER_OTLP_ENDPOINT=http://app:geheim@127.0.0.1:9",
            json!({
                "store.url": "redis+unix:///var/run/nutcracker/ratelimit.sock?db=0",
                "tracing.otlp_endpoint": "http://127.0.0.1:9", "tracing.protocol": "http",
            }),
            [&["OTEL_EXPORTER_OTLP_ENDPOINT"], &[], &[]],
        ),
        case(
            "REDIS_TYPE=SENTINEL\nREDIS_SOCKET_TYPE=tcp\nREDIS_URL=my-master,s1:26379,s2\nREDIS_AUTH=app:geheim\n\
             REDIS_SENTINEL_AUTH=watch:geheim\nREDIS_STARTUP_MAX_ELAPSED_TIME=1m",
            json!({
                "store.url": "redis-sentinel://s1:26379,s2:26379/my%2Dmaster/0",
                "store.redis.username": "app", "store.redis.password": "***",
                "store.redis.sentinel.username": "watch", "store.redis.sentinel.password": "***",
            }),
            [&["REDIS_AUTH", "REDIS_SENTINEL_AUTH"], &[], &["REDIS_STARTUP_MAX_ELAPSED_TIME"]],
        ),
        case(
            "REDIS_TYPE=CLUSTER\nREDIS_SOCKET_TYPE=tcp\nREDIS_URL=c1:6379,c2:6380,[::1]:6381\nREDIS_TLS=true\n\
             REDIS_TLS_CACERT=CERTS/ca.pem\nREDIS_CLUSTER_PIPELINE_PARALLELISM=8",
            json!({
                "store.url": "redis-cluster://c1:6379,c2:6380,[::1]:6381",
                "store.redis.tls.enabled": true, "store.redis.tls.ca": "CERTS/ca.pem",
            }),
            [&[], &[], &["REDIS_CLUSTER_PIPELINE_PARALLELISM"]],
        ),
        case(
            "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=redis.example:6379\nREDIS_TLS=1\nREDIS_TLS_CLIENT_CERT=CERTS/ca.pem\n\
             REDIS_TLS_CLIENT_KEY=CERTS/ca.key\nREDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true",
            json!({
                "store.url": "rediss://redis.example:6379/0",
                "store.redis.tls.cert": "CERTS/ca.pem", "store.redis.tls.key": "CERTS/ca.key",
            }),
            [&["REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"], &[], &[]],
        ),
        case(
            "REDIS_SOCKET_TYPE=unix\nREDIS_URL=/run/redis server.sock\nREDIS_AUTH_FILE=CERTS/password\nREDIS_TLS=true",
            json!({
                "store.url": "redis+unix:///run/redis%20server.sock?db=0", "store.redis.password_file": "CERTS/password",
            }),
            [&["REDIS_TLS"], &[], &[]],
        ),
        case(
            "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=a:1\nREDIS_PERSECOND=true\nREDIS_PERSECOND_URL=b:1\n\
             REDIS_PERSECOND_AUTH=geheim\nLOCAL_CACHE_SIZE_IN_BYTES=1048576\nCACHE_KEY_PREFIX=shop:\nREDIS_TIMEOUT=2s500ms\n\
             REDIS_OP_TIMEOUT=5m\nREDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true\nNEAR_LIMIT_RATIO=0.9",
            json!({
                "store.url": "redis://a:1/0", "store.near_cache.enabled": true, "store.redis.key_prefix": "shop:weir:",
                "store.redis.connect_timeout": "2500ms", "store.redis.command_timeout": "1m",
                "store.redis.required_for_readiness": true,
            }),
            [&[], &["REDIS_PERSECOND", "REDIS_PERSECOND_URL", "REDIS_PERSECOND_AUTH", "NEAR_LIMIT_RATIO"], &[]],
        ),
        case(
            "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=h:1\nREDIS_TIMEOUT=0\nREDIS_OP_TIMEOUT=0s",
            json!({
                "store.url": "redis://h:1/0", "store.redis.connect_timeout": "1m", "store.redis.command_timeout": "1m",
            }),
            [&[]; 3],
        ),
        case(
            "CONFIG_TYPE=GRPC_XDS_SOTW\nXDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=0\nBACKEND_TYPE=memcache",
            json!({ "limits": "xds://localhost:18000" }),
            [&["BACKEND_TYPE"], &[], &[]],
        ),
        case(
            "BACKEND_TYPE=redis\nLIMIT_RESPONSE_HEADERS_ENABLED=true\nLIMIT_LIMIT_HEADER=X-Limit\nLIMIT_REMAINING_HEADER=X-Left\n\
             LIMIT_RESET_HEADER=X-Reset\nREDIS_SOCKET_TYPE=tcp\nREDIS_URL=h:1",
            json!({
                "store.url": "redis://h:1/0", "envoy.headers": "ratelimit", "envoy.limit_header": "X-Limit",
                "envoy.remaining_header": "X-Left", "envoy.reset_header": "X-Reset",
            }),
            [&[]; 3],
        ),
        case(
            "SHADOW_MODE=t\nQUOTA_MODE=TRUE\nMERGE_DOMAIN_CONFIG=1\nRESPONSE_DYNAMIC_METADATA=true\nBACKEND_TYPE=memcache\n\
             MEMCACHE_HOST_PORT=m:11211\nREDIS_PERSECOND=false\nSTOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true",
            json!({
                "envoy.charge": "over_limit_only", "envoy.shadow_mode": true, "envoy.quota_mode": true, "envoy.merge_domains": true,
                "envoy.dynamic_metadata": true,
            }),
            [&["BACKEND_TYPE"], &["MEMCACHE_HOST_PORT"], &["REDIS_PERSECOND"]],
        ),
        case(
            "HOST=127.0.0.1\nPORT=9080\nGRPC_HOST=::\nGRPC_PORT=9081\nDEBUG_PORT=6070\nGRPC_SERVER_USE_TLS=true\n\
             GRPC_MAX_CONNECTION_AGE=1h30m\nGRPC_MAX_CONNECTION_AGE_GRACE=0\nBACKEND_TYPE=memcache",
            json!({
                "http.listen": "127.0.0.1:9080", "grpc.listen": "[::]:9081", "grpc.max_connection_age": "90m",
                "grpc.max_connection_age_grace": "1d",
            }),
            [&["BACKEND_TYPE", "GRPC_SERVER_USE_TLS"], &[], &["DEBUG_PORT"]],
        ),
        case(
            "GRPC_SERVER_USE_TLS=true\nGRPC_SERVER_TLS_CERT=CERTS/ca.pem\nGRPC_SERVER_TLS_KEY=CERTS/ca.key\n\
             GRPC_CLIENT_TLS_CACERT=CERTS/ca.pem\nGRPC_CLIENT_TLS_SAN=envoy.example\nBACKEND_TYPE=memcache",
            json!({
                "grpc.tls.cert": "CERTS/ca.pem", "grpc.tls.key": "CERTS/ca.key", "grpc.tls.client_ca": "CERTS/ca.pem",
                "grpc.tls.client_names": ["envoy.example"],
            }),
            [&["BACKEND_TYPE", "GRPC_CLIENT_TLS_CACERT"], &[], &[]],
        ),
        case(
            "GRPC_UDS=/run/ratelimit.sock\nRUNTIME_ROOT=/data/\nRUNTIME_SUBDIRECTORY=ratelimit\nRUNTIME_APPDIRECTORY=rules\n\
             RUNTIME_IGNOREDOTFILES=true\nCONFIG_TYPE=FILE\nBACKEND_TYPE=memcache\nCOLOUR=red",
            json!({ "grpc.listen": "unix:/run/ratelimit.sock", "limits": "/data/ratelimit/rules" }),
            [&["BACKEND_TYPE"], &["COLOUR"], &["RUNTIME_IGNOREDOTFILES"]],
        ),
        case(
            "LOG_LEVEL=WARNING\nLOG_FORMAT=json\n\
             USE_STATSD=true\nSTATSD_HOST=s\nUSE_PROMETHEUS=true\nPROMETHEUS_ADDR=127.0.0.1:0\nTRACING_ENABLED=true\nTRACING_SERVICE_NAME=edge\nTRACING_SAMPLING_RATE=0.25\nOTEL_EXPORTER_OTLP_HEADERS=geheim\n\
             DOG_STATSD_MOGRIFIER_A_NAME=n\nBACKEND_TYPE=memcache",
            json!({
                "metrics.listen": "127.0.0.1:0", "log.level": "warn", "log.format": "json", "tracing.service_name": "edge", "tracing.sample_ratio": 0.25,
            }),
            [
                &["BACKEND_TYPE", "TRACING_ENABLED"],
                &["USE_STATSD", "STATSD_HOST", "DOG_STATSD_MOGRIFIER_A_NAME"],
                &["OTEL_EXPORTER_OTLP_HEADERS"],
            ],
        ),
        case(
            "CONFIG_TYPE=GRPC_XDS_SOTW\nCONFIG_GRPC_XDS_SERVER_URL=dns:///plane:18001\nCONFIG_GRPC_XDS_NODE_ID=edge\n\
             CONFIG_GRPC_XDS_NODE_METADATA=a=b,c=d\nCONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=authorization:geheim\n\
             CONFIG_GRPC_XDS_SERVER_USE_TLS=true\nCONFIG_GRPC_XDS_SERVER_TLS_CACERT=CERTS/ca.pem\n\
             CONFIG_GRPC_XDS_CLIENT_TLS_CERT=CERTS/ca.pem\nCONFIG_GRPC_XDS_CLIENT_TLS_KEY=CERTS/ca.key\n\
             CONFIG_GRPC_XDS_SERVER_TLS_SAN=plane.example\nCONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=3s\n\
             XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=1h\nXDS_CLIENT_BACKOFF_MAX_INTERVAL=1m\nXDS_CLIENT_BACKOFF_JITTER=true\n\
             XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=5000000000\nFORCE_START_WITHOUT_INITIAL_CONFIG=true\n\
             HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true\nBACKEND_TYPE=memcache",
            json!({
                "limits": "xds://plane:18001", "xds.node_id": "edge", "xds.node_metadata": ["a=b", "c=d"],
                "xds.tls.enabled": true, "xds.tls.ca": "CERTS/ca.pem", "xds.tls.cert": "CERTS/ca.pem",
                "xds.tls.key": "CERTS/ca.key", "xds.tls.server_name": "plane.example", "xds.backoff.initial": "1m",
                "xds.backoff.max": "1m", "xds.start": "not_ready",
            }),
            [
                &["BACKEND_TYPE", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"],
                &[],
                &["CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "XDS_CLIENT_BACKOFF_JITTER"],
            ],
        ),
        case(
            "TRACING_ENABLED=true\nTRACING_EXPORTER_PROTOCOL=grpc\nOTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1/\n\
             OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://127.0.0.1:2\nOTEL_EXPORTER_OTLP_CERTIFICATE=/other.pem\n\
             OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE=CERTS/ca.pem\nOTEL_EXPORTER_OTLP_TRACES_TIMEOUT=900\n\
             OTEL_EXPORTER_OTLP_TRACES_HEADERS=geheim\nOTEL_EXPORTER_OTLP_COMPRESSION=gzip\n\
             OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=gzip\nBACKEND_TYPE=memcache",
            json!({
                "tracing.otlp_endpoint": "https://127.0.0.1:2", "tracing.ca": "CERTS/ca.pem",
                "tracing.timeout": "900ms",
            }),
            [
                &["BACKEND_TYPE"],
                &[],
                &[
                    "OTEL_EXPORTER_OTLP_COMPRESSION",
                    "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
                    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                ],
            ],
        ),
        case(
            "TRACING_ENABLED=true\nOTEL_EXPORTER_OTLP_ENDPOINT=https://127.0.0.1:1/otlp\n\
             OTEL_EXPORTER_OTLP_CERTIFICATE=CERTS/ca.pem\nOTEL_EXPORTER_OTLP_TIMEOUT=1500\n\
             TRACING_SERVICE_NAMESPACE=shop\nTRACING_SERVICE_INSTANCE_ID=a-1\nBACKEND_TYPE=memcache",
            json!({
                "tracing.otlp_endpoint": "https://127.0.0.1:1/otlp/v1/traces", "tracing.protocol": "http",
                "tracing.ca": "CERTS/ca.pem", "tracing.timeout": "1500ms", "tracing.service_namespace": "shop",
                "tracing.service_instance_id": "a-1",
            }),
            [&["BACKEND_TYPE"], &[], &[]],
        ),
        case(
            "LIMIT_RESPONSE_HEADERS_ENABLED=true\nSHADOW_MODE=true\nREDIS_SOCKET_TYPE=tcp\nREDIS_URL=h:1",
            json!({ "store.url": "redis://h:1/0", "envoy.headers": "ratelimit", "envoy.shadow_mode": true }),
            [&["LIMIT_RESPONSE_HEADERS_ENABLED"], &[], &[]],
        ),
        case(
            "CONFIG_TYPE=GRPC_XDS_SOTW\nFORCE_START_WITHOUT_INITIAL_CONFIG=true\nBACKEND_TYPE=memcache",
            json!({ "limits": "xds://localhost:18000", "xds.start": "ready" }),
            [&["BACKEND_TYPE"], &[], &[]],
        ),
    ]
}

/// Makes a directory with a self-signed certificate, its key, and a password file.
fn certificates() -> Folder {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["redis.example".to_owned()]).expect("parameters");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    Folder::of(&[("ca.pem", &certificate), ("ca.key", &key.serialize_pem()), ("password", PASSWORD)])
}

/// Returns the settings of a file that differ from the defaults, by name.
fn differing(file: &Path, passwords: &[(&str, &str)]) -> Value {
    let passwords = passwords.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let loaded = Settings::load(Some(file), passwords, &Flags::default()).unwrap_or_else(|error| panic!("{error}"));
    let json = |settings| serde_json::to_value(settings).expect("settings are a map");
    let mut found = serde_json::Map::new();
    compare("", &json(loaded), &json(Settings::default()), &mut found);
    Value::Object(found)
}

fn compare(key: &str, loaded: &Value, default: &Value, found: &mut serde_json::Map<String, Value>) {
    match (loaded, default) {
        (Value::Object(loaded), Value::Object(default)) => {
            let dot = if key.is_empty() { "" } else { "." };
            loaded
                .iter()
                .for_each(|(below, value)| compare(&format!("{key}{dot}{below}"), value, &default[below], found));
        }
        _ if loaded != default => drop(found.insert(key.to_owned(), loaded.clone())),
        _ => {}
    }
}

/// Returns the variables listed in each section at the end of the output.
fn notes(text: &str, mark: &str) -> [Vec<String>; 3] {
    ["To be done by hand:", "Without an equivalent:", "Not needed:"].map(|heading| {
        let lines = text.lines().skip_while(|line| *line != format!("{mark}{heading}")).skip(1);
        let entries = lines.map_while(|line| line.strip_prefix(&format!("{mark}  ")));
        let mut names: Vec<_> = entries.map(|entry| entry.split(':').next().expect("a name").to_owned()).collect();
        names.sort();
        names
    })
}

#[test]
fn migrated_settings_load_and_mean_the_same() {
    let files = certificates();
    let dir = files.path("");
    let dir = dir.trim_end_matches('/');
    let mut remarks = String::new();
    for Case { variables, settings, reported } in cases() {
        let migrated = run_with(&["migrate", "envoy-ratelimit", "--env-file", "-"], &variables.replace("CERTS", dir));
        assert_eq!(migrated.code, 0, "{variables}: {}", migrated.err);
        let (out, err) = (&migrated.out, &migrated.err);
        assert!(!out.contains(PASSWORD) && !err.contains(PASSWORD), "{out}\n{err}");

        let reported = reported.map(|names| {
            let mut names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            names.sort();
            names
        });
        assert_eq!((notes(out, "# "), notes(err, "")), (reported.clone(), reported), "{variables}:\n{out}\n{err}");

        let setup = Setup::new();
        let file = setup.path("weir.yaml");
        fs::write(&file, out).expect("written");
        let variable_for = |key: &str, name: &'static str| settings.get(key).map(|_| (name, PASSWORD));
        let passwords = [
            variable_for("store.redis.password", "WEIR_STORE__REDIS__PASSWORD"),
            variable_for("store.redis.sentinel.password", "WEIR_STORE__REDIS__SENTINEL__PASSWORD"),
        ];
        let passwords: Vec<_> = passwords.into_iter().flatten().collect();
        let mut expected = json!({
            "grpc.listen": "[::]:8081", "http.listen": "[::]:8080", "limits": "/srv/runtime_data/current/config",
            "limits_allow_empty": true, "reset": "authenticated", "admin": "authenticated", "grpc.max_message_bytes": 4_194_304,
        });
        for (key, value) in settings.as_object().expect("a map") {
            expected[key] = serde_json::from_str(&value.to_string().replace("CERTS", dir)).expect("JSON");
        }
        assert_eq!(differing(&file, &passwords), expected, "{variables}:\n{out}");

        let mut setup = setup
            .arg("--config")
            .arg(file.to_str().expect("a path"))
            .policy("schema: {}")
            .env("WEIR_LOG__LEVEL", "info");
        for (name, value) in &passwords {
            setup = setup.env(name, value);
        }
        let server = setup.start();
        assert_eq!(
            server.get("/readyz").0,
            if expected["store.redis.required_for_readiness"] == true { 503 } else { 200 }
        );
        remarks.push_str(out);
    }
    every_setting_of_the_guide_is_met(&remarks);
}

fn every_setting_of_the_guide_is_met(remarks: &str) {
    let rows = GUIDE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"));
    let settings: Vec<_> = rows
        .map(|(name, _)| name)
        .filter(|name| name.bytes().all(|it| it == b'_' || it.is_ascii_uppercase()))
        .collect();
    assert!(settings.len() > 30, "{settings:?}");
    for name in settings {
        assert!(remarks.contains(name), "no case sets {name}");
    }
}

#[test]
fn environment_variables_are_read_without_an_env_file() {
    let run = finish(weir().args(["migrate", "envoy-ratelimit"]).env("GRPC_PORT", "9").env("COLOUR", "red"));
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(run.out.contains("# from GRPC_PORT\n  listen: \"[::]:9\"\n"), "{}", run.out);
    assert!(!run.out.contains("COLOUR"));
}

#[test]
fn a_kubernetes_pod_spec_is_accepted() {
    let pod = "
spec:
  containers:
    - name: ratelimit
      env:
        - { name: REDIS_SOCKET_TYPE, value: tcp }
        - { name: REDIS_URL, value: 'redis:6379' }
        - name: REDIS_AUTH
          valueFrom: { secretKeyRef: { name: redis, key: password } }
";
    let run = run_with(&["migrate", "envoy-ratelimit", "--env-file", "-"], pod);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("url: redis://redis:6379/0\n"), "{}", run.out);
    assert!(run.err.contains("REDIS_AUTH: its value is defined elsewhere"), "{}", run.err);
}

#[test]
fn errors_name_the_variable_and_hide_its_value() {
    for (variables, expected) in [
        ("PORT=geheim", "PORT is not a port"),
        ("SHADOW_MODE=geheim", "SHADOW_MODE is neither true nor false"),
        ("REDIS_TYPE=geheim", "REDIS_TYPE is none of"),
        ("REDIS_TYPE=CLUSTER", "REDIS_URL is not set"),
        ("REDIS_TYPE=SENTINEL\nREDIS_URL=geheim", "REDIS_URL: behind the master's name"),
        ("REDIS_URL=geheim", "REDIS_URL: REDIS_SOCKET_TYPE is not tcp"),
        ("REDIS_URL=redis://:geheim@h:port", "REDIS_URL: a port must be a number"),
        ("REDIS_URL=http://geheim", "REDIS_URL: a server is host:port"),
        ("REDIS_TIMEOUT=geheim", "REDIS_TIMEOUT is not a duration"),
        ("BACKEND_TYPE=geheim", "BACKEND_TYPE is neither"),
        ("CONFIG_TYPE=geheim", "CONFIG_TYPE is neither"),
        ("LOG_LEVEL=geheim", "LOG_LEVEL is not a level"),
        ("LOG_FORMAT=geheim", "LOG_FORMAT is neither"),
        ("LOCAL_CACHE_SIZE_IN_BYTES=geheim", "LOCAL_CACHE_SIZE_IN_BYTES is not a number"),
        ("[", "-: line 2: neither NAME=value nor YAML"),
    ] {
        let run = run_with(&["migrate", "envoy-ratelimit", "--env-file", "-"], variables);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{variables}");
        assert!(run.err.contains(expected) && !run.err.contains(PASSWORD), "{variables}: {}", run.err);
    }
    let run = finish(weir().args(["migrate", "envoy-ratelimit", "--env-file", "/nowhere"]));
    assert_eq!(run.code, 2);
    assert!(run.err.contains("/nowhere: No such file"), "{}", run.err);
}
