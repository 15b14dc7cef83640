//! What outsiders can reach, as functions of bytes that panic where something does not hold. `README.md` tells how they
//! are run.

pub mod auth;
pub mod envoy;
pub mod http;
pub mod key;
pub mod logs;
pub mod messages;
pub mod policies;
pub mod redis;
pub mod reservations;
pub mod scene;
pub mod snapshots;

/// Takes any bytes, and panics where something does not hold.
pub type Target = fn(&[u8]);

/// Every target, by the name of its corpus and of its program.
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
