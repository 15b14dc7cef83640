//! Translates the variables of the Redis store.

use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use weir_core::domain::Micros;
use weir_store::{
    StoreUrl,
    url::{Address, Credentials, RedisUrl, Topology},
};

use super::{
    environment::{Environment, from},
    times,
    translation::Translation,
};
use crate::config::store::{MAX_PREFIX_BYTES, REDIS_TIMEOUT};

/// Default address of the server in envoyproxy/ratelimit.
const DEFAULT_SOCKET: &str = "/var/run/nutcracker/ratelimit.sock";

/// Translates the settings of the store.
///
/// # Errors
/// The name of a variable that cannot be parsed.
pub(super) fn store(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    match environment.text("BACKEND_TYPE") {
        None | Some("redis") => {}
        Some("memcache") => {
            translation.set("store.url", "memory", "BACKEND_TYPE: memcached is not supported.");
            translation.require(
                "BACKEND_TYPE: memcached is not supported; in memory each replica counts for itself, so name a Redis in \
                 store.url where several are to count together"
                    .to_owned(),
            );
            return Ok(());
        }
        Some(_) => return Err("BACKEND_TYPE is neither redis nor memcache".to_owned()),
    }
    let mut found = servers(environment)?;
    let in_url = found.credentials.take();
    let tls = encryption(environment, &mut found, translation)?;
    let text = found.to_string();
    text.parse::<StoreUrl>().map_err(|error| format!("REDIS_URL: {error}"))?;
    translation.set(
        "store.url",
        text,
        from(environment, &["REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_TLS"]),
    );
    near_cache(environment, translation)?;
    login(environment, in_url, translation);
    if tls {
        certificates(environment, translation)?;
    }
    behaviour(environment, translation)
}

/// Returns the servers that are named, with the user and password in their URL.
fn servers(environment: &Environment) -> Result<RedisUrl, String> {
    let kind = environment.text("REDIS_TYPE").unwrap_or("SINGLE").to_ascii_uppercase();
    let found = match (kind.as_str(), environment.text("REDIS_URL")) {
        ("SINGLE", text) => single(environment, text.unwrap_or(DEFAULT_SOCKET)),
        ("SENTINEL" | "CLUSTER", None) => return Err(format!("REDIS_TYPE is {kind}, but REDIS_URL is not set")),
        ("SENTINEL", Some(text)) => match text.split_once(',') {
            Some((master, sentinels)) => {
                let master = format!("/{}", utf8_percent_encode(master.trim(), NON_ALPHANUMERIC));
                // envoyproxy/ratelimit does not document whose password is in the URL of a Sentinel.
                several("redis-sentinel", sentinels, &master).map(|url| RedisUrl { credentials: None, ..url })
            }
            None => Err("behind the master's name there are Sentinels: master,host:port,…".to_owned()),
        },
        ("CLUSTER", Some(text)) => several("redis-cluster", text, ""),
        _ => return Err("REDIS_TYPE is none of SINGLE, SENTINEL and CLUSTER".to_owned()),
    };
    found.map_err(|error| format!("REDIS_URL: {error}"))
}

fn single(environment: &Environment, text: &str) -> Result<RedisUrl, String> {
    if text.contains("://") || environment.text("REDIS_SOCKET_TYPE") == Some("tcp") {
        let (tls, rest) = without_scheme(text)?;
        return Ok(RedisUrl { tls, ..parsed(format!("redis://{rest}"))? });
    }
    if !Path::new(text).is_absolute() {
        return Err("REDIS_SOCKET_TYPE is not tcp, so the absolute path of a socket is meant".to_owned());
    }
    let topology = Topology::Single(Address::Unix(text.into()));
    Ok(RedisUrl { topology, tls: false, credentials: None, database: 0 })
}

/// Joins servers separated by commas, each with or without a scheme, a user and a database, to one URL.
fn several(scheme: &str, text: &str, path: &str) -> Result<RedisUrl, String> {
    let (mut hosts, mut credentials, mut encrypted) = (Vec::new(), None, false);
    for server in text.split(',') {
        let (tls, rest) = without_scheme(server.trim())?;
        let (info, rest) = rest.rsplit_once('@').map_or((None, rest), |(info, rest)| (Some(info), rest));
        credentials = credentials.or(info);
        encrypted |= tls;
        hosts.push(rest.split('/').next().unwrap_or(rest));
    }
    let info = credentials.map(|info| format!("{info}@")).unwrap_or_default();
    Ok(RedisUrl { tls: encrypted, ..parsed(format!("{scheme}://{info}{}{path}", hosts.join(",")))? })
}

fn without_scheme(server: &str) -> Result<(bool, &str), String> {
    match server.split_once("://") {
        None => Ok((false, server)),
        Some(("redis", rest)) => Ok((false, rest)),
        Some(("rediss", rest)) => Ok((true, rest)),
        Some(_) => Err("a server is host:port, redis:// or rediss://".to_owned()),
    }
}

fn parsed(url: String) -> Result<RedisUrl, String> {
    match url.parse()? {
        StoreUrl::Redis(url) => Ok(url),
        StoreUrl::Memory => Err("no server is named".to_owned()),
    }
}

/// Returns whether connections are encrypted, and enables TLS where the topology requires it.
fn encryption(environment: &Environment, url: &mut RedisUrl, translation: &mut Translation) -> Result<bool, String> {
    let asked = environment.is_on("REDIS_TLS")? || url.tls;
    url.tls = false;
    match &url.topology {
        _ if !asked => return Ok(false),
        Topology::Single(Address::Unix(_)) => {
            translation.require("REDIS_TLS: a unix socket is not encrypted, so this is left out");
            return Ok(false);
        }
        Topology::Single(_) => url.tls = true,
        Topology::Sentinel { .. } | Topology::Cluster { .. } => {
            translation.set("store.redis.tls.enabled", "true", from(environment, &["REDIS_TLS", "REDIS_URL"]));
        }
    }
    Ok(true)
}

