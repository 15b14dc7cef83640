//! Forgetting keys.

use std::time::Duration;

use redis_protocol::resp2::types::OwnedFrame;
use tokio::time::Instant;

use super::{connection::Reply, encode::reset_call, node::Node, reply::Answers, servers::Servers};
use crate::{
    domain::{Key, Micros},
    store::Failure,
};

/// Keys that a server is asked to look at in one page of a scan.
const PAGE: &[u8] = b"1000";

/// What is to be forgotten: the hash that holds the key's own states, what their fields begin with, and whether what is
/// below goes too.
#[derive(Clone, Debug)]
pub struct Forgotten {
    /// The hash.
    pub hash: Vec<u8>,
    /// The beginning of the fields.
    pub rest: Vec<u8>,
    /// With all that is below.
    pub subtree: bool,
    /// What is below has hashes of its own, whose names begin like this one's.
    pub elsewhere: bool,
}

impl Forgotten {
    /// Of a key, whose domain has this anchor, under `prefix`.
    pub fn new(prefix: &[u8], key: &Key, anchor: u8, subtree: bool) -> Self {
        let depth = key.depth();
        let place = key.prefix(depth.min(usize::from(anchor)));
        let rest = key.prefix(depth)[place.len()..].to_vec();
        Self { hash: [prefix, place].concat(), rest, subtree, elsewhere: subtree && depth < usize::from(anchor) }
    }
}

/// Forgets what the hash of a key holds of it; tells whether the key itself had a state.
///
/// # Errors
/// Why it is not certain that all is forgotten.
pub async fn own(
    servers: &Servers,
    now: Option<Micros>,
    timeout: Duration,
    forgotten: &Forgotten,
) -> Result<bool, Failure> {
    let (mut cursor, mut existed) = (b"0".to_vec(), false);
    loop {
        let call = reset_call(now, &forgotten.rest, forgotten.subtree, &cursor);
        let reply = servers.script(&forgotten.hash, &call, Instant::now() + timeout).await?;
        let (next, found) = Answers::reset(&reply)?;
        existed |= found;
        match next {
            Some(next) => cursor = next,
            None => return Ok(existed),
        }
    }
}

/// Removes all keys of one server whose names begin with `beginning`: how many there were.
///
/// # Errors
/// Why it is not certain that all are gone.
pub async fn scanned(node: &Node, beginning: &[u8]) -> Result<usize, Failure> {
    let pattern = [&escaped(beginning)[..], b"*"].concat();
    let (mut cursor, mut gone) = (b"0".to_vec(), 0);
    loop {
        let page = node.commands(&[vec![b"SCAN", &cursor, b"MATCH", &pattern, b"COUNT", PAGE]]).await?;
        let page = page.into_iter().next().and_then(scan_page);
        let (next, keys) = page.ok_or_else(|| Failure::Server("the reply to SCAN cannot be read".into()))?;
        // One by one, because on a Cluster each may be in a slot of its own, but in one round trip.
        let unlinks: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![b"UNLINK".as_slice(), key.as_slice()]).collect();
        if !unlinks.is_empty() {
            node.commands(&unlinks).await?;
        }
        gone += keys.len();
        if next == b"0" {
            return Ok(gone);
        }
        cursor = next;
    }
}

fn scan_page(page: Reply) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let bytes = |frame| match frame {
        OwnedFrame::BulkString(bytes) => Some(bytes),
        _ => None,
    };
    match page {
        OwnedFrame::Array(parts) => match <[OwnedFrame; 2]>::try_from(parts) {
            Ok([cursor, OwnedFrame::Array(keys)]) => {
                Some((bytes(cursor)?, keys.into_iter().map(bytes).collect::<Option<_>>()?))
            }
            _ => None,
        },
        _ => None,
    }
}

/// A text that a pattern matches as it is.
fn escaped(text: &[u8]) -> Vec<u8> {
    let special = |byte: &u8| b"*?[]\\^-".contains(byte);
    text.iter().flat_map(|byte| special(byte).then_some(b'\\').into_iter().chain([*byte])).collect()
}
