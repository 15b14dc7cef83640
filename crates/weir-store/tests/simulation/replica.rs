//! A replica: the real shared store on its own runtime, whose clock the simulation advances.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinHandle, yield_now},
    time::advance,
};
use weir_core::{
    domain::{Key, Micros, time::SECOND},
    hold::{
        HoldId, LeaseAnswer, LeaseRequest, Offer, Outcome as Reserved, Renewal, RequestId, Reservation, ReservationStep,
    },
};
use weir_settings::Time;
use weir_store::{
    MemoryStore, Remote as _, SharedStore, StoreSettings, StoreUrl, SystemClock, Verdict,
    outage_charges::ChargeOutcome,
    platform::Platform as _,
    redis::{RedisStore, settings::RedisSettings},
};

use super::{
    case::{Case, Policy},
    network::Simulated,
};

/// The start of the simulation, by the store's clock.
pub const START: Micros = 1_790_000_000_000_000;

/// Longer than any case.
const IDEMPOTENCY_WINDOW: Micros = 60 * SECOND;

/// The answer to a check.
#[derive(Clone, Debug)]
pub struct Answer {
    pub check: u64,
    pub user: usize,
    pub started: Micros,
    pub ended: Micros,
    pub outcome: Outcome,
    /// The part of the answer about a client's lease.
    pub lease: Option<LeaseAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Admitted {
        at: Micros,
        leased: bool,
    },
    Refused {
        leased: bool,
    },
    /// Units or slots are held for this long from the decision.
    Held {
        lasts: Micros,
    },
    /// A reservation was settled at this cost.
    Settled {
        actual: u64,
    },
    /// A lease was renewed, without a check.
    Renewed,
    /// The reservation does not exist.
    Unknown,
    /// The store failed and the check was decided without it.
    Degraded {
        admitted: bool,
    },
    Failed(String),
}

/// A replica process.
pub struct Replica {
    pub machine: Simulated,
    runtime: Option<Runtime>,
    store: Arc<SharedStore>,
    started: Micros,
    /// Age in nanoseconds by its own clock.
    age: i64,
    /// Clock drift in parts per million.
    drift: i64,
    answers: Arc<Mutex<Vec<Answer>>>,
    under_way: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
    finished: Option<Arc<AtomicUsize>>,
    /// Whether the store was up when the shutdown started.
    was_up: bool,
}

/// A request to a replica.
pub struct Check {
    pub number: u64,
    pub user: usize,
    pub key: Key,
    pub kind: Kind,
    pub policy: Arc<Policy>,
    pub clock: Arc<AtomicI64>,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// With the check's number as request ID.
    Identified,
    /// A step of a reservation that is named by the check's number, with these units.
    Reservation(ReservationStep, i64),
    /// A client's request for its lease, which is this hold.
    Lease(LeaseRequest, HoldId),
}

impl Replica {
    pub fn start(case: &Case, machine: Simulated, started: Micros, drift: i64) -> Self {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).event_interval(u32::MAX).build().expect("a runtime");
        let entered = runtime.enter();
        let redis_settings = RedisSettings {
            command_timeout: Time(case.command_timeout),
            connect_timeout: Time(4 * case.command_timeout),
            pool_size: case.pool_size,
            max_batch: case.max_batch,
            ..RedisSettings::default()
        };
        let settings = StoreSettings { max_keys: 10_000, redis: redis_settings, ..StoreSettings::default() };
        let Ok(StoreUrl::Redis(url)) = case.topology.url().parse() else { panic!("a URL") };
        let place: Arc<Simulated> = Arc::new(machine.clone());
        let handle = runtime.handle().clone();
        let redis = RedisStore::start_on(place, handle, &url, &settings.redis, None, Arc::default());
        let local = MemoryStore::new(settings.memory(), SystemClock::starting_at(machine.wall_clock()));
        let store = Arc::new(SharedStore::new(redis, local, &settings, Arc::default()));
        drop(entered);
        let (answers, under_way, tasks, finished) = Default::default();
        Self {
            machine,
            runtime: Some(runtime),
            store,
            started,
            age: 0,
            drift,
            answers,
            under_way,
            tasks,
            finished,
            was_up: false,
        }
    }

    /// Advances the clock to `now` and runs all ready tasks.
    pub fn run_until(&mut self, now: Micros) {
        let age = (now - self.started) * (1_000_000 + self.drift) / 1_000;
        let passed = std::time::Duration::from_nanos((age - self.age).max(0).unsigned_abs());
        self.age = age;
        let Some(runtime) = &self.runtime else { return };
        runtime.block_on(async {
            if !passed.is_zero() {
                advance(passed).await;
            }
            // Each round runs all ready tasks; tasks woken in it run in the next round.
            for _ in 0..3 {
                yield_now().await;
            }
        });
    }

    /// Returns the owner of its leases.
    pub fn owner(&self) -> u64 {
        self.store.owner()
    }

    pub fn take_answers(&self) -> Vec<Answer> {
        std::mem::take(&mut self.answers.lock())
    }

    /// Starts a check.
    pub fn check(&mut self, check: Check) {
        let (store, answers) = (Arc::clone(&self.store), Arc::clone(&self.answers));
        let counted = Counted::new(&self.under_way);
        let task = async move {
            let _counted = counted;
            let answer = carry_out(&store, check).await;
            answers.lock().push(answer);
        };
        self.tasks.retain(|task| !task.is_finished());
        self.tasks.extend(self.runtime.as_ref().map(|runtime| runtime.spawn(task)));
    }

    /// Cancels one check in flight, as if its caller had gone.
    pub fn abandon(&mut self, index: usize) {
        self.tasks.retain(|task| !task.is_finished());
        if !self.tasks.is_empty() {
            let index = index % self.tasks.len();
            self.tasks.swap_remove(index).abort();
        }
    }

    pub fn reset(&self, key: Key, anchor: u8, subtree: bool) {
        let (store, counted) = (Arc::clone(&self.store), Counted::new(&self.under_way));
        let reset = async move {
            let _counted = counted;
            let _ = store.reset(&key, anchor, subtree).await;
        };
        self.runtime.as_ref().map(|runtime| runtime.spawn(reset));
    }

    pub fn is_idle(&self) -> bool {
        self.under_way.load(Relaxed) == 0
    }

    /// Starts the shutdown once no request is in flight.
    pub fn finish(&mut self) {
        if self.finished.is_some() || !self.is_idle() {
            return;
        }
        self.was_up = self.store.redis().is_up();
        let (store, finished) = (Arc::clone(&self.store), Arc::<AtomicUsize>::default());
        self.finished = Some(Arc::clone(&finished));
        let finish = async move {
            store.shut_down().await;
            finished.store(1, Relaxed);
        };
        self.runtime.as_ref().map(|runtime| runtime.spawn(finish));
    }

    /// Returns the units lost in a shutdown although the store was up all the time; only an outage may lose units.
    pub fn lost_at_the_end(&self) -> u64 {
        let charges = self.store.outage_charges().filter(|_| self.was_up && self.store.redis().is_up());
        charges.map_or(0, |charges| charges.units(ChargeOutcome::Shutdown))
    }

    /// Returns the units admitted in an outage and counted as lost because the store may have charged them.
    pub fn units_of_unknown_fate(&self) -> u64 {
        self.store.outage_charges().map_or(0, |charges| charges.units(ChargeOutcome::Unknown))
    }

    pub fn has_finished(&self) -> bool {
        self.finished.as_ref().is_some_and(|finished| finished.load(Relaxed) == 1)
    }

    /// Kills the replica in any state.
    pub fn kill(&mut self) {
        self.runtime = None;
    }
}

