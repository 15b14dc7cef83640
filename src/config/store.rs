//! What settings of the store may be, alone and together.

use std::path::Path;

use crate::{
    domain::{Micros, time::SECOND},
    store::{
        StoreSettings, StoreUrl,
        near::NearCacheSettings,
        redis::{
            login::Login,
            settings::{RedisSettings, TlsSettings},
            tls::Tls,
        },
        url::{Address, RedisUrl, Topology},
    },
};

/// Longest key prefix in bytes.
const MAX_PREFIX_BYTES: usize = 128;
const MILLISECOND: Micros = 1_000;

/// Checks bounds, and what contradicts itself. Files are looked into, servers are not called.
///
/// # Errors
/// A sentence that names the key.
pub fn check(store: &StoreSettings) -> Result<(), String> {
    holds((1..=1 << 32).contains(&store.max_keys), "store.max_keys is 1 to 2^32")?;
    bounds(&store.redis)?;
    let NearCacheSettings { max_age, max_entries, .. } = &store.near_cache;
    holds((MILLISECOND..=SECOND).contains(&max_age.0), "store.near_cache.max_age is 1ms to 1s")?;
    holds((1..=1_000_000).contains(max_entries), "store.near_cache.max_entries is 1 to 1000000")?;
    passwords(&store.redis)?;
    match &store.url {
        StoreUrl::Memory => Ok(()),
        StoreUrl::Redis(url) => redis(url, &store.redis),
    }
}

fn holds(condition: bool, otherwise: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn set(path: &Path) -> bool {
    !path.as_os_str().is_empty()
}

fn bounds(redis: &RedisSettings) -> Result<(), String> {
    let times = MILLISECOND..=60 * SECOND;
    holds(redis.key_prefix.len() <= MAX_PREFIX_BYTES, "store.redis.key_prefix is at most 128 bytes")?;
    holds((1..=64).contains(&redis.pool_size), "store.redis.pool_size is 1 to 64")?;
    holds(times.contains(&redis.connect_timeout.0), "store.redis.connect_timeout is 1ms to 60s")?;
    holds(times.contains(&redis.command_timeout.0), "store.redis.command_timeout is 1ms to 60s")?;
    holds((1..=1_000_000).contains(&redis.max_queue), "store.redis.max_queue is 1 to 1000000")?;
    holds((1..=1_024).contains(&redis.max_batch), "store.redis.max_batch is 1 to 1024")
}

fn passwords(redis: &RedisSettings) -> Result<(), String> {
    for (section, password, file) in [
        ("store.redis", &redis.password, &redis.password_file),
        ("store.redis.sentinel", &redis.sentinel.password, &redis.sentinel.password_file),
    ] {
        let one = password.is_empty() || !set(file);
        holds(one, &format!("{section}.password and {section}.password_file: only one of them may be set"))?;
    }
    Ok(())
}

fn redis(url: &RedisUrl, redis: &RedisSettings) -> Result<(), String> {
    let login = Login::to_servers(url.credentials.as_ref(), redis);
    holds(!login.lacks_password(), "store.redis.username or the user in store.url has no password")?;
    login.check_file().map_err(|error| format!("store.redis.password_file: {error}"))?;
    let login = Login::to_sentinels(&redis.sentinel);
    holds(!login.lacks_password(), "store.redis.sentinel.username has no password")?;
    if matches!(url.topology, Topology::Sentinel { .. }) {
        login.check_file().map_err(|error| format!("store.redis.sentinel.password_file: {error}"))?;
    }
    tls(url, &redis.tls)
}

fn tls(url: &RedisUrl, tls: &TlsSettings) -> Result<(), String> {
    let TlsSettings { ca, cert, key, server_name, enabled } = tls;
    if !url.tls && !enabled {
        let nothing = !(set(ca) || set(cert) || set(key) || !server_name.is_empty());
        return holds(
            nothing,
            "store.redis.tls is set but not enabled: use rediss:// or store.redis.tls.enabled: true",
        );
    }
    let unix = matches!(url.topology, Topology::Single(Address::Unix(_)));
    holds(!unix, "store.redis.tls.enabled: a unix socket is not encrypted")?;
    holds(set(cert) == set(key), "store.redis.tls.cert and store.redis.tls.key: either both are set or none")?;
    let tls = Tls::new(tls.clone());
    tls.check().map_err(|error| format!("store.redis.tls: {error}"))
}
