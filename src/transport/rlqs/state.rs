//! Buckets, levels and streams: the state under one lock.

mod status;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use foldhash::fast::RandomState;
use futures_util::task::AtomicWaker;
use weir_core::{
    domain::{Micros, OnStoreFailure},
    quota::{BucketId, Change, Divider, MemberId, ReportOutcome, Steps, Usage},
};
use weir_store::memory::weight;

use super::{authority::HeldLevel, wire::Action};
use crate::limiter::quota::{QuotaLevel, QuotaPath};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Maximum number of holders, as a multiple of the maximum number of buckets. Each stream that reports a bucket is one.
pub const HOLDERS_OF_A_BUCKET: usize = 10;

/// The error when there are too many buckets or holders.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// Buckets, levels and streams.
pub struct QuotaState {
    pub divider: Divider,
    /// Levels by the names of their limits' states.
    pub levels: Map<Vec<u8>, HeldLevel>,
    /// Buckets by number.
    buckets: Map<u32, Bucket>,
    /// Numbers of buckets, by domain and id.
    names: Vec<Map<Box<[u8]>, u32>>,
    divided: Map<BucketId, u32>,
    streams: Map<u64, Stream>,
    max_buckets: usize,
    /// Buckets as counted against `max_buckets`: one with a long id counts several times.
    weight: usize,
    /// Sum of the buckets of all streams.
    holdings: usize,
    last_bucket: u32,
    last_stream: u64,
    last_level: u64,
    owner: u64,
    changes: Vec<Change>,
}

struct Bucket {
    domain: usize,
    /// The id as sent in answers.
    id: Box<[u8]>,
    rule: Rule,
    streams: u32,
}

/// The rule of a bucket, by its limits.
enum Rule {
    /// The bucket has no limit.
    AllowAll,
    /// One of its limits allows nothing.
    DenyAll,
    Divided(Division),
}

struct Division {
    bucket: BucketId,
    steps: Steps,
    /// The names of its levels' states.
    path: Vec<Vec<u8>>,
    /// The streams of its holders, by the index of the member.
    owners: Vec<u64>,
}

/// A stream, with the buckets that it reports.
struct Stream {
    /// The address of its Envoy; `None` for a unix socket.
    peer: Option<SocketAddr>,
    buckets: Map<u32, Holding>,
    /// Buckets whose assignments must be sent, each once.
    pending: Vec<u32>,
    waker: Arc<AtomicWaker>,
}

#[derive(Clone, Copy)]
struct Holding {
    member: Option<MemberId>,
    is_pending: bool,
    /// Time of its last report that had requests.
    last_active: Micros,
}

impl QuotaState {
    /// Returns an empty state for this many domains, with at most `max_buckets`.
    pub fn new(divider: Divider, domains: usize, max_buckets: usize, owner: u64) -> Self {
        Self {
            divider,
            max_buckets,
            weight: 0,
            holdings: 0,
            levels: Map::default(),
            buckets: Map::default(),
            names: (0..domains).map(|_| Map::default()).collect(),
            divided: Map::default(),
            streams: Map::default(),
            last_bucket: 0,
            last_stream: 0,
            last_level: 0,
            owner,
            changes: Vec::new(),
        }
    }

    /// Opens a stream, and returns its number.
    pub fn open(&mut self, waker: Arc<AtomicWaker>, peer: Option<SocketAddr>) -> u64 {
        self.last_stream += 1;
        self.streams.insert(self.last_stream, Stream { peer, buckets: Map::default(), pending: Vec::new(), waker });
        self.last_stream
    }

    /// Closes a stream. Its holders keep their assignments until they expire, but not longer than `at_most`.
    pub fn close(&mut self, stream: u64, at_most: Micros, now: Micros) {
        let Some(closed) = self.streams.remove(&stream) else { return };
        self.holdings -= closed.buckets.len();
        for (number, holding) in closed.buckets {
            let Some(bucket) = self.buckets.get_mut(&number) else { continue };
            bucket.streams -= 1;
            if let (Rule::Divided(division), Some(member)) = (&bucket.rule, holding.member) {
                self.divider.leave(division.bucket, member, at_most, now);
            }
        }
    }

    /// Returns the number of the bucket with this id.
    pub fn find(&self, domain: usize, id: &[u8]) -> Option<u32> {
        self.names.get(domain)?.get(id).copied()
    }

    /// Returns the number of buckets.
    pub fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the number of streams.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the ids of all buckets, with their numbers and domains.
    pub fn all_buckets(&self) -> Vec<(u32, usize, Vec<u8>)> {
        self.buckets.iter().map(|(number, bucket)| (*number, bucket.domain, bucket.id.to_vec())).collect()
    }

