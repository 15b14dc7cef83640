//! Resets: deletion of a key's states.

use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{Pipeline, Value, from_redis_value};
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::{
    command::{command, failure},
    encode::reset_call,
    io::Io,
    node::Node,
    reply::Answers,
    retry::retried,
    scan::{ServerId, server_id},
    servers::Servers,
};
use weir_core::domain::Key;
use weir_telemetry::{Causes, request};

use crate::{Failure, ResetDone, failure::ErrorCode};

/// The cursor at the start and at the end of a scan. Other cursors are valid on the same server only.
const START: &[u8] = b"0";
/// `COUNT` of one page of a `SCAN`.
const PAGE: &[u8] = b"1000";
/// Most restarts of a reset with several pages, when the server changes each time.
const MAX_STARTS: u32 = 8;
/// Most consecutive attempts at one page.
const PAGE_TRIES: u32 = 8;
/// Pause before the second attempt. It doubles, so that the last attempt follows after six seconds.
const PAGE_PAUSE: Duration = Duration::from_millis(50);
/// Longest search for the server of a key whose hash slot is migrating.
const KEY_TIMEOUT: Duration = Duration::from_secs(5);

/// The scope of a reset: the hash with the key's own states, the prefix of their fields, and whether the subtree is
/// included.
#[derive(Clone, Debug)]
pub(super) struct ResetScope {
    /// Name of the hash.
    pub hash: Vec<u8>,
    /// Prefix of the fields, the key beyond its anchor.
    pub field_prefix: Vec<u8>,
    /// Whether all keys below are included.
    pub subtree: bool,
    /// Whether keys below have separate hashes, whose names start with this hash's name.
    pub other_hashes: bool,
}

impl ResetScope {
    /// Determines the scope for a key whose domain has this anchor, under `prefix`.
    pub(super) fn new(prefix: &[u8], key: &Key, anchor: u8, subtree: bool) -> Self {
        let depth = key.depth();
        let place = key.prefix(depth.min(usize::from(anchor)));
        let field_prefix = key.prefix(depth)[place.len()..].to_vec();
        Self {
            hash: [prefix, place].concat(),
            field_prefix,
            subtree,
            other_hashes: subtree && depth < usize::from(anchor),
        }
    }
}

/// Deletes a key's states in its hash.
///
/// # Errors
/// [`Failure`] when some may remain.
pub(super) async fn reset_hash(io: &Io, scope: &ResetScope) -> Result<ResetDone, Failure> {
    let (mut cursor, mut done, now) = (START.to_vec(), ResetDone::default(), io.servers.time().virtual_now());
    // The server, identified once there is a second page: a cursor is valid on one server only, so the reset then
    // restarts, as after any change of the server.
    let (mut server, mut tries) = (None::<(Arc<Node>, ServerId)>, 0);
    loop {
        let call = reset_call(now, &scope.field_prefix, scope.subtree, &cursor);
        let (reply, node) = io.servers.script(&[&scope.hash], &call, io.deadline()).await?;
        let (next, found) = Answers::reset(&reply)?;
        done |= found;
        let id = || retried(io.deadline(), || server_id(&node));
        let is_same = server.as_ref().is_some_and(|(before, _)| Arc::ptr_eq(before, &node));
        match (next, &server) {
            (None, None) => return Ok(done),
            (Some(next), _) if is_same => cursor = next,
            (None, Some((_, before))) if is_same && id().await? == *before => return Ok(done),
            _ if tries == MAX_STARTS => return Err(Failure::Lost("its key's server changed too often".into())),
            _ => {
                let id = id().await?;
                (cursor, tries, server) = (START.to_vec(), tries + 1, Some((node, id)));
            }
        }
    }
}

/// Deletes all keys of one server whose names start with `prefix`, and returns how many there were.
///
/// # Errors
/// [`Failure`] when some may remain.
pub(super) async fn delete_by_prefix(servers: &Servers, node: &Node, prefix: &[u8]) -> Result<usize, Failure> {
    let pattern = [&escaped(prefix)[..], b"*"].concat();
    let (mut cursor, mut deleted) = (START.to_vec(), 0);
    let (mut tries, mut pause) = (1, PAGE_PAUSE);
    loop {
        let server = node.changes();
        match page(servers, node, &pattern, &cursor, &mut deleted).await {
            Ok(_) if node.changes() != server => cursor = START.to_vec(),
            Ok(next) if next == START => return Ok(deleted),
            Ok(next) => (cursor, tries, pause) = (next, 1, PAGE_PAUSE),
            Err(failure) if tries == PAGE_TRIES || is_permanent(&failure) => return Err(failure),
            Err(failure) => {
                debug!(
                    request_id = request::request_id(),
                    trace_id = request::trace_id(),
                    server = %node.address(),
                    error = %Causes(&failure),
                    "a page of a scan failed"
                );
                if !is_of_the_same_server(&failure) {
                    cursor = START.to_vec();
                }
                sleep(pause).await;
                (tries, pause) = (tries + 1, 2 * pause);
            }
        }
    }
}

/// Whether a retry would fail too.
fn is_permanent(failure: &Failure) -> bool {
    matches!(failure, Failure::Server(_)) || failure.error_code() == Some(ErrorCode::NoPerm)
}

/// Whether the cursor is still valid: another server, or a restarted one, iterates over its keys in a different order.
fn is_of_the_same_server(failure: &Failure) -> bool {
    use ErrorCode::{Busy, ClusterDown, NoWrites, Oom, TryAgain};
    match failure {
        Failure::Late => true,
        _ => matches!(failure.error_code(), Some(Busy | ClusterDown | NoWrites | Oom | TryAgain)),
    }
}

/// Deletes the keys of one page and returns the next cursor. Adds the number of keys to `gone`.
async fn page(
    servers: &Servers,
    node: &Node,
    pattern: &[u8],
    cursor: &[u8],
    deleted: &mut usize,
) -> Result<Vec<u8>, Failure> {
    let page = node.command(&command(&[b"SCAN", cursor, b"MATCH", pattern, b"COUNT", PAGE]), false).await?;
    let unreadable = |_| Failure::Server("the reply to SCAN cannot be read".into());
    let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = from_redis_value(page).map_err(unreadable)?;
    if keys.is_empty() {
        return Ok(next);
    }
    // One `UNLINK` for each key, because on a Cluster each may be in another hash slot, but in one round trip.
    let mut unlinks = Pipeline::with_capacity(keys.len());
    keys.iter().for_each(|key| {
        unlinks.add_command(command(&[b"UNLINK", key]));
    });
    let replies = node.commands(&unlinks).await?;
    for (key, reply) in keys.iter().zip(replies) {
        match reply.extract_error().map_err(failure) {
            Ok(Value::Int(removed)) => *deleted += usize::from(removed > 0),
            Ok(_) => return Err(Failure::Server("the reply to UNLINK cannot be read".into())),
            // The key's hash slot is migrating or has moved.
            Err(failure)
                if matches!(failure.error_code(), Some(ErrorCode::Moved | ErrorCode::Ask | ErrorCode::TryAgain)) =>
            {
                servers.command(key, &[b"UNLINK", key], Instant::now() + KEY_TIMEOUT).await?;
                *deleted += 1;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(next)
}

/// Escapes a text so that a glob pattern matches it literally.
pub(super) fn escaped(text: &[u8]) -> Vec<u8> {
    let special = |byte: &u8| b"*?[]\\^-".contains(byte);
    text.iter().flat_map(|byte| special(byte).then_some(b'\\').into_iter().chain([*byte])).collect()
}
