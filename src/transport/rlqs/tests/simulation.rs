//! Simulates replicas over one store, and Envoys that report to them, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::BytesMut;
use prost::Message;
use prost_types::Duration as WireDuration;
use tokio::{task::JoinHandle, time::Instant};
use weir_core::{
    domain::{Clock, Key, Micros, time::SECOND},
    hold::{Grant, Renewal},
    plan::Plan,
};
use weir_envoy::envoy::{
    service::rate_limit_quota::v3::{
        BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
        rate_limit_quota_response::bucket_action::BucketAction, rate_limit_quota_usage_reports::BucketQuotaUsage,
    },
    r#type::v3::rate_limit_strategy::{BlanketRule, Strategy},
};
use weir_store::{Decide, Failure, MemoryStore, ResetDone, Store, Verdict, memory::MemorySettings};

use crate::{
    limiter::Limiter,
    telemetry::Metrics,
    transport::rlqs::{QuotaMode, Quotas, RlqsSettings, Session},
};

const START: Micros = 1_790_000_000 * SECOND;
/// Time step of the simulated Envoys.
const TICK: Duration = Duration::from_millis(50);
/// Interval between the reports of an Envoy, which cuts it to whole seconds in them.
const REPORTS: Duration = Duration::from_millis(4_999);

/// The virtual time of the runtime.
#[derive(Clone, Copy, Debug)]
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Micros {
        START + self.0.elapsed().as_micros() as Micros
    }

    fn is_monotonic(&self) -> bool {
        true
    }
}

/// The store that all replicas share.
type Shared = Arc<ArcSwap<MemoryStore<VirtualClock>>>;

/// The connection of a replica to the store, which can be cut.
#[derive(Clone)]
pub(super) struct StoreConnection {
    store: Shared,
    is_cut: Arc<AtomicBool>,
}

fn empty_store(clock: VirtualClock) -> MemoryStore<VirtualClock> {
    MemoryStore::new(MemorySettings::default(), clock)
}

impl Store for StoreConnection {
    fn decide<'s, 'v>(&'s self, plan: &Plan<'_>, verdict: &'v mut Verdict) -> Decide<'s, 'v> {
        *verdict = self.store.load().verdict(plan);
        Decide::Ready(verdict)
    }

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, Failure> {
        Ok(self.store.load().reset_now(key, anchor, subtree))
    }

    async fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Grant, Failure> {
        if self.is_cut.load(Relaxed) {
            return Err(Failure::Connect("cut".into()));
        }
        self.store.load_full().renew(plan, renewal).await
    }
}

struct Replica {
    limiter: Arc<Limiter<StoreConnection>>,
    quotas: Arc<Quotas<StoreConnection>>,
    is_cut: Arc<AtomicBool>,
    running: JoinHandle<()>,
}

/// An Envoy with one bucket, `{user: alex}`. It denies requests while it has no assignment.
pub(super) struct Envoy {
    /// Requests per second.
    pub demand: f64,
    session: Option<Session<StoreConnection>>,
    /// The replica that it reports to.
    replica: usize,
    per_second: f64,
    max_tokens: f64,
    tokens: f64,
    expires: Instant,
    reports_at: Instant,
    reported: Option<Instant>,
    due: f64,
    usage: [u64; 2],
    /// Requests that passed.
    pub admitted: u64,
}

/// All replicas and Envoys.
pub(super) struct Simulation {
    policy: String,
    clock: VirtualClock,
    store: Shared,
    replicas: Vec<Option<Replica>>,
    pub envoys: Vec<Envoy>,
}

impl Simulation {
    /// Starts this many replicas, with a policy for the domain `api` and the path `user / alex`.
    pub fn new(policy: &str, replicas: usize) -> Self {
        let clock = VirtualClock(Instant::now());
        let store = Arc::new(ArcSwap::from_pointee(empty_store(clock)));
        let mut simulation = Self { policy: policy.to_owned(), clock, store, replicas: Vec::new(), envoys: Vec::new() };
        simulation.replicas.resize_with(replicas, || None);
        (0..replicas).for_each(|number| simulation.start(number));
        simulation
    }