/// A request in flight, until dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

async fn carry_out(store: &SharedStore, check: Check) -> Answer {
    let Check { number, user, key, kind, policy, clock } = check;
    let (started, name) = (clock.load(Relaxed), number.to_be_bytes());
    let request = RequestId { name: name.into(), fingerprint: name, window: IDEMPOTENCY_WINDOW };
    let cost = match kind {
        Kind::Plain | Kind::Identified => 1,
        Kind::Reservation(_, units) => units,
        Kind::Lease(LeaseRequest { cost, .. }, _) => cost,
    };
    let offer = Offer::of(&policy.plan(&key, cost));
    let renewal = renewal(offer, kind);
    let mut plan = policy.plan(&key, cost);
    match kind {
        Kind::Plain => {}
        Kind::Lease(..) => plan.renewal = renewal.as_ref(),
        Kind::Identified => plan.request = Some(&request),
        Kind::Reservation(step, _) => plan.reservation = Some(Reservation { name: &name, step }),
    }
    // The same order as in `AnyStore`.
    let decided = match store.leased(&plan) {
        Some(verdict) => Ok(verdict),
        None => store.verdict(&plan).await,
    };
    let ended = clock.load(Relaxed);
    let mut lease = None;
    let outcome = match decided {
        Err(error) => Outcome::Failed(error.to_string()),
        Ok(verdict) => {
            if let Kind::Lease(LeaseRequest { lease: number, sequence, .. }, _) = kind {
                let is_refused = cost > 0 && !verdict.decisions.iter().all(|decision| decision.allowed);
                let grant = verdict.grant.as_deref().copied();
                lease = Some(LeaseAnswer { lease: number, sequence, is_refused, grant, offer });
            }
            if cost > 0 { outcome(&verdict, ended) } else { Outcome::Renewed }
        }
    };
    Answer { check: number, user, started, ended, outcome, lease }
}

/// Returns the renewal in a client's request that the store serves, as the service would.
fn renewal(offer: Option<Offer>, kind: Kind) -> Option<Renewal> {
    let (Kind::Lease(request, id), Some(offer)) = (kind, offer) else { return None };
    let LeaseRequest { sequence, spent, kept, want, generation, .. } = request;
    let renewal = Renewal { id, sequence, spent, kept, want, ttl: offer.terms.ttl };
    offer.serves(generation, kept, want).then_some(renewal)
}

fn outcome(verdict: &Verdict, ended: Micros) -> Outcome {
    let admitted = verdict.decisions.iter().all(|decision| decision.allowed);
    match verdict.reservation.as_deref() {
        Some(Reserved::Reserved { expires_after } | Reserved::Extended { expires_after }) => {
            return Outcome::Held { lasts: *expires_after };
        }
        Some(Reserved::Settled { actual, .. }) => return Outcome::Settled { actual: *actual },
        Some(Reserved::Unknown) => return Outcome::Unknown,
        Some(Reserved::Refused) | None => {}
    }
    match verdict {
        Verdict { degraded: true, .. } => Outcome::Degraded { admitted },
        // A leased unit is spent at this time, regardless of the replica's clock.
        Verdict { leased: true, .. } if admitted => Outcome::Admitted { at: ended, leased: true },
        Verdict { leased, at, .. } if admitted => Outcome::Admitted { at: at - START, leased: *leased },
        Verdict { leased, .. } => Outcome::Refused { leased: *leased },
    }
}
