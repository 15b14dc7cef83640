//! Membership of replicas: one hash with a field for each replica's status, which expires soon after the last update.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    RedisStore,
    scan::{number, read},
};
use crate::StoreError;

/// Name of the hash, after the prefix of all keys. No state has this name.
const NAME: &[u8] = b"replicas";
/// TTL of the hash after the last update, in milliseconds.
const TTL_MILLIS: &[u8] = b"60000";
/// Most fields that are read.
const MAX_READ: usize = 4_096;
/// `COUNT` of `HSCAN`.
const COUNT: &[u8] = b"100";
const TIMEOUT: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Publishes the status of a replica, replacing the previous one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn publish_status(&self, id: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let (hash, id) = (self.members(), id.as_bytes().to_vec());
        let done = self.io.run(move |io| async move {
            let deadline = Instant::now() + TIMEOUT;
            io.servers.command(&hash, &[b"HSET", &hash, &id, &value], deadline).await?;
            io.servers.command(&hash, &[b"PEXPIRE", &hash, TTL_MILLIS], deadline).await.map(drop)
        });
        done.await
    }

    /// Reads the status of all replicas, with their ids.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_statuses(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
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

    /// Deletes the status of these replicas.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete_statuses(&self, ids: Vec<Vec<u8>>) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let hash = self.members();
        let done = self.io.run(move |io| async move {
            let args: Vec<_> = [b"HDEL".as_slice(), &hash].into_iter().chain(ids.iter().map(Vec::as_slice)).collect();
            io.servers.command(&hash, &args, Instant::now() + TIMEOUT).await.map(drop)
        });
        done.await
    }

    fn members(&self) -> Vec<u8> {
        [&self.prefix[..], NAME].concat()
    }
}