    /// Adds a bucket, and returns its number.
    ///
    /// # Errors
    /// [`Full`] if there are too many.
    pub fn add(&mut self, domain: usize, id: Box<[u8]>, path: QuotaPath, now: Micros) -> Result<u32, Full> {
        let weight = self.weight + weight(id.len()) as usize;
        if weight > self.max_buckets {
            return Err(Full);
        }
        self.weight = weight;
        self.last_bucket += 1;
        let number = self.last_bucket;
        let rule = self.rule(number, path, now);
        if let Some(names) = self.names.get_mut(domain) {
            names.insert(id.clone(), number);
        }
        self.buckets.insert(number, Bucket { domain, id, rule, streams: 0 });
        Ok(number)
    }

    fn rule(&mut self, number: u32, path: QuotaPath, now: Micros) -> Rule {
        if path.levels.is_empty() {
            return Rule::AllowAll;
        }
        if path.levels.iter().any(|level| level.rate == 0) {
            return Rule::DenyAll;
        }
        let on_store_failure = path.on_store_failure;
        let (mut parent, mut names) = (None, Vec::with_capacity(path.levels.len()));
        for level in path.levels {
            let name = level.name.clone();
            names.push(name.clone());
            parent = Some(match self.levels.get(&name).map(|held| held.id) {
                Some(id) => {
                    // Under another policy, the limits above it may differ.
                    self.divider.set_parent(id, parent, now);
                    self.update_level(level, on_store_failure, now);
                    id
                }
                None => {
                    let id = self.divider.add_level(parent, level.rate);
                    self.last_level += 1;
                    let hold = (self.owner, self.last_level);
                    self.levels.insert(name, HeldLevel::new(id, Arc::new(level), on_store_failure, hold));
                    id
                }
            });
        }
        let Some(lowest) = parent else { return Rule::AllowAll };
        let bucket = self.divider.add_bucket(lowest);
        let steps = self.divider.steps(bucket).unwrap_or(Steps { fill_seconds: 1, quantum: 1 });
        self.divided.insert(bucket, number);
        Rule::Divided(Division { bucket, steps, path: names, owners: Vec::new() })
    }

    /// Updates a level whose policy may have changed.
    fn update_level(&mut self, level: QuotaLevel, on_store_failure: OnStoreFailure, now: Micros) {
        let Some(held) = self.levels.get_mut(&level.name) else { return };
        held.on_store_failure = on_store_failure;
        if !held.level.is_held_as(&level) {
            self.divider.set_rate(held.id, level.rate, now);
            (held.level, held.due) = (Arc::new(level), held.due.min(now));
        }
    }

    /// Sets the limits of a bucket. Returns `true` if they differ, in which case its holders join again.
    pub fn set_path(&mut self, number: u32, path: QuotaPath, now: Micros) -> bool {
        let Some(bucket) = self.buckets.get(&number) else { return false };
        let stays = match &bucket.rule {
            Rule::AllowAll => path.levels.is_empty(),
            Rule::DenyAll => path.levels.iter().any(|level| level.rate == 0),
            Rule::Divided(division) => {
                let rate = path.levels.iter().map(|level| level.rate).min().unwrap_or(0);
                rate > 0
                    && self.divider.keeps_holders_at(division.bucket, rate)
                    && path.levels.iter().map(|level| &level.name).eq(&division.path)
            }
        };
        if stays {
            path.levels.into_iter().for_each(|level| self.update_level(level, path.on_store_failure, now));
            return false;
        }
        let rule = self.rule(number, path, now);
        let Some(bucket) = self.buckets.get_mut(&number) else { return false };
        let former = std::mem::replace(&mut bucket.rule, rule);
        for (stream, known) in &mut self.streams {
            let Some(holding) = known.buckets.get_mut(&number) else { continue };
            if let (Rule::Divided(division), Some(member)) = (&former, holding.member) {
                self.divider.leave(division.bucket, member, 0, now);
            }
            holding.member = bucket.rule.join(&mut self.divider, *stream, &Usage::default(), now);
            // Its old assignment must be replaced.
            known.mark_pending(number);
        }
        if let Rule::Divided(division) = former {
            self.divided.remove(&division.bucket);
        }
        true
    }

