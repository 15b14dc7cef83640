//! Documents in the shared store: a hash, and a stream as its log, both in one hash slot.

use std::{collections::HashMap, sync::Arc};

use deadpool_redis::redis::{Value, from_redis_value};

use weir_core::domain::{Micros, time::SECOND};

use super::{Change, ChangeError, ChangeId, Changed, Changes, MAX_DOCUMENTS, MAX_LOG};
use crate::{
    Failure,
    redis::{Io, documents_call, read_hash, reply::Answers},
};

/// Most changes per page, since each may have hundreds of kilobytes, and most pages per read.
const PAGE: (usize, &[u8]) = (20, b"20");
const PAGES: usize = 50;
/// Results of the script: the current document is not the expected one, or [`MAX_DOCUMENTS`] is reached.
const UNEXPECTED: &str = "";
const FULL: &str = "full";

/// Documents in Redis.
pub struct RedisDocuments {
    io: Io,
    hash: Arc<[u8]>,
    log: Arc<[u8]>,
}

type Fields = HashMap<String, String>;

impl RedisDocuments {
    pub(crate) fn new(io: Io, prefix: &[u8], name: &str) -> Self {
        let hash = [prefix, format!("{{{name}}}").as_bytes()].concat();
        let log = [&hash[..], b":log"].concat();
        Self { io, hash: hash.into(), log: log.into() }
    }

    pub(super) async fn change(&self, change: Change) -> Result<Option<Changed>, ChangeError> {
        let texts = [
            &change.name,
            change.document.as_deref().unwrap_or_default(),
            change.expected.as_deref().unwrap_or_default(),
            &change.actor,
            &MAX_DOCUMENTS.to_string(),
            &MAX_LOG.to_string(),
        ];
        let call = documents_call(&texts);
        let (hash, log) = (Arc::clone(&self.hash), Arc::clone(&self.log));
        let answer = self.io.run(move |io| async move {
            Answers::change(&io.servers.script(&[&hash, &log], &call, io.deadline()).await?.0)
        });
        let [id, previous, before] = answer.await?;
        match id.as_str() {
            UNEXPECTED => return Ok(None),
            FULL => return Err(ChangeError::Full),
            _ => {}
        }
        Ok(Some(Changed {
            id: id.parse().map_err(|_| unreadable())?,
            previous: previous.parse().ok(),
            name: change.name,
            before: Some(before).filter(|before| !before.is_empty()),
            after: change.document,
            actor: change.actor,
        }))
    }

    pub(super) async fn changes(&self, since: Option<ChangeId>) -> Result<Changes, Failure> {
        let (hash, log) = (Arc::clone(&self.hash), Arc::clone(&self.log));
        let answer = self.io.run(move |io| async move {
            // Readers of documents use the servers' time, and may run before any check has synchronized it.
            let time = io.servers.command(&log, &[&b"TIME"[..]], io.maintenance_deadline()).await?;
            let (seconds, micros): (String, String) = from_redis_value(time).map_err(|_| unreadable())?;
            let parsed = |text: String| text.parse::<Micros>().map_err(|_| unreadable());
            io.servers.time().synchronize(parsed(seconds)? * SECOND + parsed(micros)?);
            let last = [&b"XREVRANGE"[..], &log, b"+", b"-", b"COUNT", b"1"];
            let last = read(io.servers.command(&log, &last, io.maintenance_deadline()).await?)?
                .pop()
                .map(|changed| changed.id);
            if last == since {
                return Ok(Changes::Some(Vec::new()));
            }
            let mut is_lost = false;
            if let Some(since) = since {
                let mut changes: Vec<Changed> = Vec::new();
                while changes.len() < PAGES * PAGE.0 {
                    let after = format!("({}", changes.last().map_or(since, |change| change.id));
                    let args = [&b"XRANGE"[..], &log, after.as_bytes(), b"+", b"COUNT", PAGE.1];
                    let page = read(io.servers.command(&log, &args, io.maintenance_deadline()).await?)?;
                    let is_last = page.len() < PAGE.0;
                    changes.extend(page);
                    if is_last {
                        break;
                    }
                }
                let previous = changes.first().and_then(|first| first.previous);
                if previous == Some(since) {
                    return Ok(Changes::Some(changes));
                }
                // A trimmed log continues after a later change, a new one after none or an earlier one.
                is_lost = previous < Some(since);
            }
            // Changes made during the scan come after `last` in the log, so the next call reads them.
            let documents = read_hash(&io, &hash, usize::MAX).await?.into_iter().collect();
            Ok(Changes::All { documents, since: last, is_lost })
        });
        answer.await
    }

    pub(super) async fn log(&self, before: Option<ChangeId>, most: usize) -> Result<Vec<Changed>, Failure> {
        let log = Arc::clone(&self.log);
        let answer = self.io.run(move |io| async move {
            let (end, most) = (before.map_or("+".to_owned(), |before| format!("({before}")), most.to_string());
            let args = [&b"XREVRANGE"[..], &log, end.as_bytes(), b"-", b"COUNT", most.as_bytes()];
            read(io.servers.command(&log, &args, io.maintenance_deadline()).await?)
        });
        answer.await
    }
}

fn unreadable() -> Failure {
    Failure::Lost("the reply about documents cannot be read".into())
}

/// Parses entries of the log.
fn read(reply: Value) -> Result<Vec<Changed>, Failure> {
    let entries: Vec<(String, Fields)> = from_redis_value(reply).map_err(|_| unreadable())?;
    let changed = |(id, mut fields): (String, Fields)| {
        let mut take = |name| fields.remove(name).unwrap_or_default();
        let document = |text: String| Some(text).filter(|text| !text.is_empty());
        Some(Changed {
            id: id.parse().ok()?,
            previous: take("previous").parse().ok(),
            name: take("name"),
            before: document(take("before")),
            after: document(take("after")),
            actor: take("actor"),
        })
    };
    entries.into_iter().map(|entry| changed(entry).ok_or_else(unreadable)).collect()
}
