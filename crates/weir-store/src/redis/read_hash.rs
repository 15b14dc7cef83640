//! Reads a whole hash, by pages of one server: the cursor of one server skips fields on another.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use deadpool_redis::redis::FromRedisValue;

use super::{
    Io,
    retry::retried,
    scan::{hscan, read, server_id},
};
use crate::Failure;

/// Least and greatest `COUNT` of a page. A field may have hundreds of kilobytes, and a reply of 16 MiB is not read.
const COUNTS: (usize, usize) = (20, 1_000);
/// Size of a page if its fields are as large as the previous page's.
const PAGE_BYTES: usize = 1 << 20;
/// The first and last cursor.
const START: &str = "0";

/// Returns the fields of a hash with their values; no further page once there are `enough`.
///
/// # Errors
/// [`Failure`]; also when another server serves the hash before all of it is read.
pub(crate) async fn read_hash<T>(io: &Io, hash: &[u8], enough: usize) -> Result<HashMap<T, T>, Failure>
where
    T: FromRedisValue + AsRef<[u8]> + Eq + Hash,
{
    let (mut all, mut cursor, mut server) = (HashMap::new(), START.to_owned(), None);
    let ((mut count, mut most), least) = (COUNTS, COUNTS.0);
    loop {
        let wanted = count.to_string();
        let page = io
            .servers
            .command_of(hash, &hscan(hash, cursor.as_bytes(), wanted.as_bytes()), io.maintenance_deadline())
            .await;
        let page = match page {
            Err(_) if count > least => {
                // The fields may be larger than those before.
                most = (count / 4).max(least);
                count = most;
                continue;
            }
            page => page?,
        };
        let ((next, fields), node): ((String, HashMap<T, T>), _) = (read(page.0)?, page.1);
        let bytes: usize = fields.iter().map(|(name, value)| name.as_ref().len() + value.as_ref().len()).sum();
        count = (PAGE_BYTES * fields.len() / bytes.max(1)).clamp(least, most);
        let id = || retried(io.deadline(), || server_id(&node));
        match &server {
            None if next == START => return Ok(fields),
            // Read again, as the server may have changed before it was identified.
            None => server = Some((Arc::clone(&node), id().await?)),
            Some((before, _)) if !Arc::ptr_eq(before, &node) => return Err(changed()),
            Some((_, before)) => {
                all.extend(fields);
                if next == START || all.len() >= enough {
                    return if id().await? == *before { Ok(all) } else { Err(changed()) };
                }
                cursor = next;
            }
        }
    }
}

fn changed() -> Failure {
    Failure::Lost("another server serves the hash, of which only a part was read".into())
}
