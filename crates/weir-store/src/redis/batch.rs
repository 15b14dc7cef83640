//! One round trip of a pipeline worker: a batch of waiting checks as pipelined script calls, with a reply to each
//! check.

use std::{collections::HashMap, ops::Range, time::Duration};

use bytes::BufMut;
use deadpool_redis::redis::{Cmd, RedisWrite, Value, aio::MultiplexedConnection};
use futures_util::{StreamExt, stream::FuturesOrdered};
use tokio::{
    task::unconstrained,
    time::{Instant, timeout_at},
};

use super::{
    command::{failure, send},
    encode::call_head,
    queue::Waiter,
    reply::Answers,
    script::{self, Task},
    store_time::StoreTime,
};
use crate::{Failure, failure::ErrorCode};
use weir_core::domain::Micros;

/// The rule for grouping the parts of a batch into script calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Any parts together.
    Any,
    /// Only parts with the same keys, because a Cluster rejects a whole call if one of its keys is elsewhere.
    SameKey,
}

/// Settings for all script calls of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSettings {
    /// Rule for grouping parts into calls.
    pub grouping: Grouping,
    /// Most parts in a call.
    pub max_batch: usize,
    /// Replicas whose acknowledgement of the charges of a round trip is awaited before the checks are answered, within
    /// the command timeout; 0: none.
    pub wait_replicas: u32,
}

/// Parts sent in one pipeline.
#[derive(Debug)]
pub(super) struct Batch {
    waiters: Vec<Waiter>,
    /// Ranges of the waiters of each call, in sending order.
    calls: Vec<Range<usize>>,
    unacknowledged: u64,
    is_blocked: bool,
}

impl Batch {
    /// Groups parts into calls.
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

    /// Returns the number of parts in each call.
    pub(crate) fn call_sizes(&self) -> impl Iterator<Item = usize> {
        self.calls.iter().map(Range::len)
    }

    /// Returns the number of checks answered before enough replicas had acknowledged their charges.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.unacknowledged
    }

    /// Whether a `WAIT` still blocks the connection, so that it cannot be reused.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Fails all checks without a reply. Decisions that were already received are delivered.
    pub(super) fn fail(&mut self, failure: &Failure) {
        self.deliver(false);
        self.waiters.iter_mut().for_each(|waiter| waiter.answer(Err(failure.clone())));
    }

    /// Delivers the replies that were withheld for the replicas' acknowledgement.
    fn deliver(&mut self, acknowledged: bool) {
        let delivered = self.waiters.iter_mut().map(|waiter| u64::from(waiter.deliver())).sum::<u64>();
        self.unacknowledged += if acknowledged { 0 } else { delivered };
    }

    /// Sends all calls and passes each reply on as soon as it arrives. Returns the server's rejection of a part, if
    /// any; one after a write takes precedence. If the server answers `NOSCRIPT`, loads the script and sends those
    /// calls once more.
    ///
    /// # Errors
    /// [`Failure::Lost`]: the missing replies will not arrive. [`Failure::Server`]: no part has an answer, only errors
    /// without a known code.
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
                Err(error) => {
                    // These calls have not run, whether or not the script is loaded.
                    self.fail(&Failure::Closed);
                    Err(failure(error))
                }
            };
            match second {
                Ok(second) => {
                    round.rejection = second.rejection.or(round.rejection);
                    round.error = second.error.or(round.error);
                    round.is_served |= second.is_served;
                }
                Err(failure) => {
                    // Some checks have replies already, so the batch as a whole had an effect.
                    self.fail(&failure);
                    return Err(Failure::Lost(failure.to_string().into()));
                }
            }
        }
        match round {
            Round { error: Some(error), rejection: None, is_served: false, .. } => Err(error),
            Round { rejection, .. } => Ok(rejection),
        }
    }

    async fn round(
        &mut self,
        connection: &MultiplexedConnection,
        (settings, time): (&CallSettings, &StoreTime),
        calls: &[usize],
        last: bool,
    ) -> Result<Round, Failure> {
        let (keep, now) = (settings.wait_replicas > 0, time.virtual_now());
        let mut round = Round { keep, last, ..Round::default() };
        if let ([call], false) = (calls, keep) {
            let (command, asking) = self.command(*call, now);
            let reply = send(connection.clone(), &command, asking).await.map_err(failure)?;
            self.answer(*call, &reply, time, &mut round);
            return Ok(round);
        }
        // They are pipelined in order, and each reply is handled as soon as it arrives. Unconstrained, since tokio's budget
        // would end in the middle of a long pipeline and wake the rest in another order, with the `WAIT` before it.
        let commands = calls.iter().map(|call| self.command(*call, now));
        // `WAIT` gets half of the remaining time, because the checks must be answered before their deadlines.
        let left = self.first_deadline().saturating_duration_since(Instant::now());
        let commands = commands.chain(keep.then(|| (wait(settings.wait_replicas, left / 2), false)));
        let sent = commands.map(|(command, asking)| {
            let connection = connection.clone();
            async move { send(connection, &command, asking).await }
        });
        let mut replies: FuturesOrdered<_> = sent.collect();
        for call in calls {
            let Some(reply) = unconstrained(replies.next()).await else { break };
            self.answer(*call, &reply.map_err(failure)?, time, &mut round);
        }
        // An idle Redis notices the end of a `WAIT` only at its next timer tick, every 100 ms at `hz 10`.
        match timeout_at(self.first_deadline() - left / 4, replies.next()).await {
            Ok(None) => {}
            Ok(Some(reply)) => {
                let reply = reply.and_then(Value::extract_error).map_err(failure);
                self.deliver(matches!(reply, Ok(Value::Int(count)) if count >= i64::from(settings.wait_replicas)));
                match reply {
                    Err(failure @ Failure::Rejected { .. }) => round.rejection = round.rejection.or(Some(failure)),
                    Err(failure) => return Err(failure),
                    Ok(_) => {}
                }
            }
            // A second round would queue behind the `WAIT`.
            Err(_) if !round.without_script.is_empty() => return Err(Failure::Lost("no reply in time".into())),
            Err(_) => {
                self.deliver(false);
                self.is_blocked = true;
            }
        }
        Ok(round)
    }

    /// Builds a call, and returns whether `ASKING` must precede it.
    fn command(&self, call: usize, now: Option<Micros>) -> (Cmd, bool) {
        let waiters = &self.waiters[self.calls[call].clone()];
        (command(waiters, now), waiters.first().is_some_and(|waiter| waiter.asking))
    }

    /// Returns the earliest deadline among the checks.
    fn first_deadline(&self) -> Instant {
        self.waiters.iter().map(|waiter| waiter.deadline).min().unwrap_or_else(Instant::now)
    }

    fn answer(&mut self, call: usize, reply: &Value, time: &StoreTime, round: &mut Round) {
        let mut answers = Answers::new(reply);
        if let Ok(answers) = &answers {
            // First, so that a check that is retried for a missing calendar window gets the right one.
            time.synchronize(answers.at());
        }
        if let Err(failure) = &answers
            && failure.error_code() == Some(ErrorCode::NoScript)
            && !round.last
        {
            round.without_script.push(call);
            return;
        }
        let has_failed = answers.is_err();
        for waiter in &mut self.waiters[self.calls[call].clone()] {
            let answer = match &mut answers {
                Ok(answers) => answers.next(waiter.part.levels, waiter.part.fields, waiter.part.has_id),
                Err(failure) => Err(failure.clone()),
            };
            match &answer {
                Err(failure) if failure.is_rejection_after_write() => round.rejection = Some(failure.clone()),
                Err(failure @ Failure::Rejected { .. })
                    if !round.rejection.as_ref().is_some_and(Failure::is_rejection_after_write) =>
                {
                    round.rejection = Some(failure.clone());
                }
                Err(failure @ Failure::Server(_)) if has_failed => round.error = Some(failure.clone()),
                _ => round.is_served = true,
            }
            if round.keep {
                waiter.keep(answer);
            } else {
                waiter.answer(answer);
            }
        }
    }
}

