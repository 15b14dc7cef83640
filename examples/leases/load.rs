//! Callers: each sends one check after another at a pace, and records the times.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{runtime::Runtime, task::JoinHandle, time::Instant};
use tonic::transport::Channel;
use weir::proto::{CheckRequest, CheckResponse, rate_limiter_client::RateLimiterClient};

use super::Outcome;

/// Number of callers of each service.
const CALLERS: u64 = 16;
/// Of this many callers, one checks reads and the others check trades.
const KINDS: u64 = 4;
/// Timeout of a call, longer than any fault.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause of a caller after a failed call.
const PAUSE: Duration = Duration::from_millis(20);
/// Timeout for a service to be answered by the store.
const START: Duration = Duration::from_secs(30);

/// Nanoseconds since the start of the round.
pub type Nanos = i64;

/// The answer to a check, and the times by its client's clock between which it was decided.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub is_trade: bool,
    pub sent: Nanos,
    pub received: Nanos,
    pub allowed: bool,
    pub degraded: bool,
    pub leased: bool,
}

/// Running callers.
pub struct Load {
    /// Nanoseconds between two checks of one caller; 0: the load has ended.
    interval: Arc<AtomicU64>,
    services: u64,
    callers: Vec<JoinHandle<Vec<Answer>>>,
}

impl Load {
    /// Starts to check keys of this user, at this rate over all services.
    pub fn start(runtime: &Runtime, services: &[String], user: &str, per_second: u64) -> Self {
        let mut load = Self { interval: Arc::default(), services: services.len() as u64, callers: Vec::new() };
        load.pace(per_second);
        let (start, _runtime) = (Instant::now(), runtime.enter());
        for address in services {
            let client = client(address);
            for number in 0..CALLERS {
                let kind = if number % KINDS == 0 { "read" } else { "trade" };
                let key = ["user", user, kind].map(str::to_owned).to_vec();
                let caller = Caller { client: client.clone(), key, start, interval: Arc::clone(&load.interval) };
                load.callers.push(runtime.spawn(caller.ask(number)));
            }
        }
        load
    }

    /// Changes the rate.
    pub fn pace(&self, per_second: u64) {
        self.interval.store(1_000_000_000 * CALLERS * self.services / per_second, Relaxed);
    }

    /// Ends the load, and returns all answers.
    pub async fn stop(self) -> Vec<Answer> {
        self.interval.store(0, Relaxed);
        join_all(self.callers).await.into_iter().flatten().flatten().collect()
    }
}

struct Caller {
    client: RateLimiterClient<Channel>,
    key: Vec<String>,
    start: Instant,
    interval: Arc<AtomicU64>,
}

impl Caller {
    async fn ask(mut self, number: u64) -> Vec<Answer> {
        let (mut answers, is_trade) = (Vec::new(), self.key.last().is_some_and(|last| last == "trade"));
        let mut due = self.start + Duration::from_nanos(self.interval.load(Relaxed) * number / CALLERS);
        loop {
            tokio::time::sleep_until(due).await;
            let interval = Duration::from_nanos(self.interval.load(Relaxed));
            if interval.is_zero() {
                return answers;
            }
            let sent = self.now();
            match check(&mut self.client, &self.key, 1).await {
                Ok(CheckResponse { allowed, degraded, leased, .. }) => {
                    answers.push(Answer { is_trade, sent, received: self.now(), allowed, degraded, leased });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
            due = (due + interval).max(Instant::now());
        }
    }

    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }
}

fn client(address: &str) -> RateLimiterClient<Channel> {
    let uri = format!("http://{address}").parse().unwrap_or_default();
    RateLimiterClient::new(Channel::builder(uri).timeout(TIMEOUT).connect_lazy())
}

async fn check(
    client: &mut RateLimiterClient<Channel>,
    key: &[String],
    cost: i64,
) -> Result<CheckResponse, tonic::Status> {
    let request = CheckRequest { key: key.to_vec(), cost: Some(cost), summary_only: true, ..CheckRequest::default() };
    Ok(client.check(request).await?.into_inner())
}

/// Waits until a service decides checks by the store.
pub async fn wait_until_served(address: &str) -> Outcome<()> {
    let (mut client, started) = (client(address), Instant::now());
    let key = ["user", "peeked"].map(str::to_owned);
    loop {
        let answer = check(&mut client, &key, 0).await;
        if answer.as_ref().is_ok_and(|answer| !answer.degraded) {
            return Ok(());
        }
        if started.elapsed() > START {
            return Err(format!("{address} is not served: {answer:?}").into());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
