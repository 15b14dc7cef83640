//! Membership of replicas: one hash with a field for each replica's status, which expires soon after the last update.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::{RedisStore, read_hash};
use crate::Failure;

/// Name of the hash, after the prefix of all keys. No state has this name.
const NAME: &[u8] = b"replicas";
/// TTL of the hash after the last update, in milliseconds.
const TTL_MILLIS: &[u8] = b"60000";
/// Number of fields after which no further page is read.
const MAX_READ: usize = 4_096;
const TIMEOUT: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Publishes the status of a replica, replacing the previous one.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn publish_status(&self, id: &str, value: Vec<u8>) -> Result<(), Failure> {
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
    /// [`Failure`].
    pub async fn read_statuses(&self) -> Result<HashMap<Vec<u8>, Vec<u8>>, Failure> {
        let hash = self.members();
        self.io.run(move |io| async move { read_hash(&io, &hash, MAX_READ).await }).await
    }

    /// Deletes the status of these replicas.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn delete_statuses(&self, ids: Vec<Vec<u8>>) -> Result<(), Failure> {
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