    /// Records a stream's report of a bucket. Returns the assignment to send immediately, if any.
    ///
    /// # Errors
    /// [`Full`] if the stream is a new holder, and there are too many.
    pub fn report(&mut self, stream: u64, number: u32, usage: &Usage, now: Micros) -> Result<Option<Action>, Full> {
        let Some(bucket) = self.buckets.get_mut(&number) else { return Ok(None) };
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(None) };
        let Some(holding) = known.buckets.get_mut(&number) else {
            // The divider keeps holders that have left for a while.
            let holders = self.holdings.max(self.divider.counts().1);
            if holders >= self.max_buckets.saturating_mul(HOLDERS_OF_A_BUCKET) {
                return Err(Full);
            }
            bucket.streams += 1;
            self.holdings += 1;
            let member = bucket.rule.join(&mut self.divider, stream, usage, now);
            known.buckets.insert(number, Holding { member, is_pending: false, last_active: now });
            return Ok(bucket.rule.blanket());
        };
        if !usage.is_idle() {
            holding.last_active = now;
        }
        match (&bucket.rule, holding.member) {
            (Rule::Divided(division), Some(member)) => match self.divider.report(division.bucket, member, usage, now) {
                Some(ReportOutcome::Renewed(assignment)) => return Ok(Some(Action::of(assignment, division.steps))),
                Some(ReportOutcome::Waits) | None => return Ok(None),
                Some(ReportOutcome::Abandoned) => {}
            },
            (rule, _) if now - holding.last_active < self.divider.timing().idle => return Ok(rule.blanket()),
            _ => {}
        }
        known.buckets.remove(&number);
        bucket.streams -= 1;
        self.holdings -= 1;
        Ok(Some(Action::Abandon))
    }

    /// Returns a bucket whose assignment must be sent to a stream, and the assignment.
    pub fn next_pending(&mut self, stream: u64, now: Micros) -> Option<(&[u8], Action)> {
        let known = self.streams.get_mut(&stream)?;
        while let Some(number) = known.pending.pop() {
            let Some(holding) = known.buckets.get_mut(&number) else { continue };
            holding.is_pending = false;
            let Some(bucket) = self.buckets.get(&number) else { continue };
            let action = match (&bucket.rule, holding.member) {
                (Rule::Divided(division), Some(member)) => {
                    let assignment = self.divider.renew(division.bucket, member, now);
                    assignment.map_or(Action::DenyAll, |assignment| Action::of(assignment, division.steps))
                }
                (rule, _) => rule.blanket().unwrap_or(Action::DenyAll),
            };
            return Some((&bucket.id, action));
        }
        None
    }

    /// Marks all buckets of a stream to be sent again, except those that were not answered yet.
    pub fn mark_all_pending(&mut self, stream: u64, now: Micros) {
        let Some(known) = self.streams.get_mut(&stream) else { return };
        let mut is_answered =
            |number: &u32, holding: &Holding| match self.buckets.get(number).map(|bucket| &bucket.rule) {
                Some(Rule::Divided(division)) => {
                    holding.member.is_some_and(|member| self.divider.renew(division.bucket, member, now).is_some())
                }
                _ => true,
            };
        let answered = known.buckets.iter().filter(|(number, holding)| is_answered(number, holding));
        let numbers: Vec<u32> = answered.map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| known.mark_pending(number));
    }

    /// Returns the id of a bucket, as sent in answers.
    pub fn id(&self, number: u32) -> &[u8] {
        self.buckets.get(&number).map_or(&[], |bucket| &bucket.id)
    }

    /// Divides the due levels, and marks changed assignments to be sent.
    pub fn tick(&mut self, now: Micros) {
        let mut changes = std::mem::take(&mut self.changes);
        self.divider.tick(now, &mut changes);
        for Change { bucket, member, .. } in changes.drain(..) {
            let Some(number) = self.divided.get(&bucket) else { continue };
            let Some(Bucket { rule: Rule::Divided(division), .. }) = self.buckets.get(number) else { continue };
            let stream = division.owners.get(member.index()).and_then(|stream| self.streams.get_mut(stream));
            stream.into_iter().for_each(|stream| stream.mark_pending(*number));
        }
        self.changes = changes;
    }

    /// Removes buckets that no stream reports, and levels without buckets. Returns these levels.
    pub fn sweep(&mut self) -> Vec<HeldLevel> {
        let empty = self.divider.remove_empty_buckets();
        for bucket in empty {
            self.divided.remove(&bucket);
        }
        let divided = &self.divided;
        let (names, count) = (&mut self.names, &mut self.weight);
        self.buckets.retain(|number, bucket| {
            let is_divided = |division: &Division| divided.get(&division.bucket) == Some(number);
            let stays = bucket.streams > 0 || matches!(&bucket.rule, Rule::Divided(division) if is_divided(division));
            if !stays && let Some(names) = names.get_mut(bucket.domain) {
                names.remove(&bucket.id);
                *count -= weight(bucket.id.len()) as usize;
            }
            stays
        });
        let empty = self.divider.remove_empty_levels();
        self.levels.extract_if(|_, held| empty.contains(&held.id)).map(|(_, held)| held).collect()
    }
}

impl Rule {
    fn blanket(&self) -> Option<Action> {
        match self {
            Self::AllowAll => Some(Action::AllowAll),
            Self::DenyAll => Some(Action::DenyAll),
            Self::Divided(_) => None,
        }
    }

    fn join(&mut self, divider: &mut Divider, stream: u64, usage: &Usage, now: Micros) -> Option<MemberId> {
        let Self::Divided(division) = self else { return None };
        let member = divider.join(division.bucket, usage, now)?;
        let index = member.index();
        division.owners.resize(division.owners.len().max(index + 1), 0);
        division.owners[index] = stream;
        Some(member)
    }
}

impl Stream {
    /// Marks a bucket to be sent, and wakes the stream.
    fn mark_pending(&mut self, number: u32) {
        if let Some(holding) = self.buckets.get_mut(&number)
            && !std::mem::replace(&mut holding.is_pending, true)
        {
            self.pending.push(number);
            self.waker.wake();
        }
    }
}