/// Builds a `WAIT` for `replicas` to acknowledge all writes of this connection, for at most `time`.
fn wait(replicas: u32, time: Duration) -> Cmd {
    let mut command = Cmd::with_capacity(3, 24);
    // A timeout of 0 would block forever.
    command.arg("WAIT").arg(replicas).arg(time.as_millis().max(1) as u64);
    command
}

/// Builds the script call for these waiters, at this time if it is virtual.
fn command(waiters: &[Waiter], now: Option<Micros>) -> Cmd {
    let parts = || waiters.iter().map(|waiter| &waiter.part);
    let values: u32 = parts().map(|part| part.values).sum();
    let head = call_head(now, Task::Decide, values as usize);
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

/// The outcome of one pipeline.
#[derive(Default)]
struct Round {
    /// Replies are withheld until replicas have acknowledged the charges.
    keep: bool,
    /// The script was just loaded, so `NOSCRIPT` is not retried again.
    last: bool,
    /// The calls that failed with `NOSCRIPT`.
    without_script: Vec<usize>,
    rejection: Option<Failure>,
    /// An error without a known code, or a reply that cannot be read.
    error: Option<Failure>,
    /// A part has an answer of the script.
    is_served: bool,
}

fn fits(first: &Waiter, other: &Waiter, settings: &CallSettings) -> bool {
    match settings.grouping {
        Grouping::Any => true,
        Grouping::SameKey => first.part.keys == other.part.keys && !first.asking && !other.asking,
    }
}

/// Moves parts with the same keys next to each other, stable otherwise.
fn bring_together(waiters: &mut [Waiter]) {
    let mut ranks: HashMap<Vec<u8>, usize> = HashMap::new();
    for waiter in waiters.iter() {
        let next = ranks.len();
        ranks.entry(waiter.part.keys.concat()).or_insert(next);
    }
    waiters.sort_by_cached_key(|waiter| ranks.get(&waiter.part.keys.concat()).copied());
}
