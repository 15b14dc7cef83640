//! The stream that carries the requests of all leases of a client, in order. It stays on one replica as long as that
//! answers; unanswered requests are repeated on the next one.

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Streaming};
use weir_core::{
    domain::Micros,
    hold::{LeaseAnswer, LeaseRequest},
};

use super::{Answer, Leases, entry::Entry, late, message};
use crate::{
    Error,
    breaker::Permit,
    call::{Failure, REOPEN_AFTER},
    net::Avoid,
    proto::{self, LeaseResponse},
};

/// Maximum number of unanswered requests; the service reads no more.
const MAX_IN_FLIGHT: usize = 64;

/// A request to be sent.
pub(super) struct Job {
    entry: Arc<Entry>,
    request: LeaseRequest,
    until: Instant,
    levels: bool,
    answer: Option<oneshot::Sender<Answer>>,
}

impl Job {
    pub(super) fn new(entry: &Arc<Entry>, request: LeaseRequest, deadline: Duration) -> Self {
        let until = Instant::now() + deadline;
        Self { entry: Arc::clone(entry), request, until, levels: false, answer: None }
    }

    /// Makes the job return the answer to its check.
    pub(super) fn answered(self, levels: bool) -> (Self, oneshot::Receiver<Answer>) {
        let (answer, answered) = oneshot::channel();
        (Self { levels, answer: Some(answer), ..self }, answered)
    }

    pub(super) fn is_late(&self) -> bool {
        self.until <= Instant::now()
    }

    /// Fails the request: it will not be answered.
    pub(super) fn fail(self, error: Error, now: Micros) {
        let LeaseRequest { lease, sequence, .. } = self.request;
        self.entry.lease().lost(&self.entry.balance, lease, sequence, now);
        self.reply(Err(error));
    }

    /// Rejects the request: the service rejected the stream and has processed nothing of it.
    fn reject(self, now: Micros) {
        let LeaseRequest { lease, sequence, generation, .. } = self.request;
        let balance = &self.entry.balance;
        if generation == 0 {
            // The request asked for terms. As after an answer without terms, no lease of the key is requested for 1 s.
            let answer = LeaseAnswer { lease, sequence, is_refused: false, grant: None, offer: None };
            self.entry.lease().answered(balance, &answer, now);
        } else {
            // Held units may still be spent.
            self.entry.lease().lost(balance, lease, sequence, now);
        }
        self.reply(Ok(None));
    }

    fn reply(self, answer: Answer) {
        // The caller may have gone.
        self.answer.into_iter().for_each(|sender| drop(sender.send(answer.clone())));
    }
}

/// A request in flight, with the permit of the circuit breaker.
struct Flight<'a> {
    job: Job,
    permit: Permit<'a>,
    retries: u32,
}

impl Flight<'_> {
    fn message(&self) -> proto::LeaseRequest {
        message::request(&self.job.entry, &self.job.request, self.job.levels)
    }

    fn fail(self, error: Error, now: Micros) {
        self.permit.record(Some(&error));
        self.job.fail(error, now);
    }
}

type Flights<'a> = VecDeque<Flight<'a>>;

type Opened = Result<Streaming<LeaseResponse>, End>;

/// The reason why a stream ended.
enum End {
    Rejected,
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Serves requests until the client ends.
pub(super) async fn run(leases: Arc<Leases>, mut queue: mpsc::Receiver<Job>) {
    let (mut flights, mut avoid, mut reopen_at) = (Flights::new(), None, Instant::now());
    loop {
        while flights.is_empty() {
            let Some(job) = queue.recv().await else { return };
            if Instant::now() < reopen_at {
                job.reject(leases.now());
            } else {
                flights.extend(leases.admit(job));
            }
        }
        match leases.serve(&mut flights, &mut queue, &mut avoid).await {
            End::Rejected => {
                reopen_at = Instant::now() + REOPEN_AFTER;
                // Their permits are dropped without an outcome.
                flights.drain(..).for_each(|flight| flight.job.reject(leases.now()));
            }
            End::Failed(Failure { error, lost, .. }) => {
                avoid = avoid.map(|avoid| Avoid { lost, ..avoid });
                let again = flights.drain(..).filter_map(|flight| leases.repeat(flight, &error)).collect();
                flights = again;
            }
        }
    }
}

fn replaced() -> Failure {
    Error::Unavailable("the stream did not answer in time, and is replaced".to_owned()).into()
}

fn first_deadline(flights: &Flights<'_>) -> Option<Instant> {
    flights.iter().map(|flight| flight.job.until).min()
}

impl Leases {
    fn admit(&self, job: Job) -> Option<Flight<'_>> {
        match self.caller.breaker.permit() {
            Ok(permit) if job.is_late() => {
                // It has waited for a connection: a sign of an outage too.
                permit.record(Some(&late()));
                job.fail(late(), self.now());
                None
            }
            Ok(permit) => Some(Flight { job, permit, retries: self.caller.retries }),
            Err(error) => {
                job.fail(error, self.now());
                None
            }
        }
    }

