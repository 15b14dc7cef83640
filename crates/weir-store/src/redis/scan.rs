//! Pages of the states of all servers: `SCAN` finds hashes, `HSCAN` their fields. The cursor carries the hashes that
//! are found but not read yet, so that nothing is requested twice.

mod cursor;
pub(super) mod values;

use std::time::Duration;

use deadpool_redis::redis::{Pipeline, Value, from_redis_value};
use futures_util::future::join_all;
use prost::Message;
use tokio::time::Instant;

use super::{RedisStore, command::command, command::failure, node::Node, reset::escaped, servers::Servers};
use crate::{
    Failure,
    failure::ErrorCode,
    scan::{MAX_PAGE, Page, Scan, ScanError, Stored, Wanted},
};
use cursor::{Cursor, Pending};
use weir_core::domain::{Key, Micros};

/// Approximate maximum of keys and fields examined for one page.
const MAX_LOOKED_AT: usize = 16 * MAX_PAGE;
/// Least and largest `COUNT` of one command, which takes a server less than a millisecond.
const COUNT: (usize, usize) = (10, 1_000);
/// Most hashes read in one round trip.
const HASHES: usize = 64;
/// Planned bytes of the reply to one round trip. The connection allows four times as many.
const REPLY_BYTES: usize = 4 << 20;
/// Bytes of a field and its value that the first round trip of a page plans with: half of a full `sliding_log`.
const FIELD_BYTES: usize = 32 << 10;
/// Longest search for the server of a key.
const TIMEOUT: Duration = Duration::from_secs(5);
/// First byte of a record's field: see `RECORDS` in `script/plan.lua`.
const RECORDS: u8 = 0xfd;

impl RedisStore {
    /// Reads a page of the states of all servers.
    ///
    /// # Errors
    /// [`ScanError`]. The same page can be requested again.
    pub async fn scan(&self, scan: &Scan, cursor: Option<&[u8]>) -> Result<Page, ScanError> {
        let hash = scan.anchor_path.as_ref().map(|path| [&self.prefix[..], path].concat());
        let cursor = match cursor {
            None => Cursor::start(hash),
            Some(bytes) => Cursor::read(bytes).ok_or(ScanError::Cursor)?,
        };
        let paging = Paging {
            prefix: self.prefix.to_vec(),
            name_prefix: [&self.prefix[..], &scan.prefix].concat(),
            wanted: scan.wanted,
            count: scan.count,
            cursor,
            page: Page::default(),
            looked_at: 0,
            field_bytes: FIELD_BYTES,
            now: self.clock().now(),
        };
        // A failed check triggers a refresh too, but there may be none.
        let page =
            self.io.run(move |io| async move { paging.read(&io.servers).await.inspect_err(|_| io.servers.refresh()) });
        Ok(page.await?)
    }
}

/// A page in progress.
struct Paging {
    prefix: Vec<u8>,
    /// Prefix of the state names, including the prefix of all keys.
    name_prefix: Vec<u8>,
    wanted: Wanted,
    count: usize,
    cursor: Cursor,
    page: Page,
    looked_at: usize,
    /// Mean bytes of a field and its value in the hash of the last round trip where they were largest.
    field_bytes: usize,
    now: Micros,
}

impl Paging {
    async fn read(mut self, servers: &Servers) -> Result<Page, Failure> {
        let nodes = servers.masters(Instant::now() + TIMEOUT).await?;
        let ids = join_all(nodes.iter().map(|node| id_of(node))).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.cursor.resume(&ids);
        loop {
            let is_full = self.page.len() >= self.count || self.looked_at >= MAX_LOOKED_AT;
            if is_full && self.cursor.fits() {
                return Ok(Page { next: Some(self.cursor.encode_to_vec()), ..self.page });
            }
            if !self.cursor.hashes.is_empty() {
                self.read_hashes(servers, &nodes, &ids).await?;
                continue;
            }
            match self.cursor.next_server(&ids) {
                Some((index, at)) => self.scan_keys(&nodes[index], at).await?,
                None => return Ok(self.page),
            }
        }
    }