fn certificates(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const SKIPS_NAMES: &str = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION";
    const PAIR: [&str; 2] = ["REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY"];
    if let Some(path) = environment.text("REDIS_TLS_CACERT") {
        let remark = "instead of whom the system trusts, not beside it.";
        translation.set("store.redis.tls.ca", path, format!("from REDIS_TLS_CACERT, {remark}"));
    }
    match PAIR.map(|name| environment.text(name)) {
        [Some(_), Some(_)] => translation.copy(environment, &PAIR),
        [None, None] => {}
        _ => translation.require(format!("{} and {}: both are set or none", PAIR[0], PAIR[1])),
    }
    if environment.is_on(SKIPS_NAMES)? {
        let key = "store.redis.tls.server_name";
        let step =
            format!("{SKIPS_NAMES}: names are always verified here; set {key} to the name in the servers' certificate");
        translation.require_setting(key, step);
    }
    Ok(())
}

/// Translates user and password; the password is never printed.
fn login(environment: &Environment, in_url: Option<Credentials>, translation: &mut Translation) {
    translation.copy(environment, &["REDIS_AUTH_FILE"]);
    let of_auth = environment.text("REDIS_AUTH").map(|text| text.split_once(':').unwrap_or(("", text)));
    let of_url = in_url.as_ref().map(|found| (found.user.as_str(), found.password.reveal()));
    let whose =
        [("REDIS_AUTH", of_auth), ("REDIS_URL", of_url)].into_iter().find_map(|(name, found)| Some((name, found?)));
    if let Some((name, (user, password))) = whose {
        let keys = ["store.redis.username", "store.redis.password", "store.redis.password_file"];
        let password =
            Some(password).filter(|password| !password.is_empty() && environment.text("REDIS_AUTH_FILE").is_none());
        set_login(translation, name, user, password, keys, "WEIR_STORE__REDIS__PASSWORD");
    }
    let sentinels = environment.text("REDIS_TYPE").is_some_and(|kind| kind.eq_ignore_ascii_case("sentinel"));
    if let Some(text) = environment.text("REDIS_SENTINEL_AUTH").filter(|_| sentinels) {
        let (user, password) = text.split_once(':').unwrap_or(("", text));
        let keys =
            ["store.redis.sentinel.username", "store.redis.sentinel.password", "store.redis.sentinel.password_file"];
        set_login(
            translation,
            "REDIS_SENTINEL_AUTH",
            user,
            Some(password),
            keys,
            "WEIR_STORE__REDIS__SENTINEL__PASSWORD",
        );
    }
    if sentinels && environment.text("REDIS_URL").is_some_and(|text| text.contains('@')) {
        translation.require(
            "REDIS_URL: a user or password beside a Sentinel is left out; the master's go to store.redis.username and \
             WEIR_STORE__REDIS__PASSWORD, the Sentinels' to the same below store.redis.sentinel"
                .to_owned(),
        );
    }
}

fn set_login(
    translation: &mut Translation,
    name: &str,
    user: &str,
    password: Option<&str>,
    [username, password_key, password_file]: [&'static str; 3],
    variable: &str,
) {
    if !user.is_empty() && user != "default" {
        translation.set(username, user, format!("from {name}"));
    }
    if let Some(password) = password {
        let remark =
            format!("The password in {name} is not printed: set {variable} to it, or write it to a file named here.");
        translation.show(password_file, remark);
        let step =
            format!("{name}: set {variable} to the password in it, or write it to a file and set {password_file}");
        translation.hide(password_key, password, step);
    }
}

fn near_cache(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    const NAME: &str = "LOCAL_CACHE_SIZE_IN_BYTES";
    let Some(text) = environment.text(NAME) else { return Ok(()) };
    let bytes: u64 = text.parse().map_err(|_| format!("{NAME} is not a number of bytes"))?;
    if bytes > 0 {
        let remark = format!(
            "from {NAME}. Refusals are remembered for max_age, so that what other replicas give back\n\
             is seen soon; not with `charge: over_limit_only`."
        );
        translation.set("store.near_cache.enabled", "true", remark);
    }
    Ok(())
}

fn behaviour(environment: &Environment, translation: &mut Translation) -> Result<(), String> {
    for (name, key) in
        [("REDIS_TIMEOUT", "store.redis.connect_timeout"), ("REDIS_OP_TIMEOUT", "store.redis.command_timeout")]
    {
        if let Some(given) = times::given(environment, name)? {
            // In envoyproxy/ratelimit 0 means no timeout.
            let kept = times::within(if given == 0 { Micros::MAX } else { given }, &REDIS_TIMEOUT);
            times::set(translation, key, name, given, kept);
        }
    }
    if environment.is_on("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION")? {
        let remark =
            "from REDIS_HEALTH_CHECK_ACTIVE_CONNECTION. With a store that is down for all, no replica is ready.";
        translation.set("store.redis.required_for_readiness", "true", remark);
    }
    if let Some(prefix) = environment.text("CACHE_KEY_PREFIX") {
        let prefix = format!("{prefix}weir:");
        if prefix.contains(['{', '}']) || prefix.len() > MAX_PREFIX_BYTES {
            translation.require(
                "CACHE_KEY_PREFIX: a prefix has at most 128 bytes and no braces; set store.redis.key_prefix".to_owned(),
            );
        } else {
            translation.set(
                "store.redis.key_prefix",
                prefix,
                "from CACHE_KEY_PREFIX, apart from the keys of that service",
            );
        }
    }
    Ok(())
}
