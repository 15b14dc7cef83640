//! One round trip of a pipeline worker: a batch of waiting checks as a pipeline of script calls, answered one by one.

use std::{collections::HashMap, ops::Range, time::Duration};

use bytes::BufMut;
use deadpool_redis::redis::{Cmd, RedisWrite, Value, aio::MultiplexedConnection};
use futures_util::{StreamExt, stream::FuturesOrdered};
use tokio::time::{Instant, timeout_at};

use super::{
    command::{failure, send},
    encode::call_head,
    queue::Waiter,
    reply::Answers,
    script::{self, Task},
    store_time::StoreTime,
};
use crate::{Failure, failure::RefusalCode};
use weir_core::domain::Micros;

/// How the parts of a batch become script calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Any of them together.
    Any,
    /// Only those of the same key, as a Cluster wants it: a call whose keys are not all there would be refused as a whole.
    SameKey,
}

/// Settings that all calls of a store share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSettings {
    /// How parts become calls.
    pub grouping: Grouping,
    /// Most parts of one call.
    pub max_batch: usize,
    /// The moment, where it is not the server's to tell.
    pub now: Option<Micros>,
    /// The least time to live of a key, in milliseconds.
    pub least_ttl_millis: i64,
    /// Replicas that must acknowledge the charges of a round trip before it is answered; 0: none.
    pub wait_replicas: u32,
}

/// Parts that are sent together.
#[derive(Debug)]
pub(super) struct Batch {
    waiters: Vec<Waiter>,
    /// The waiters of each call, in the order in which calls are sent.
    calls: Vec<Range<usize>>,
    unacknowledged: u64,
    is_blocked: bool,
}

impl Batch {
    /// A batch of these, in calls.
    pub(super) fn new(mut waiters: Vec<Waiter>, settings: &CallSettings) -> Self {
        if settings.grouping == Grouping::SameKey {
            bring_together(&mut waiters);
        }
        let mut calls: Vec<Range<usize>> = Vec::new();
        for index in 0..waiters.len() {
            match calls.last_mut() {
                Some(call)
                    if call.len() < settings.max_batch && fits(&waiters[call.start], &waiters[index], settings) =>
                {
                    call.end += 1;
                }
                _ => calls.push(index..index + 1),
            }
        }
        Self { waiters, calls, unacknowledged: 0, is_blocked: false }
    }

    /// How many parts each call holds.
    pub(crate) fn call_sizes(&self) -> impl Iterator<Item = usize> {
        self.calls.iter().map(Range::len)
    }

    /// Answers that were given before enough replicas had acknowledged their charges.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// Whether the connection still waits for replicas, and carries nothing else meanwhile.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Tells all that have no answer yet. What was decided stays so.
    pub(super) fn fail(&mut self, failure: &Failure) {
        self.deliver(false);
        self.waiters.iter_mut().for_each(|waiter| waiter.answer(Err(failure.clone())));
    }

    /// Gives the answers that were kept until replicas have acknowledged their charges.
    fn deliver(&mut self, acknowledged: bool) {
        let delivered = self.waiters.iter_mut().map(|waiter| u64::from(waiter.deliver())).sum::<u64>();
        self.unacknowledged += if acknowledged { 0 } else { delivered };
    }

    /// Sends all calls and gives each waiter its answer as soon as it comes: a refusal, if any, the worst. A server that has lost
    /// the script gets it again, and the calls that it did not run for that once more.
    ///
    /// # Errors
    /// [`Failure::Lost`]: the answers that are missing will not come.
    pub(super) async fn exchange(
        &mut self,
        connection: &MultiplexedConnection,
        settings: &CallSettings,
        time: &StoreTime,
    ) -> Result<Option<Failure>, Failure> {
        let all: Vec<usize> = (0..self.calls.len()).collect();
        let mut round = self.round(connection, (settings, time), &all, false).await?;
        if !round.without_script.is_empty() {
            let again = std::mem::take(&mut round.without_script);
            let second = match script::load(connection.clone()).await {
                Ok(()) => self.round(connection, (settings, time), &again, true).await,
                Err(error) => Err(failure(error)),
            };
            match second {
                Ok(second) => round.refused = second.refused.or(round.refused),
                Err(failure) => {
                    // Some have their answers, so that the batch as a whole was not without effect.
                    self.fail(&failure);
                    return Err(Failure::Lost(failure.to_string().into()));
                }
            }
        }
        Ok(round.refused)
    }

