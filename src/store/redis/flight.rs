//! One round trip of a lane: those who waited, as one pipeline of script calls, and their answers one by one.

use std::{collections::HashMap, ops::Range};

use tokio::time::Instant;

use super::{
    connection::{Connection, encode_command},
    encode::call_head,
    queue::Waiter,
    reply::Answers,
    script::{self, Task},
};
use crate::{
    domain::Micros,
    store::{Failure, failure::RefusalCode},
};

/// How the parts of a flight become script calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Any of them together.
    Any,
    /// Only those of the same key, as a Cluster wants it: a call whose keys are not all there would be refused as a whole.
    SameKey,
}

/// What all calls of a store have in common.
#[derive(Clone, Copy, Debug)]
pub struct CallTerms {
    /// How parts become calls.
    pub grouping: Grouping,
    /// Most parts of one call.
    pub max_batch: usize,
    /// The moment, where it is not the server's to tell.
    pub now: Option<Micros>,
    /// The least time to live of a key, in milliseconds.
    pub least_ttl_millis: i64,
}

/// Those who are on the way together.
#[derive(Debug)]
pub struct Flight {
    waiters: Vec<Waiter>,
    /// The waiters of each call, in the order in which calls are sent.
    calls: Vec<Range<usize>>,
}

impl Flight {
    /// A flight of these, in calls.
    pub fn new(mut waiters: Vec<Waiter>, terms: &CallTerms) -> Self {
        if terms.grouping == Grouping::SameKey {
            bring_together(&mut waiters);
        }
        let mut calls: Vec<Range<usize>> = Vec::new();
        for index in 0..waiters.len() {
            match calls.last_mut() {
                Some(call) if call.len() < terms.max_batch && fits(&waiters[call.start], &waiters[index], terms) => {
                    call.end += 1;
                }
                _ => calls.push(index..index + 1),
            }
        }
        Self { waiters, calls }
    }

    /// The moment at which everybody's time is up. Whose time is up earlier does not wait so long.
    pub fn deadline(&self) -> Instant {
        self.waiters.iter().map(|waiter| waiter.deadline).max().unwrap_or_else(Instant::now)
    }

    /// How many parts each call holds.
    pub fn batch_sizes(&self) -> impl Iterator<Item = usize> {
        self.calls.iter().map(Range::len)
    }

    /// Tells all that have no answer yet.
    pub fn fail(&mut self, failure: &Failure) {
        self.waiters.iter_mut().for_each(|waiter| waiter.answer(Err(failure.clone())));
    }

    /// Sends all calls and gives each waiter its answer: the refusals met, if any. A server that has lost the script gets
    /// it again, and the calls that it did not run for that once more.
    ///
    /// # Errors
    /// [`Failure::Closed`] when nothing was sent, else [`Failure::Lost`]: the answers that are missing will not come.
    pub async fn exchange(
        &mut self,
        connection: &mut Connection,
        terms: &CallTerms,
    ) -> Result<Option<Failure>, Failure> {
        let all: Vec<usize> = (0..self.calls.len()).collect();
        let mut round = self.round(connection, terms, &all, false).await?;
        if !round.without_script.is_empty() {
            let again = std::mem::take(&mut round.without_script);
            match self.again(connection, terms, &again).await {
                Ok(second) => round.refused = second.refused.or(round.refused),
                Err(failure) => {
                    // Some have their answers, so that the flight as a whole was not without effect.
                    self.fail(&failure);
                    return Err(Failure::Lost(failure.to_string().into()));
                }
            }
        }
        Ok(round.refused)
    }

    async fn again(
        &mut self,
        connection: &mut Connection,
        terms: &CallTerms,
        calls: &[usize],
    ) -> Result<Round, Failure> {
        connection.load_script(script::text()).await?;
        self.round(connection, terms, calls, true).await
    }

    async fn round(
        &mut self,
        connection: &mut Connection,
        terms: &CallTerms,
        calls: &[usize],
        last: bool,
    ) -> Result<Round, Failure> {
        let mut commands = Vec::new();
        for call in calls {
            self.write(&mut commands, &self.calls[*call], connection.script_sha(), terms);
        }
        connection.send(&commands).await?;
        let mut round = Round::default();
        for call in calls {
            let waiters = &mut self.waiters[self.calls[*call].clone()];
            if waiters.first().is_some_and(|waiter| waiter.asking) {
                // What it says to ASKING, it says again to the call.
                connection.receive().await?;
            }
            let reply = connection.receive().await?;
            let mut answers = Answers::new(&reply);
            if let Err(failure) = &answers
                && failure.refusal() == Some(RefusalCode::NoScript)
                && !last
            {
                round.without_script.push(*call);
                continue;
            }
            for waiter in waiters {
                let answer = match &mut answers {
                    Ok(answers) => answers.next(waiter.part.levels, waiter.part.tells),
                    Err(failure) => Err(failure.clone()),
                };
                if let Err(failure @ Failure::Refused(_)) = &answer {
                    round.refused = Some(failure.clone());
                }
                waiter.answer(answer);
            }
        }
        Ok(round)
    }

    fn write(&self, commands: &mut Vec<u8>, call: &Range<usize>, sha: &str, terms: &CallTerms) {
        let waiters = &self.waiters[call.clone()];
        let values: u32 = waiters.iter().map(|waiter| waiter.part.values).sum();
        let mut body = call_head(terms.now, terms.least_ttl_millis, Task::Decide, values as usize);
        waiters.iter().for_each(|waiter| body.extend_from_slice(&waiter.part.body));
        let key_count: usize = waiters.iter().map(|waiter| waiter.part.keys.len()).sum();
        let key_count = key_count.to_string();
        let mut arguments: Vec<&[u8]> = vec![b"EVALSHA", sha.as_bytes(), key_count.as_bytes()];
        for waiter in waiters {
            arguments.extend(waiter.part.keys.iter().map(Vec::as_slice));
        }
        arguments.push(&body);
        if waiters.first().is_some_and(|waiter| waiter.asking) {
            encode_command(commands, &[b"ASKING"]);
        }
        encode_command(commands, &arguments);
    }
}

/// What became of a pipeline.
#[derive(Default)]
struct Round {
    /// The calls that the server did not run for want of the script.
    without_script: Vec<usize>,
    refused: Option<Failure>,
}

fn fits(first: &Waiter, other: &Waiter, terms: &CallTerms) -> bool {
    match terms.grouping {
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