    /// Returns the request if it may be sent on the next stream. It is settled once, by its number; its check is
    /// decided again.
    fn repeat<'a>(&self, mut flight: Flight<'a>, error: &Error) -> Option<Flight<'a>> {
        if flight.job.is_late() {
            flight.fail(late(), self.now());
        } else if flight.retries == 0 || error.code() != Code::Unavailable {
            flight.fail(error.clone(), self.now());
        } else {
            flight.retries -= 1;
            return Some(flight);
        }
        None
    }

    /// Serves these requests and further ones of the queue over one stream. Returns the reason why it ended.
    async fn serve<'a>(
        &'a self,
        flights: &mut Flights<'a>,
        queue: &mut mpsc::Receiver<Job>,
        avoid: &mut Option<Avoid>,
    ) -> End {
        let until = first_deadline(flights).unwrap_or_else(Instant::now);
        let (requests, opening) = match timeout_at(until, self.open(flights, avoid)).await {
            Ok(Ok(opening)) => opening,
            Ok(Err(failure)) => return failure.into(),
            Err(_) => return replaced().into(),
        };
        let (mut opening, mut answers) = (pin!(opening), None);
        loop {
            let until = first_deadline(flights);
            let answer = async {
                let answers = match &mut answers {
                    Some(answers) => answers,
                    None => answers.insert(opening.as_mut().await?),
                };
                // For any status: after a rotation of the token the next stream has the new one.
                let ended = |status| End::Failed(Failure::stream_ended(status));
                answers.message().await.map_err(|status| ended(Some(status)))?.ok_or_else(|| ended(None))
            };
            tokio::select! {
                biased;
                answer = answer => match answer {
                    Ok(answer) => flights.pop_front().into_iter().for_each(|it| self.answered(it, &answer)),
                    Err(end) => return end,
                },
                Some(job) = queue.recv(), if flights.len() < MAX_IN_FLIGHT => {
                    if let Some(flight) = self.admit(job) {
                        // The channel has capacity. If the stream has ended, `answers` reports it.
                        let _ = requests.try_send(flight.message());
                        flights.push_back(flight);
                    }
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return replaced().into(),
            }
        }
    }

    /// Opens a stream and sends these requests. Returns the sender of more, and the future that ends when the service
    /// has accepted the stream.
    async fn open(
        &self,
        flights: &Flights<'_>,
        avoid: &mut Option<Avoid>,
    ) -> Result<(mpsc::Sender<proto::LeaseRequest>, impl Future<Output = Opened> + use<>), Failure> {
        let is_retry = flights.iter().any(|flight| flight.retries < self.caller.retries);
        let connection = self.caller.pool.ready(avoid.as_ref(), is_retry).await?;
        *avoid = Some(Avoid { connection: connection.clone().detached(), lost: false });
        let (sender, requests) = mpsc::channel(MAX_IN_FLIGHT);
        for flight in flights {
            // The channel has capacity for all of them.
            let _ = sender.try_send(flight.message());
        }
        let mut request = Request::new(ReceiverStream::new(requests));
        self.caller.authorize(&mut request);
        let opening = async move {
            match connection.client().lease(request).await.map_err(Failure::from) {
                Ok(answers) => Ok(answers.into_inner()),
                Err(failure) if failure.is_rejection() => Err(End::Rejected),
                Err(failure) => Err(failure.into()),
            }
        };
        Ok((sender, opening))
    }

    fn answered(&self, flight: Flight<'_>, response: &LeaseResponse) {
        let decision = response.decision.clone().unwrap_or_default();
        if let Some(error) = decision.error {
            return flight.fail(error.into(), self.now());
        }
        let Flight { job, permit, .. } = flight;
        permit.record(None);
        let answer = message::answer(response);
        let now = self.now();
        let return_units = job.entry.lease().answered(&job.entry.balance, &answer, now);
        // A renewal without a check that grants nothing does not imply that checks pass again.
        if job.request.cost > 0 || answer.grant.is_none_or(|grant| grant.units > 0) {
            job.entry.decided_by_service(job.request.cost, &decision, now);
        }
        return_units.into_iter().for_each(|request| self.renew(&job.entry, request));
        job.reply(Ok(Some(decision)));
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::{
        Client,
        lease::entry::ByKey,
        limit::duration,
        proto::{CheckRequest, CheckResponse, LeaseGrant},
        telemetry::Telemetry,
    };

    #[tokio::test]
    async fn a_renewal_that_grants_nothing_leaves_the_retry_of_a_refusal() {
        let hour = Duration::from_secs(3600);
        let client = Client::new("127.0.0.1:1").expect("a client");
        let caller = Arc::clone(&client.inner.caller);
        let leases = Leases::start(caller, Arc::new(Telemetry::new()), hour, &mut JoinSet::new());
        let entry = Entry::new(&ByKey(Arc::new(CheckRequest::default())));
        let answered = |cost, decision, units| {
            let request = LeaseRequest { lease: 1, sequence: 1, spent: 0, kept: 0, want: 1, generation: 1, cost };
            let permit = client.inner.caller.breaker.permit().expect("closed");
            let flight = Flight { job: Job::new(&entry, request, hour), permit, retries: 0 };
            let grant = Some(LeaseGrant { units, ..LeaseGrant::default() });
            leases.answered(flight, &LeaseResponse { decision: Some(decision), grant, ..LeaseResponse::default() });
            entry.refuse(1, 0, 0).retry_after.expect("a time")
        };
        let allowed = || CheckResponse { allowed: true, ..CheckResponse::default() };
        let refused = CheckResponse { retry_after: duration(hour), ..CheckResponse::default() };
        assert!(answered(1, refused.clone(), 0) >= hour);
        assert!(answered(0, allowed(), 0) >= hour);
        assert_eq!(answered(0, allowed(), 1), Duration::ZERO);
        assert!(answered(1, refused, 0) >= hour);
        assert_eq!(answered(1, allowed(), 0), Duration::ZERO);
    }
}
