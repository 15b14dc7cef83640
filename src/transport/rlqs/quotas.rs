//! The buckets of all streams, divided.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures_util::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::Notify,
    task::yield_now,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tracing::{debug, info, warn};
use weir_core::{
    domain::{Micros, key::domain_label, time::SECOND},
    quota::{Divider, Load, Terms},
};
use weir_store::Store;
use weir_telemetry::LogLimit;

use super::{
    authority::{Renewing, hold_ttl},
    book::{Book, Full, HOLDERS_OF_A_BUCKET},
    settings::{QuotaDomain, RlqsSettings},
    wire,
};
use crate::{
    limiter::{Limiter, quota::QuotaPath},
    telemetry::RlqsMeter,
};

/// How often what is due is divided and renewed.
const TICK: Duration = Duration::from_millis(100);
/// How often what is not used is forgotten, in ticks.
const SWEEP_EVERY: u64 = 100;
/// Buckets that follow a policy in a row, so that what else runs on the thread has its turn.
const FOLLOWED_TOGETHER: usize = 256;
/// Most renewals that are under way at once.
const MAX_RENEWING: usize = 64;
/// For how long streams are told to use what they have when they are ended: until they have found another replica, which is
/// when they report next, every five seconds.
pub const FAREWELL_SECONDS: u64 = 7;
/// How long everything may take to be given back.
const GIVING_BACK: Duration = Duration::from_secs(2);

/// Divides the limits of some domains among the Envoys that report.
pub struct Quotas<S> {
    limiter: Arc<Limiter<S>>,
    domains: Vec<QuotaDomain>,
    terms: Terms,
    max_buckets: usize,
    /// Whether other replicas have parts of the same limits.
    is_shared: bool,
    start: Instant,
    book: Mutex<Book>,
    joined: Notify,
    added: Notify,
    meter: RlqsMeter,
    warnings: LogLimit,
}

impl<S: Store> Quotas<S> {
    /// Divides what `settings` say.
    pub fn new(limiter: Arc<Limiter<S>>, settings: &RlqsSettings, is_shared: bool) -> Arc<Self> {
        let mut terms = settings.terms();
        if is_shared {
            // What others still use is held in the store, also while they have not reported yet.
            terms.reports = terms.lag;
        }
        let names = settings.domains.iter().map(|domain| domain_label(&domain.domain));
        let meter = RlqsMeter::new(limiter.metrics().registry(), names);
        let book = Book::new(Divider::new(terms), settings.domains.len(), settings.max_buckets, rand::random());
        Arc::new(Self {
            limiter,
            domains: settings.domains.clone(),
            terms,
            max_buckets: settings.max_buckets,
            is_shared,
            start: Instant::now(),
            book: Mutex::new(book),
            joined: Notify::new(),
            added: Notify::new(),
            meter,
            warnings: LogLimit::default(),
        })
    }

    /// The number of a domain whose limits are divided.
    pub fn domain(&self, name: &str) -> Option<usize> {
        self.domains.iter().position(|domain| domain.domain == name)
    }

    /// The time, as the divider counts it.
    pub fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    /// How long an assignment lasts, in seconds.
    pub fn ttl_seconds(&self) -> u64 {
        (self.terms.ttl / SECOND).unsigned_abs()
    }

    /// What is known.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }

    /// A stream reports a bucket: what it is told at once, if anything, is written.
    pub fn report(&self, stream: u64, domain: usize, report: &wire::Report<'_>, out: &mut bytes::BytesMut) {
        self.meter.used(domain, &report.usage);
        let now = self.now();
        let mut book = self.book();
        let number = match book.find(domain, report.bucket) {
            Some(number) => number,
            None => {
                // The policy is asked without the lock.
                drop(book);
                let Some(number) = self.add(domain, report.bucket) else { return };
                book = self.book();
                number
            }
        };
        match book.report(stream, number, &report.usage, now) {
            Ok(Some(action)) => wire::put_action(book.id(number), action, self.ttl_seconds(), out),
            Ok(None) => self.joined.notify_one(),
            Err(Full) => self.full(),
        }
    }

    /// A bucket, or a further holder, has no room.
    fn full(&self) {
        self.meter.full.increment(1);
        if self.warnings.allows(StdInstant::now()) {
            let (max_buckets, max_holders) = (self.max_buckets, self.max_buckets.saturating_mul(HOLDERS_OF_A_BUCKET));
            warn!(
                max_buckets,
                max_holders, "rlqs.max_buckets reached: further buckets, or Envoys with one, get no assignment"
            );
        }
    }

    /// The number of a bucket whose id came for the first time, or with its entries in another order.
    fn add(&self, domain: usize, id: &[u8]) -> Option<u32> {
        let Some(entries) = wire::entries(id) else {
            self.meter.unreadable.increment(1);
            return None;
        };
        let id = wire::id_of(&entries);
        if let Some(number) = self.book().find(domain, &id) {
            return Some(number);
        }
        let path = self.path(domain, &entries)?;
        let mut book = self.book();
        if let Some(number) = book.find(domain, &id) {
            return Some(number);
        }
        book.add(domain, id.into(), path, self.now()).inspect_err(|Full| self.full()).ok()
    }

