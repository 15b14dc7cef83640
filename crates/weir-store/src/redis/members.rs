//! What replicas tell of themselves: a field each of one hash, which is gone soon after the last of them.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    RedisStore,
    scan::{number, read},
};
use crate::StoreError;

/// The hash, behind the prefix of all keys. No state is named so.
const NAME: &[u8] = b"replicas";
/// How long it lasts when no replica tells anything any more.
const TTL_MILLIS: &[u8] = b"60000";
/// Most fields that are read.
const MAX_READ: usize = 4_096;
/// Fields that a server is asked for at once.
const COUNT: &[u8] = b"100";
const TIMEOUT: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Tells this of a replica, in place of what it told before.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn tell_member(&self, id: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let (hash, id) = (self.members(), id.as_bytes().to_vec());
        let done = self.io.run(move |io| async move {
            let deadline = Instant::now() + TIMEOUT;
            io.servers.command(&hash, &[b"HSET", &hash, &id, &value], deadline).await?;
            io.servers.command(&hash, &[b"PEXPIRE", &hash, TTL_MILLIS], deadline).await.map(drop)
        });
        done.await
    }

    /// What replicas have told, with their ids.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_members(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let hash = self.members();
        let done = self.io.run(move |io| async move {
            let (mut members, mut at, deadline) = (Vec::new(), 0, Instant::now() + TIMEOUT);
            loop {
                let text = at.to_string();
                let page = [b"HSCAN".as_slice(), &hash, text.as_bytes(), b"COUNT", COUNT];
                let (next, fields): (Vec<u8>, Vec<Vec<u8>>) = read(io.servers.command(&hash, &page, deadline).await?)?;
                let mut fields = fields.into_iter();
                while let (Some(id), Some(value)) = (fields.next(), fields.next()) {
                    members.push((id, value));
                }
                at = number(&next)?;
                if at == 0 || members.len() >= MAX_READ {
                    return Ok(members);
                }
            }
        });
        done.await
    }

    /// Forgets what these replicas have told.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn forget_members(&self, ids: Vec<Vec<u8>>) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let hash = self.members();
        let done = self.io.run(move |io| async move {
            let words: Vec<_> = [b"HDEL".as_slice(), &hash].into_iter().chain(ids.iter().map(Vec::as_slice)).collect();
            io.servers.command(&hash, &words, Instant::now() + TIMEOUT).await.map(drop)
        });
        done.await
    }

    fn members(&self) -> Vec<u8> {
        [&self.prefix[..], NAME].concat()
    }
}