    /// Starts a replica, without the state of an earlier one.
    pub fn start(&mut self, number: usize) {
        let policy = weir_policy::parse(&self.policy, &weir_policy::Rules::default()).expect("a policy");
        let store = StoreConnection { store: Arc::clone(&self.store), is_cut: Arc::default() };
        let is_cut = Arc::clone(&store.is_cut);
        let limiter = Arc::new(Limiter::new(store, policy, Metrics::new()));
        let domains = vec!["api=user".to_owned().try_into().expect("a domain")];
        let mode = QuotaMode { is_shared: true, ..QuotaMode::default() };
        let quotas = Quotas::new(Arc::clone(&limiter), &RlqsSettings { domains, ..RlqsSettings::default() }, mode);
        let running = tokio::spawn(Arc::clone(&quotas).run());
        self.replicas[number] = Some(Replica { limiter, quotas, is_cut, running });
    }

    /// Reloads the policy on all replicas.
    pub fn reload(&mut self, policy: &str) {
        policy.clone_into(&mut self.policy);
        for replica in self.replicas.iter().flatten() {
            replica
                .limiter
                .replace_policy(weir_policy::parse(policy, &weir_policy::Rules::default()).expect("a policy"));
        }
    }

    /// Adds an Envoy that reports to a replica.
    pub fn join(&mut self, replica: usize, demand: f64) {
        // Envoys do not all report at the same time.
        let offset = TICK * 13 * self.envoys.len() as u32;
        self.envoys.push(Envoy {
            demand,
            session: None,
            replica,
            per_second: 0.0,
            max_tokens: 0.0,
            tokens: 0.0,
            expires: Instant::now(),
            reports_at: Instant::now() + offset,
            reported: None,
            due: 0.0,
            usage: [0, 0],
            admitted: 0,
        });
    }

    /// Kills a replica. Its Envoys report to another one from now on.
    pub fn kill(&mut self, number: usize, instead: usize) {
        let Replica { running, .. } = self.replicas[number].take().expect("a replica");
        running.abort();
        self.leave(number, instead, |_| {});
    }

    /// Shuts a replica down gracefully: its Envoys get final assignments, which say how long they are valid.
    pub async fn stop(&mut self, number: usize, instead: usize) {
        let Replica { quotas, running, .. } = self.replicas[number].take().expect("a replica");
        self.leave(number, instead, |envoy| {
            let assignments = envoy.session.as_mut().and_then(Session::final_assignments);
            assignments.into_iter().for_each(|answer| envoy.hear(&answer));
        });
        running.abort();
        quotas.finish().await;
    }

    fn leave(&mut self, number: usize, instead: usize, end: impl Fn(&mut Envoy)) {
        for envoy in self.envoys.iter_mut().filter(|envoy| envoy.replica == number) {
            end(envoy);
            (envoy.replica, envoy.session) = (instead, None);
        }
    }

    /// Cuts a replica off from the store, or connects it again.
    pub fn cut(&self, number: usize, is_cut: bool) {
        self.replicas[number].as_ref().expect("a replica").is_cut.store(is_cut, Relaxed);
    }

    /// Makes the store lose all its state.
    pub fn empty_the_store(&self) {
        self.store.store(Arc::new(empty_store(self.clock)));
    }

    /// Passes time, and checks at every step that all Envoys together may use at most `limit`. Returns the part of the
    /// limit that they used.
    pub async fn pass(&mut self, seconds: u64, limit: f64) -> f64 {
        let (end, before) = (Instant::now() + Duration::from_secs(seconds), self.admitted());
        while Instant::now() < end {
            tokio::time::sleep(TICK).await;
            for envoy in &mut self.envoys {
                envoy.step(&self.replicas);
            }
            assert!(self.rate() <= limit + 0.001, "{:?} of {limit}", self.rates());
        }
        (self.admitted() - before) as f64 / (seconds as f64 * limit)
    }