    fn path(&self, domain: usize, entries: &std::collections::BTreeMap<String, String>) -> Option<QuotaPath> {
        let QuotaDomain { domain, keys } = self.domains.get(domain)?;
        let entries = keys.iter().filter_map(|key| Some((key.clone(), entries.get(key)?.clone()))).collect();
        let handle = self.limiter.policy_handle();
        // One bucket is never too many descriptors.
        self.limiter.quota_path(&handle, domain, entries).ok()
    }

    /// Divides and renews, for as long as it is polled.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.divide(), self.renew());
    }

    async fn divide(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut number, mut version) = (0_u64, self.limiter.current().version);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.joined.notified() => {}
            }
            number += 1;
            let current = self.limiter.current().version;
            if current != version {
                version = current;
                self.follow_policy().await;
            }
            let pause = {
                let (began, mut book) = (Instant::now(), self.book());
                book.tick(self.now());
                let held = book.levels.values().map(|it| it.held()).sum();
                self.meter.standing(book.stream_count(), book.bucket_count(), held);
                // With many buckets it takes long: a fifth of the time at most.
                4 * began.elapsed()
            };
            // What was added is measured now.
            self.added.notify_one();
            if number.is_multiple_of(SWEEP_EVERY) {
                let removed: Vec<Renewing> = {
                    let mut book = self.book();
                    let removed = book.sweep();
                    removed.into_iter().map(|mut held| held.renew(Load::default())).collect()
                };
                stream::iter(removed)
                    .for_each_concurrent(MAX_RENEWING, |level| level.give_back(&self.limiter, 0))
                    .await;
            }
            sleep(pause).await;
        }
    }

    /// Another policy is in force.
    async fn follow_policy(&self) {
        let buckets = self.book().all_buckets();
        let mut changed = 0;
        for (index, (number, domain, id)) in buckets.into_iter().enumerate() {
            if index % FOLLOWED_TOGETHER == 0 {
                yield_now().await;
            }
            let path = wire::entries(&id).and_then(|entries| self.path(domain, &entries)).unwrap_or_default();
            changed += usize::from(self.book().set_path(number, path, self.now()));
        }
        debug!(changed, "buckets have other limits");
    }

    async fn renew(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_lost = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.added.notified() => {}
            }
            let due = self.due();
            let lost = stream::iter(due)
                .map(|(name, renewing)| self.renew_one(name, renewing))
                .buffer_unordered(MAX_RENEWING)
                .fold(None, |lost: Option<bool>, one| async move { Some(lost.unwrap_or(false) | one) })
                .await;
            if let Some(is_lost) = lost.filter(|is_lost| *is_lost != was_lost) {
                was_lost = is_lost;
                if is_lost {
                    warn!("the store does not renew what this replica may divide: shares stay as they are meanwhile");
                } else {
                    info!("the store renews what this replica may divide");
                }
            }
        }
    }

    fn due(&self) -> Vec<(Vec<u8>, Renewing)> {
        let now = self.now();
        let mut book = self.book();
        let Book { levels, divider, .. } = &mut *book;
        let due = levels.iter_mut().filter(|(_, held)| held.due <= now);
        due.map(|(name, held)| (name.clone(), held.renew(divider.load(held.id)))).collect()
    }

    /// Renews a level. Whether the store did not answer.
    async fn renew_one(&self, name: Vec<u8>, renewing: Renewing) -> bool {
        let renewed = renewing.run(&self.limiter, self.is_shared, &self.terms, || self.now()).await;
        let now = self.now();
        let mut book = self.book();
        let count = book.levels.len();
        if let Some(held) = book.levels.get_mut(&name) {
            let (id, budget) = (held.id, held.renewed(&renewed, count, &self.terms, now));
            book.divider.set_budget(id, budget, now);
        }
        if renewed.is_lost {
            self.meter.lost.increment(1);
        } else {
            // Holders that wait for it get it once what comes with it is known too.
            self.joined.notify_one();
        }
        renewed.is_lost
    }

    /// Streams have ended, and been told to use what they have for [`FAREWELL_SECONDS`]: so long the store holds it still.
    pub async fn finish(&self) {
        let levels: Vec<Renewing> = {
            let mut book = self.book();
            book.levels.values_mut().map(|held| held.renew(Load::default())).collect()
        };
        let ttl = FAREWELL_SECONDS as Micros * SECOND + self.terms.lag;
        let given_back =
            stream::iter(levels).for_each_concurrent(MAX_RENEWING, |level| level.give_back(&self.limiter, ttl));
        if timeout(GIVING_BACK, given_back).await.is_err() {
            let seconds = hold_ttl(&self.terms) / SECOND;
            warn!(seconds, "not everything that was divided is given back; it is free when its time is over");
        }
    }

    /// Counts a message that cannot be read.
    pub fn unreadable(&self) {
        self.meter.unreadable.increment(1);
    }
}
