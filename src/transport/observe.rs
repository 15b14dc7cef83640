//! One check as every surface runs it: decoded, decided, counted, timed.

use std::{sync::Arc, time::Instant};

use super::{decode, message::CheckMessage, status::Refused};
use crate::{
    algorithm::Bounds,
    limiter::{Answer, CheckError, Invalid, Limiter, Request, Snapshot},
    store::{ResetDone, Store},
    telemetry::{Outcome, Transport, meters::OTHER, trail},
};

/// A check as a surface read it, or why it could not.
pub type Message<'m> = Result<CheckMessage<'m>, Invalid>;

/// Runs checks for the surfaces.
pub struct Checks<S> {
    limiter: Arc<Limiter<S>>,
    bounds: Bounds,
    is_watched: bool,
}

impl<S> Clone for Checks<S> {
    fn clone(&self) -> Self {
        Self { limiter: Arc::clone(&self.limiter), bounds: self.bounds, is_watched: self.is_watched }
    }
}

/// What is asked, and in which form it shall be answered.
struct Asked<'m> {
    request: Request<'m>,
    summary_only: bool,
    transport: Transport,
}

impl<S: Store> Checks<S> {
    /// Checks by `limiter`, whose callers' limits stay within `bounds`.
    pub fn new(limiter: Arc<Limiter<S>>, bounds: Bounds) -> Self {
        Self { limiter, bounds, is_watched: false }
    }

    /// The same, of whose requests somebody may be told.
    #[must_use]
    pub fn watched(self, is_watched: bool) -> Self {
        Self { is_watched, ..self }
    }

    /// Whether somebody may be told of requests.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// The limiter.
    pub fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Whether [`Checks::check_at_once`] answers every check.
    pub fn answers_at_once(&self) -> bool {
        self.limiter.store().decides_at_once()
    }

    /// Answers one check and counts how it went. `encode` makes the answer of the surface, and is told whether only the
    /// summary is wanted.
    ///
    /// # Errors
    /// [`Refused`] when there is no decision.
    pub async fn check<T>(
        &self,
        snapshot: &Snapshot,
        message: Message<'_>,
        transport: Transport,
        encode: impl FnOnce(&Answer<'_>, bool) -> T,
    ) -> Result<T, Refused> {
        let asked = self.read(snapshot, message, transport)?;
        let answer = self.limiter.check(snapshot, &asked.request).await;
        asked.count(snapshot, answer.as_ref());
        if self.is_watched {
            asked.tell(snapshot, answer.as_ref().ok());
        }
        Ok(encode(&answer?, asked.summary_only))
    }

    /// The same where the store needs no waiting; else `None`, and nothing is done.
    ///
    /// # Errors
    /// As [`Checks::check`].
    pub fn check_at_once<T>(
        &self,
        snapshot: &Snapshot,
        message: Message<'_>,
        transport: Transport,
        encode: impl FnOnce(&Answer<'_>, bool) -> T,
    ) -> Result<Option<T>, Refused> {
        let asked = self.read(snapshot, message, transport)?;
        let mut answer = Answer::default();
        let decided = self.limiter.check_at_once(snapshot, &asked.request, &mut answer);
        match &decided {
            Ok(false) => return Ok(None),
            Ok(true) => asked.count(snapshot, Ok(&answer)),
            Err(error) => asked.count(snapshot, Err(error)),
        }
        if self.is_watched {
            asked.tell(snapshot, decided.is_ok().then_some(&answer));
        }
        decided?;
        Ok(Some(encode(&answer, asked.summary_only)))
    }

    #[inline]
    fn read<'m>(&self, snapshot: &Snapshot, message: Message<'m>, transport: Transport) -> Result<Asked<'m>, Refused> {
        let summary_only = message.as_ref().is_ok_and(|message| message.summary_only);
        match message.and_then(|message| decode::check(message, &self.bounds)) {
            Ok(request) => Ok(Asked { request, summary_only, transport }),
            Err(error) => {
                snapshot.meters.check(None, transport, Outcome::Error);
                if self.is_watched {
                    trail::tell(|told| told.check(None, None, Outcome::Error, false));
                }
                Err(error.into())
            }
        }
    }

    /// Forgets a key, with `subtree` all below it too.
    ///
    /// # Errors
    /// [`Refused`] when the store cannot tell.
    pub async fn reset(&self, request: &Request<'_>, subtree: bool) -> Result<ResetDone, Refused> {
        if self.is_watched {
            let snapshot = self.limiter.snapshot();
            let domain = snapshot.policy.domain(request.domain).map_or(OTHER, |domain| &domain.name);
            trail::tell(|told| told.domain = Some(domain.into()));
        }
        Ok(self.limiter.reset(request, subtree).await?)
    }

    /// Counts how long an answer took; the moment until when it did, for the next one to count from.
    pub fn timed(&self, transport: Transport, since: Instant) -> Instant {
        let now = Instant::now();
        self.limiter.metrics().check_duration(transport).record(now - since);
        now
    }
}

impl Asked<'_> {
    fn count(&self, snapshot: &Snapshot, answer: Result<&Answer<'_>, &CheckError>) {
        let (domain, outcome) = match answer {
            Ok(answer) if answer.summary.allowed => (answer.domain, Outcome::Allowed),
            Ok(answer) => (answer.domain, Outcome::Limited),
            Err(_) => (snapshot.policy.domain(self.request.domain).map(|domain| domain.index), Outcome::Error),
        };
        snapshot.meters.check(domain, self.transport, outcome);
    }

    /// Tells who is told of the request what the policy's names for it are, and nothing of the caller's.
    #[inline(never)]
    fn tell(&self, snapshot: &Snapshot, answer: Option<&Answer<'_>>) {
        let domain = snapshot.policy.domain(self.request.domain).map(|domain| &*domain.name);
        let (outcome, degraded) = match answer {
            None => (Outcome::Error, false),
            Some(answer) if answer.summary.allowed => (Outcome::Allowed, answer.degraded),
            Some(answer) => (Outcome::Limited, answer.degraded),
        };
        let binding = answer.and_then(|answer| answer.levels.get(answer.summary.binding?));
        let limit = binding.map(|level| if self.request.spec.is_some() { OTHER } else { &*level.limit.name });
        trail::tell(|told| told.check(domain, limit, outcome, degraded));
    }
}
