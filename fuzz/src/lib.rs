//! Fuzz targets for all untrusted input, as functions of bytes that panic if a property does not hold. `README.md`
//! describes how they are run.

pub mod auth;
pub mod envoy;
pub mod fixture;
pub mod http;
pub mod key;
pub mod logs;
pub mod messages;
pub mod policies;
pub mod redis;
pub mod reservations;
pub mod snapshots;

/// A target: takes any bytes, and panics if a property does not hold.
pub type Target = fn(&[u8]);

/// Every target, with the name of its corpus and program.
pub const TARGETS: &[(&str, Target)] = &[
    ("access_log", logs::access_log),
    ("auth_file", auth::file),
    ("batch", messages::batch),
    ("check", messages::check),
    ("cluster_slots", redis::cluster_slots),
    ("descriptors", policies::descriptors),
    ("envoy_json", envoy::json),
    ("http_json", http::json),
    ("key", key::key),
    ("policy", policies::native),
    ("ratelimit", envoy::ratelimit),
    ("redis_answer", redis::answer),
    ("redis_reply", redis::reply),
    ("reserve", reservations::reserve),
    ("reset", messages::reset),
    ("settle", reservations::settle),
    ("snapshot", snapshots::content),
    ("snapshot_file", snapshots::file),
    ("trace", logs::trace),
];