    /// Returns the `COUNT` of the next command: the entries that are missing, within bounds; more if few of those
    /// examined match.
    fn next_count(&self) -> usize {
        let missing = self.count.saturating_sub(self.page.len());
        missing.max(self.looked_at / 4).clamp(COUNT.0, COUNT.1)
    }

    /// Returns how many of the pending hashes to read in the next round trip, and the `COUNT` for each. A hash that is
    /// not read completely continues alone.
    fn next_read(&self) -> (usize, usize) {
        let fields = self.next_count().min(REPLY_BYTES / self.field_bytes).max(COUNT.0);
        let is_alone =
            self.cursor.is_first_elsewhere || self.cursor.hashes.first().is_some_and(|pending| pending.at != 0);
        let most = if is_alone { 1 } else { HASHES.min(fields) };
        let hashes = (REPLY_BYTES / (self.field_bytes * COUNT.0)).clamp(1, most);
        (hashes, (fields / hashes).max(COUNT.0))
    }

    /// Finds hashes on a server.
    async fn scan_keys(&mut self, node: &Node, at: u64) -> Result<(), Failure> {
        let pattern = [&escaped(&self.name_prefix)[..], b"*"].concat();
        let (at, count) = (at.to_string(), self.next_count());
        let asked = command(&[
            b"SCAN",
            at.as_bytes(),
            b"MATCH",
            &pattern,
            b"COUNT",
            count.to_string().as_bytes(),
            b"TYPE",
            b"hash",
        ]);
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = read(node.command(&asked, false).await?)?;
        self.looked_at += count;
        self.cursor.scanned(number(&next)?, keys);
        Ok(())
    }

    /// Reads the first of the pending hashes until the page is full.
    async fn read_hashes(
        &mut self,
        servers: &Servers,
        nodes: &[std::sync::Arc<Node>],
        ids: &[u64],
    ) -> Result<(), Failure> {
        let (hashes, count) = self.next_read();
        let (count, has_moved) = (count.to_string(), self.cursor.is_first_elsewhere);
        let asked: Vec<_> = self.cursor.hashes.iter().take(hashes).cloned().collect();
        let mut field_bytes = None;
        let mut replies = match self.cursor.next_server(ids) {
            Some((index, _)) if !has_moved => {
                let mut commands = Pipeline::with_capacity(asked.len());
                for Pending { hash, at } in &asked {
                    commands.add_command(command(&hscan(hash, at.to_string().as_bytes(), count.as_bytes())));
                }
                nodes[index].commands(&commands).await?
            }
            // The only hash of the scan, or one that has moved, on whichever server has it.
            _ => Vec::new(),
        }
        .into_iter();
        for Pending { hash, at } in asked {
            let fields = match replies.next().map(|fields| fields.extract_error().map_err(failure)) {
                Some(Err(failure)) if is_elsewhere(&failure) => {
                    self.cursor.is_first_elsewhere = true;
                    self.read_elsewhere(servers, &hash, 0, &count).await
                }
                Some(fields) => fields,
                None => self.read_elsewhere(servers, &hash, at, &count).await,
            };
            let (next, fields): (Vec<u8>, Vec<Vec<u8>>) = match fields {
                Err(failure) if is_no_hash(&failure) => (b"0".to_vec(), Vec::new()),
                fields => read(fields?)?,
            };
            let next = number(&next)?;
            self.looked_at += 1 + fields.len() / 2;
            // The largest mean, since a hash of large fields continues alone.
            field_bytes = field_bytes.max(fields.iter().map(Vec::len).sum::<usize>().checked_div(fields.len() / 2));
            self.tell(&hash, &fields);
            self.cursor.read_hash(next);
            if self.page.len() >= self.count && self.cursor.fits() || next != 0 {
                break;
            }
        }
        self.field_bytes = field_bytes.unwrap_or(self.field_bytes).max(1);
        Ok(())
    }

