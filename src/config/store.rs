//! Validates the settings of the store.

use std::ops::RangeInclusive;

use weir_core::domain::{Micros, time::SECOND};
use weir_settings::{ensure, file::is_set};
use weir_store::{
    StoreSettings, StoreUrl,
    memory::snapshot::SnapshotSettings,
    near_cache::NearCacheSettings,
    redis::{
        credentials::CredentialsSource,
        settings::{RedisSettings, TlsSettings},
        tls as store_tls,
    },
    url::{Address, RedisUrl, Topology},
};

use super::Settings;

/// Maximum length of a key prefix, in bytes.
pub const MAX_PREFIX_BYTES: usize = 128;
const MILLISECOND: Micros = 1_000;
/// The bounds of the timeouts of Redis, in microseconds.
pub const REDIS_TIMEOUT: RangeInclusive<Micros> = MILLISECOND..=60 * SECOND;
const MAX_WAIT_REPLICAS: u32 = 16;

/// Checks bounds and contradictions, without the files.
///
/// # Errors
/// A message that names the key.
pub(super) fn check(store: &StoreSettings) -> Result<(), String> {
    ensure((1..=1 << 32).contains(&store.max_keys), "store.max_keys must be 1 to 2^32")?;
    let every = SnapshotSettings::EVERY.contains(&store.snapshot.every.0);
    ensure(every, "store.snapshot.every must be 1s to 1d")?;
    bounds(&store.redis)?;
    let NearCacheSettings { max_age, max_entries, .. } = &store.near_cache;
    ensure((MILLISECOND..=SECOND).contains(&max_age.0), "store.near_cache.max_age must be 1ms to 1s")?;
    ensure((1..=1_000_000).contains(max_entries), "store.near_cache.max_entries must be 1 to 1000000")?;
    passwords(&store.redis)?;
    match &store.url {
        StoreUrl::Memory => Ok(()),
        StoreUrl::Redis(url) => redis(url, &store.redis),
    }
}

fn bounds(redis: &RedisSettings) -> Result<(), String> {
    ensure(redis.key_prefix.len() <= MAX_PREFIX_BYTES, "store.redis.key_prefix must be at most 128 bytes")?;
    // On a Cluster, braces would put all keys into one hash slot.
    ensure(!redis.key_prefix.contains(['{', '}']), "store.redis.key_prefix cannot have braces")?;
    ensure((1..=64).contains(&redis.pool_size), "store.redis.pool_size must be 1 to 64")?;
    ensure(REDIS_TIMEOUT.contains(&redis.connect_timeout.0), "store.redis.connect_timeout must be 1ms to 60s")?;
    ensure(REDIS_TIMEOUT.contains(&redis.command_timeout.0), "store.redis.command_timeout must be 1ms to 60s")?;
    ensure((1..=1_000_000).contains(&redis.max_queue), "store.redis.max_queue must be 1 to 1000000")?;
    ensure((1..=1_024).contains(&redis.max_batch), "store.redis.max_batch must be 1 to 1024")?;
    let keys = redis.charge_after_outage.max_keys;
    ensure((1..=10_000_000).contains(&keys), "store.redis.charge_after_outage.max_keys must be 1 to 10000000")?;
    ensure(redis.wait_replicas <= MAX_WAIT_REPLICAS, "store.redis.wait_replicas must be 0 to 16")
}

fn passwords(redis: &RedisSettings) -> Result<(), String> {
    for (section, password, file) in [
        ("store.redis", &redis.password, &redis.password_file),
        ("store.redis.sentinel", &redis.sentinel.password, &redis.sentinel.password_file),
    ] {
        let one = password.is_empty() || !is_set(file);
        ensure(one, format!("{section}.password and {section}.password_file: only one of them may be set"))?;
    }
    Ok(())
}

fn redis(url: &RedisUrl, redis: &RedisSettings) -> Result<(), String> {
    let source = CredentialsSource::of_servers(url.credentials.as_ref(), redis);
    ensure(!source.lacks_password(), "store.redis.username or the user in store.url has no password")?;
    let source = CredentialsSource::of_sentinels(&redis.sentinel);
    ensure(!source.lacks_password(), "store.redis.sentinel.username has no password")?;
    tls(url, &redis.tls)
}

impl Settings {
    /// Returns a problem, with the key, for each setting of the store whose files cannot be used.
    pub fn unusable_store_files(&self) -> Vec<String> {
        let StoreUrl::Redis(url) = &self.store.url else { return Vec::new() };
        let redis = &self.store.redis;
        let of_servers = CredentialsSource::of_servers(url.credentials.as_ref(), redis).read();
        let is_sentinel = matches!(url.topology, Topology::Sentinel { .. });
        let of_sentinels = is_sentinel.then(|| CredentialsSource::of_sentinels(&redis.sentinel).read());
        let tls = has_tls(url, &redis.tls).then(|| store_tls::check(&redis.tls));
        let problems = [
            of_servers.err().map(|error| format!("store.redis.password_file: {error}")),
            of_sentinels.and_then(Result::err).map(|error| format!("store.redis.sentinel.password_file: {error}")),
            tls.and_then(Result::err).map(|error| format!("store.redis.tls: {error}")),
        ];
        problems.into_iter().flatten().collect()
    }
}

fn has_tls(url: &RedisUrl, tls: &TlsSettings) -> bool {
    url.tls || tls.enabled
}

