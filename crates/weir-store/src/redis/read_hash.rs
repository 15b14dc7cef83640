//! Reads a whole hash, by pages of one server: the cursor of one server skips fields on another.

use std::{collections::HashMap, sync::Arc};

use super::{
    Io,
    retry::retried,
    scan::{hscan, read, server_id},
};
use crate::Failure;

/// The `COUNT` of a page, such that a reply with the largest documents is far below the largest one that is read.
const COUNT: &[u8] = b"50";
/// The first and last cursor.
const START: &str = "0";

/// Returns the fields of a hash with their values.
///
/// # Errors
/// [`Failure`]; also when another server serves the hash before all of it is read.
pub(crate) async fn read_hash(io: &Io, hash: &[u8]) -> Result<HashMap<String, String>, Failure> {
    let (mut all, mut cursor, mut server) = (HashMap::new(), START.to_owned(), None);
    loop {
        let page = io.servers.command_of(hash, &hscan(hash, cursor.as_bytes(), COUNT), io.deadline()).await?;
        let ((next, fields), node): ((String, HashMap<String, String>), _) = (read(page.0)?, page.1);
        let id = || retried(io.deadline(), || server_id(&node));
        match &server {
            None if next == START => return Ok(fields),
            // Read again, as the server may have changed before it was identified.
            None => server = Some((Arc::clone(&node), id().await?)),
            Some((before, _)) if !Arc::ptr_eq(before, &node) => return Err(changed()),
            Some((_, before)) => {
                all.extend(fields);
                if next == START {
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
