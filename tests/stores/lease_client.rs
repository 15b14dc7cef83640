//! A client that leases one key: weir-core's machine, by the calls of the API.

use std::time::Instant;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming, transport::Channel};
use weir::proto::{self, CheckRequest, LeaseGrant, LeaseResponse, LeaseTerms, rate_limiter_client::RateLimiterClient};
use weir_core::{
    algorithm::message::micros,
    domain::Micros,
    hold::{Balance, ClientLease, Grant, LeaseAnswer, LeaseRequest, Offer, OnCheck, Settled, Spend},
};

/// How a check was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// Paid by the lease.
    Leased,
    /// Admitted by the service.
    Admitted,
    /// Refused by the service.
    Refused,
    /// Refused without asking it.
    HeldOff,
}

/// A client.
pub struct LeaseClient {
    holder: [u8; 16],
    key: Vec<String>,
    begun: Instant,
    lease: ClientLease,
    balance: Balance,
    client: RateLimiterClient<Channel>,
    requests: mpsc::Sender<proto::LeaseRequest>,
    answers: Streaming<LeaseResponse>,
    pending: Vec<(u64, u64)>,
    closing: Option<LeaseRequest>,
}

type Stream = (mpsc::Sender<proto::LeaseRequest>, Streaming<LeaseResponse>);

async fn open(client: &mut RateLimiterClient<Channel>) -> Result<Stream, Status> {
    let (send, mut requests) = mpsc::channel(64);
    let requests = futures_util::stream::poll_fn(move |cx| requests.poll_recv(cx));
    Ok((send, client.lease(requests).await?.into_inner()))
}

/// A request as the API has it.
fn message(request: &LeaseRequest, holder: [u8; 16], key: &[String]) -> proto::LeaseRequest {
    let LeaseRequest { lease, sequence, spent, kept, want, generation, cost } = *request;
    let check = CheckRequest { key: key.to_vec(), cost: Some(cost), ..CheckRequest::default() };
    proto::LeaseRequest { check: Some(check), holder: holder.to_vec(), lease, sequence, spent, kept, want, generation }
}

impl LeaseClient {
    /// A client of this service.
    pub async fn new<S: ToString>(mut client: RateLimiterClient<Channel>, key: &[S]) -> Result<Self, Status> {
        let (requests, answers) = open(&mut client).await?;
        Ok(Self {
            holder: rand::random(),
            key: key.iter().map(ToString::to_string).collect(),
            begun: Instant::now(),
            lease: ClientLease::default(),
            balance: Balance::default(),
            client,
            requests,
            answers,
            pending: Vec::new(),
            closing: None,
        })
    }

    /// Goes on at another replica.
    pub async fn move_to(&mut self, mut client: RateLimiterClient<Channel>) -> Result<(), Status> {
        (self.requests, self.answers) = open(&mut client).await?;
        self.client = client;
        let now = self.now();
        self.pending.drain(..).for_each(|(lease, sequence)| self.lease.lost(&self.balance, lease, sequence, now));
        Ok(())
    }

    fn now(&self) -> Micros {
        self.begun.elapsed().as_micros() as Micros
    }

    /// Checks the key for one unit.
    pub async fn check(&mut self) -> Result<Decided, Status> {
        self.hear(None).await?;
        if let Some(request) = self.lease.due(&self.balance, self.now()) {
            self.send(&request).await?;
        }
        let now = self.now();
        match self.balance.spend(1, now) {
            Spend::Spent => return Ok(Decided::Leased),
            Spend::Low => {
                if let Some(request) = self.lease.low(&self.balance, now) {
                    // The unit is spent whatever becomes of the request.
                    let _ = self.send(&request).await;
                }
                return Ok(Decided::Leased);
            }
            Spend::Short => {}
        }
        let is_allowed = match self.lease.short(&self.balance, 1, now) {
            OnCheck::Refuse { .. } => return Ok(Decided::HeldOff),
            OnCheck::Check => {
                let check = CheckRequest { key: self.key.clone(), ..CheckRequest::default() };
                let answer = self.client.check(check).await?.into_inner();
                self.lease.checked(1, !answer.allowed, now, self.now());
                answer.allowed
            }
            OnCheck::Ask(request) => {
                self.send(&request).await?;
                self.hear(Some((request.lease, request.sequence))).await?
            }
        };
        Ok(if is_allowed { Decided::Admitted } else { Decided::Refused })
    }

    async fn send(&mut self, request: &LeaseRequest) -> Result<(), Status> {
        self.pending.push((request.lease, request.sequence));
        let message = message(request, self.holder, &self.key);
        self.requests.send(message).await.map_err(|_| Status::unavailable("the stream has ended"))
    }

    /// Takes the answers that are there; waits for that to this request, if there is one: whether its check is allowed.
    async fn hear(&mut self, awaited: Option<(u64, u64)>) -> Result<bool, Status> {
        loop {
            let next = match awaited {
                Some(_) => Some(self.answers.message().await),
                None => self.answers.message().now_or_never(),
            };
            let Some(next) = next else { return Ok(false) };
            let answer = next?.ok_or_else(|| Status::unavailable("the stream has ended"))?;
            let (number, now) = ((answer.lease, answer.sequence), self.now());
            self.pending.retain(|pending| *pending != number);
            let decision = answer.decision.clone().unwrap_or_default();
            if let Some(error) = decision.error {
                self.lease.lost(&self.balance, answer.lease, answer.sequence, now);
                if awaited == Some(number) {
                    return Err(Status::new(Code::from(error.code), error.message));
                }
            } else if let Some(request) = self.lease.answered(&self.balance, &read(&answer), now) {
                self.send(&request).await?;
            }
            if awaited == Some(number) {
                return Ok(decision.allowed);
            }
        }
    }

    /// Gives back what it holds, and waits until that is settled. To be called again where it fails.
    pub async fn close(&mut self) -> Result<(), Status> {
        self.closing = self.closing.or(self.lease.close(&self.balance, self.now()));
        let Some(request) = self.closing else { return Ok(()) };
        self.send(&request).await?;
        self.hear(Some((request.lease, request.sequence))).await.map(drop)
    }
}

/// An answer as the machine takes it.
fn read(answer: &LeaseResponse) -> LeaseAnswer {
    let LeaseResponse { lease, sequence, decision, grant, terms, .. } = answer;
    let time = |time: &Option<prost_types::Duration>| time.as_ref().and_then(micros).expect("a time");
    let grant = grant.as_ref().map(|LeaseGrant { units, free, is_kept, is_recalled, refused_for }| Grant {
        sequence: *sequence,
        units: *units,
        free: *free,
        is_kept: *is_kept,
        is_recalled: *is_recalled,
        refused_for: time(refused_for),
        settled: Settled::default(),
    });
    let offer = terms.as_ref().map(|LeaseTerms { generation, ttl, hold_off, scarce }| {
        Offer::new(*generation, time(ttl), time(hold_off), *scarce)
    });
    let is_refused = decision.as_ref().is_some_and(|decision| !decision.allowed);
    LeaseAnswer { lease: *lease, sequence: *sequence, is_refused, grant, offer }
}