fn tls(url: &RedisUrl, tls: &TlsSettings) -> Result<(), String> {
    let TlsSettings { cert, key, .. } = tls;
    if !has_tls(url, tls) {
        let unused = |set| {
            format!(
                "store.redis.tls.{set} is set but TLS is not enabled: use rediss:// or store.redis.tls.enabled: true"
            )
        };
        return tls.first_set().map_or(Ok(()), |set| Err(unused(set)));
    }
    let unix = matches!(url.topology, Topology::Single(Address::Unix(_)));
    ensure(!unix, "store.redis.tls.enabled: a unix socket is not encrypted")?;
    ensure(is_set(cert) == is_set(key), "store.redis.tls.cert and store.redis.tls.key: either both are set or none")
}

#[cfg(test)]
mod tests {
    use crate::config::{Flags, Settings, tests::load};
    use weir_store::StoreUrl;

    fn password(settings: &Settings) -> &str {
        match &settings.store.url {
            StoreUrl::Redis(url) => url.credentials.as_ref().map_or("", |found| found.password.reveal()),
            StoreUrl::Memory => "",
        }
    }

    #[test]
    fn passwords_are_kept_from_every_source_and_never_printed() {
        let url = "redis://:geheim@h";
        let from_file = load(&format!("store: {{ url: '{url}' }}"), &[]).unwrap();
        let from_variable = load("", &[("WEIR_STORE__URL", url)]).unwrap();
        let flags = Flags { store: Some(url.to_owned()), ..Flags::default() };
        let from_flag = Settings::load(None, [], &flags).unwrap();
        for settings in [from_file, from_variable, from_flag] {
            assert_eq!(password(&settings), "geheim");
            let shown = format!("{settings:?}{}", serde_json::to_string(&settings).unwrap());
            assert!(!shown.contains("geheim"), "{shown}");
        }
        let settings = load("store: { redis: { password: 0123 } }", &[("WEIR_STORE__REDIS__SENTINEL__PASSWORD", "45")]);
        let settings = settings.unwrap();
        assert_eq!(settings.store.redis.password.reveal(), "0123");
        assert_eq!(settings.store.redis.sentinel.password.reveal(), "45");
        let shown = format!("{settings:?}{}", serde_json::to_string(&settings).unwrap());
        assert!(!shown.contains("0123"), "{shown}");
    }

    #[test]
    fn every_file_that_cannot_be_used_is_found() {
        let found = |url: &str, redis: &str| {
            load(&format!("store: {{ url: '{url}', redis: {redis} }}"), &[]).unwrap().unusable_store_files()
        };
        for (url, expected) in [
            ("redis://h", &["store.redis.password_file: ", "store.redis.tls: "][..]),
            (
                "redis-sentinel://h/main",
                &["store.redis.password_file: ", "store.redis.sentinel.password_file: ", "store.redis.tls: "],
            ),
            ("memory", &[]),
        ] {
            let redis = "{ password_file: /nowhere, sentinel: { password_file: /nowhere }, tls: { enabled: true, ca: /nowhere } }";
            let found = found(url, redis);
            assert_eq!(found.len(), expected.len(), "{url}: {found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    found.starts_with(expected) && found.ends_with("/nowhere: No such file or directory (os error 2)"),
                    "{found}"
                );
            }
        }
        let tls = |tls: &str| found("rediss://h", &format!("{{ tls: {{ {tls} }} }}")).concat();
        assert_eq!(tls("server_name: 'a b'"), "store.redis.tls: `a b` is not a host name");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(tls(&format!("ca: {manifest}")).contains("Cargo.toml: it contains no certificate"));
        assert_eq!(tls(""), "");
    }

    #[test]
    fn contradictory_settings_are_rejected() {
        for (redis, expected) in [
            ("username: app", "store.redis.username or the user in store.url has no password"),
            ("password: a, password_file: b", "only one of them may be set"),
            ("sentinel: { password: a, password_file: b }", "store.redis.sentinel.password and"),
            ("sentinel: { username: a }", "store.redis.sentinel.username has no password"),
            ("tls: { ca: x }", "store.redis.tls.ca is set but TLS is not enabled"),
            ("tls: { enabled: true, cert: weir.yaml }", "either both are set or none"),
            ("key_prefix:", ""),
            ("pool_size: 0", "store.redis.pool_size must be 1 to 64"),
            ("pool_size: 65", "store.redis.pool_size must be 1 to 64"),
            ("connect_timeout: 61s", "store.redis.connect_timeout must be 1ms to 60s"),
            ("command_timeout: 999us", "store.redis.command_timeout must be 1ms to 60s"),
            ("max_queue: 0", "store.redis.max_queue must be"),
            ("max_batch: 1025", "store.redis.max_batch must be 1 to 1024"),
            ("wait_replicas: 17", "store.redis.wait_replicas must be 0 to 16"),
            ("charge_after_outage: { max_keys: 0 }", "store.redis.charge_after_outage.max_keys must be 1 to 10000000"),
            ("pool: 1", "unknown key `store.redis.pool`"),
        ] {
            let loaded = load(&format!("store: {{ url: 'redis://h', redis: {{ {redis} }} }}"), &[]);
            assert_eq!(loaded.is_ok(), expected.is_empty(), "{redis}: {loaded:?}");
            let error = loaded.err().unwrap_or_default();
            assert!(error.contains(expected), "{redis}: {error}");
        }
        let long = "p".repeat(129);
        assert!(load("", &[("WEIR_STORE__REDIS__KEY_PREFIX", &long)]).unwrap_err().contains("at most 128 bytes"));
        let unix = load("store: { url: 'redis+unix:///s', redis: { tls: { enabled: true } } }", &[]).unwrap_err();
        assert!(unix.contains("a unix socket is not encrypted"), "{unix}");
    }
}
