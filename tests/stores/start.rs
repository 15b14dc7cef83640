//! Contradictory settings of a shared store are rejected at start, in one sentence without secrets.

use std::fs;

use crate::support::{finish, weir};

#[test]
fn contradictory_store_settings_are_rejected_at_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("a path").to_owned()
    };
    let (secret, empty, junk) = (path("secret", "geheim\n"), path("empty", "\n"), path("junk.pem", "junk"));
    let redis = ("WEIR_STORE__URL", "redis://user:geheim@127.0.0.1:1");
    let tls = ("WEIR_STORE__URL", "rediss://:geheim@127.0.0.1:1");
    for (variables, expected) in [
        (&[("WEIR_STORE__URL", "rediss//:geheim@h")][..], "store.url"),
        (&[("WEIR_STORE__URL", "redis://:geheim@h:99999")], "store.url"),
        (&[("WEIR_STORE__URL", "redis://:geheim@")], "store.url"),
        (&[("WEIR_STORE__URL", "redis-sentinel://:geheim@h:1")], "store.url"),
        (&[("WEIR_STORE__URL", "redis-cluster://:geheim@h:1/3")], "store.url"),
        (&[("WEIR_STORE__URL", "redis://user@h")], "has no password"),
        (&[redis, ("WEIR_STORE__REDIS__PASSWORD_FILE", "/nowhere/secret")], "/nowhere/secret"),
        (&[redis, ("WEIR_STORE__REDIS__PASSWORD_FILE", &empty)], "empty"),
        (
            &[redis, ("WEIR_STORE__REDIS__PASSWORD_FILE", &secret), ("WEIR_STORE__REDIS__PASSWORD", "geheim")],
            "only one of them",
        ),
        (&[redis, ("WEIR_STORE__REDIS__POOL_SIZE", "0")], "store.redis.pool_size"),
        (&[redis, ("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "0s")], "store.redis.command_timeout"),
        (&[redis, ("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "2m")], "store.redis.connect_timeout"),
        (&[redis, ("WEIR_STORE__REDIS__KEY_PREFIX", &"p".repeat(129))], "store.redis.key_prefix"),
        (&[redis, ("WEIR_STORE__REDIS__MAX_BATCH", "0")], "store.redis.max_batch"),
        (&[redis, ("WEIR_STORE__REDIS__TLS__CA", &junk)], "not enabled"),
        (&[tls, ("WEIR_STORE__REDIS__TLS__CA", &junk)], "junk.pem"),
        (&[tls, ("WEIR_STORE__REDIS__TLS__CERT", &junk)], "store.redis.tls.key"),
        (&[redis, ("WEIR_STORE__REDIS__POOLSIZE", "1")], "unknown variable"),
    ] {
        let run = finish(weir().arg("serve").envs(variables.iter().copied()));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{variables:?}: {run:?}");
        assert!(run.err.contains(expected), "{variables:?}: {expected} is missing: {}", run.err);
        assert!(!run.err.contains("geheim"), "{}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    }
}