    /// Returns the rate that each Envoy may use, in requests per second.
    pub fn rates(&self) -> Vec<f64> {
        self.envoys.iter().map(Envoy::rate).collect()
    }

    /// Returns the rate that they may use together.
    pub fn rate(&self) -> f64 {
        self.rates().iter().sum()
    }

    fn admitted(&self) -> u64 {
        self.envoys.iter().map(|envoy| envoy.admitted).sum()
    }
}

impl Envoy {
    fn rate(&self) -> f64 {
        if Instant::now() < self.expires { self.per_second } else { 0.0 }
    }

    fn step(&mut self, replicas: &[Option<Replica>]) {
        let seconds = TICK.as_secs_f64();
        self.tokens += self.rate() * seconds;
        self.due += self.demand * seconds;
        while self.due >= 1.0 {
            self.due -= 1.0;
            let passes = self.tokens >= 1.0 && Instant::now() < self.expires;
            self.usage[usize::from(!passes)] += 1;
            if passes {
                (self.tokens, self.admitted) = (self.tokens - 1.0, self.admitted + 1);
            }
        }
        self.tokens = self.tokens.min(self.max_tokens);
        // The first hit is reported immediately.
        let asked = self.reported.is_some() || self.usage != [0, 0];
        if asked && self.reports_at <= Instant::now() {
            self.report(replicas);
        }
        let answers: Vec<BytesMut> = match &mut self.session {
            Some(session) => std::iter::from_fn(|| session.answer().expect("the stream goes on")).collect(),
            None => Vec::new(),
        };
        answers.iter().for_each(|answer| self.hear(answer));
    }

    fn report(&mut self, replicas: &[Option<Replica>]) {
        let now = if self.reported.is_some() { self.reports_at } else { Instant::now() };
        self.reports_at = now + REPORTS;
        let Some(replica) = &replicas[self.replica] else { return };
        let is_new = self.session.is_none();
        let session = self.session.get_or_insert_with(|| Session::new(Arc::clone(&replica.quotas), None));
        let elapsed = self.reported.replace(now).map_or(0, |before| (now - before).as_secs());
        let [allowed, denied] = std::mem::take(&mut self.usage);
        let usage = BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: [("user".to_owned(), "alex".to_owned())].into() }),
            time_elapsed: Some(WireDuration { seconds: elapsed as i64, nanos: 0 }),
            num_requests_allowed: allowed,
            num_requests_denied: denied,
        };
        let domain = if is_new { "api".to_owned() } else { String::new() };
        let message = RateLimitQuotaUsageReports { domain, bucket_quota_usages: vec![usage] };
        session.receive(message.encode_to_vec().into()).expect("a report");
    }

    fn hear(&mut self, answer: &[u8]) {
        for action in RateLimitQuotaResponse::decode(answer).expect("an answer").bucket_action {
            let Some(BucketAction::QuotaAssignmentAction(assignment)) = action.bucket_action else {
                self.expires = Instant::now();
                continue;
            };
            let ttl = assignment.assignment_time_to_live.expect("a time").seconds;
            self.expires = Instant::now() + Duration::from_secs(ttl as u64);
            match assignment.rate_limit_strategy.and_then(|strategy| strategy.strategy).expect("a strategy") {
                Strategy::TokenBucket(bucket) => {
                    let interval = bucket.fill_interval.expect("a time").seconds as f64;
                    if self.per_second == 0.0 {
                        self.tokens = bucket.max_tokens.into();
                    }
                    self.max_tokens = bucket.max_tokens.into();
                    self.per_second = f64::from(bucket.tokens_per_fill.expect("a number")) / interval;
                }
                Strategy::BlanketRule(rule) if rule == BlanketRule::DenyAll as i32 => self.per_second = 0.0,
                other => panic!("{other:?}"),
            }
        }
    }
}