    /// Reads a hash on whichever server has it, where the cursor of another server is not valid.
    async fn read_elsewhere(&self, servers: &Servers, hash: &[u8], at: u64, count: &str) -> Result<Value, Failure> {
        let deadline = Instant::now() + TIMEOUT;
        servers.command(hash, &hscan(hash, at.to_string().as_bytes(), count.as_bytes()), deadline).await
    }

    /// Adds the matching fields of a hash to the page. Each field is followed by its value.
    fn tell(&mut self, hash: &[u8], fields: &[Vec<u8>]) {
        for field in fields.chunks_exact(2) {
            let (field, value) = (&field[0], &field[1]);
            if let Some(name) = field.strip_prefix(&[RECORDS]) {
                if self.wanted == Wanted::Holds && !name.is_empty() {
                    let reserved = values::reservation(name, value, &self.prefix, self.now);
                    let name_prefix = &self.name_prefix[self.prefix.len()..];
                    self.page.reservations.extend(reserved.and_then(|reserved| reserved.below(name_prefix)));
                }
                continue;
            }
            let name = [hash, field].concat();
            if !name.starts_with(&self.name_prefix) {
                continue;
            }
            // Expired states stay until they are swept.
            if values::is_expired(value, self.now) {
                continue;
            }
            let (name, holds) = (name[self.prefix.len()..].to_vec(), values::holds(value, self.now));
            let is_wanted = match self.wanted {
                Wanted::States => true,
                Wanted::Holds => holds.iter().any(|hold| hold.owner.is_some()),
            };
            // Other fields belong to the script.
            if is_wanted && Key::of_name(&name).is_some() {
                self.page.states.push(Stored { name, holds });
            }
        }
    }
}

pub(super) fn hscan<'w>(hash: &'w [u8], at: &'w [u8], count: &'w [u8]) -> [&'w [u8]; 5] {
    [b"HSCAN", hash, at, b"COUNT", count]
}

fn is_no_hash(failure: &Failure) -> bool {
    matches!(failure, Failure::Server(text) if text.contains("WRONGTYPE"))
}

fn is_elsewhere(failure: &Failure) -> bool {
    matches!(failure.error_code(), Some(ErrorCode::Moved | ErrorCode::Ask | ErrorCode::TryAgain))
}

/// Returns an id of the server process: after a restart it differs, because the keys are iterated in a different order.
/// Derived from the address if `INFO` is unavailable or not permitted.
async fn id_of(node: &Node) -> Result<u64, Failure> {
    let name = match node.command(&command(&[b"INFO", b"server"]), false).await {
        Ok(Value::VerbatimString { text, .. }) => run_id(&text),
        Ok(Value::BulkString(bytes)) => run_id(&String::from_utf8_lossy(&bytes)),
        Err(failure) if failure.error_code() != Some(ErrorCode::NoPerm) && !matches!(failure, Failure::Server(_)) => {
            return Err(failure);
        }
        _ => None,
    };
    let name = name.unwrap_or_else(|| node.address().to_string());
    Ok(blake3::hash(name.as_bytes()).as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

/// A server behind a name: changes of the connections' target, and the server process.
pub(super) type ServerId = (u64, u64);

/// Identifies the server that a node leads to.
pub(super) async fn server_id(node: &Node) -> Result<ServerId, Failure> {
    let changes = node.changes();
    Ok((changes, id_of(node).await?))
}

fn run_id(info: &str) -> Option<String> {
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::to_owned)
}

pub(super) fn read<T: deadpool_redis::redis::FromRedisValue>(reply: Value) -> Result<T, Failure> {
    from_redis_value(reply).map_err(|_| Failure::Server("the reply to a scan cannot be read".into()))
}

pub(super) fn number(text: &[u8]) -> Result<u64, Failure> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Failure::Server("the cursor of a scan is not a number".into()))
}