    async fn round(
        &mut self,
        connection: &MultiplexedConnection,
        (settings, time): (&CallSettings, &StoreTime),
        calls: &[usize],
        last: bool,
    ) -> Result<Round, Failure> {
        let keep = settings.wait_replicas > 0;
        let mut round = Round { keep, last, ..Round::default() };
        if let ([call], false) = (calls, keep) {
            let (command, asking) = self.command(*call, settings);
            let reply = send(connection.clone(), &command, asking).await.map_err(failure)?;
            self.answer(*call, &reply, time, &mut round);
            return Ok(round);
        }
        // They are written in their order, and each is answered as soon as its reply is there.
        let commands = calls.iter().map(|call| self.command(*call, settings));
        // The replicas have half of what is left to the checks, whose answers must come before it is over.
        let left = self.first_deadline().saturating_duration_since(Instant::now());
        let commands = commands.chain(keep.then(|| (wait(settings.wait_replicas, left / 2), false)));
        let sent = commands.map(|(command, asking)| {
            let connection = connection.clone();
            async move { send(connection, &command, asking).await }
        });
        let mut replies: FuturesOrdered<_> = sent.collect();
        for call in calls {
            let Some(reply) = replies.next().await else { break };
            self.answer(*call, &reply.map_err(failure)?, time, &mut round);
        }
        // A server with nothing else to do looks only at its next tick whether the time is over, which `hz 10` makes 100 ms.
        match timeout_at(self.first_deadline() - left / 4, replies.next()).await {
            Ok(None) => {}
            Ok(Some(reply)) => {
                let reply = reply.and_then(Value::extract_error).map_err(failure);
                self.deliver(matches!(reply, Ok(Value::Int(count)) if count >= i64::from(settings.wait_replicas)));
                match reply {
                    Err(failure @ Failure::Refused { .. }) => round.refused = round.refused.or(Some(failure)),
                    Err(failure) => return Err(failure),
                    Ok(_) => {}
                }
            }
            // The others would be sent after it.
            Err(_) if !round.without_script.is_empty() => return Err(Failure::Lost("no reply in time".into())),
            Err(_) => {
                self.deliver(false);
                self.is_blocked = true;
            }
        }
        Ok(round)
    }

    /// A call, and whether `ASKING` goes before it.
    fn command(&self, call: usize, settings: &CallSettings) -> (Cmd, bool) {
        let waiters = &self.waiters[self.calls[call].clone()];
        (command(waiters, settings), waiters.first().is_some_and(|waiter| waiter.asking))
    }

    /// When the time of the check is up whose time is up first.
    fn first_deadline(&self) -> Instant {
        self.waiters.iter().map(|waiter| waiter.deadline).min().unwrap_or_else(Instant::now)
    }

    fn answer(&mut self, call: usize, reply: &Value, time: &StoreTime, round: &mut Round) {
        let mut answers = Answers::new(reply);
        if let Ok(answers) = &answers {
            // Before a check is answered that is to be sent again with the right windows.
            time.synchronize(answers.at());
        }
        if let Err(failure) = &answers
            && failure.refusal() == Some(RefusalCode::NoScript)
            && !round.last
        {
            round.without_script.push(call);
            return;
        }
        for waiter in &mut self.waiters[self.calls[call].clone()] {
            let answer = match &mut answers {
                Ok(answers) => answers.next(waiter.part.levels, waiter.part.tells, waiter.part.has_id),
                Err(failure) => Err(failure.clone()),
            };
            match &answer {
                Err(failure) if failure.is_refusal_after_write() => round.refused = Some(failure.clone()),
                Err(failure @ Failure::Refused { .. })
                    if !round.refused.as_ref().is_some_and(Failure::is_refusal_after_write) =>
                {
                    round.refused = Some(failure.clone());
                }
                _ => {}
            }
            if round.keep {
                waiter.keep(answer);
            } else {
                waiter.answer(answer);
            }
        }
    }
}

/// Waits until so many replicas have all that this connection has written, for at most this time.
fn wait(replicas: u32, time: Duration) -> Cmd {
    let mut command = Cmd::with_capacity(3, 24);
    // 0 would be for as long as it takes.
    command.arg("WAIT").arg(replicas).arg(time.as_millis().max(1) as u64);
    command
}

/// The call of the script for these.
fn command(waiters: &[Waiter], settings: &CallSettings) -> Cmd {
    let parts = || waiters.iter().map(|waiter| &waiter.part);
    let values: u32 = parts().map(|part| part.values).sum();
    let head = call_head(settings.now, settings.least_ttl_millis, Task::Decide, values as usize);
    let (keys, key_bytes) = parts().flat_map(|part| &part.keys).fold((0, 0), |(n, sum), key| (n + 1, sum + key.len()));
    let body_bytes = head.len() + parts().map(|part| part.body.len()).sum::<usize>();
    let mut command = Cmd::with_capacity(4 + keys, 64 + key_bytes + body_bytes);
    command.arg("EVALSHA").arg(script::sha()).arg(keys);
    parts().flat_map(|part| &part.keys).for_each(|key| command.write_arg(key));
    let mut body = command.bufmut_for_next_arg(body_bytes);
    body.put_slice(&head);
    parts().for_each(|part| body.put_slice(&part.body));
    drop(body);
    command
}

/// The outcome of a pipeline.
#[derive(Default)]
struct Round {
    /// Answers are kept until replicas have acknowledged their charges.
    keep: bool,
    /// The script was loaded just before.
    last: bool,
    /// The calls that the server did not run for want of the script.
    without_script: Vec<usize>,
    refused: Option<Failure>,
}

fn fits(first: &Waiter, other: &Waiter, settings: &CallSettings) -> bool {
    match settings.grouping {
        Grouping::Any => true,
        Grouping::SameKey => first.part.keys == other.part.keys && !first.asking && !other.asking,
    }
}

/// Moves those of the same key next to each other, in their order.
fn bring_together(waiters: &mut [Waiter]) {
    let mut ranks: HashMap<Vec<u8>, usize> = HashMap::new();
    for waiter in waiters.iter() {
        let next = ranks.len();
        ranks.entry(waiter.part.keys.concat()).or_insert(next);
    }
    waiters.sort_by_cached_key(|waiter| ranks.get(&waiter.part.keys.concat()).copied());
}
