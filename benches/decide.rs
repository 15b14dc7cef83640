//! The cost of a check, by part: `request` reads the message and encodes the key, `policy` resolves the key, `store`
//! decides the plan, `check` is the whole limiter with its metrics, `call` adds the messages, `together` is `call` on
//! several threads, `algorithm` is one step of each algorithm.
//!
//! A case is the limits of the key, the number of users (1: a hot key), and whether the requests pass. Users are drawn
//! at random, so that with many of them every decision misses the CPU's cache.

#![allow(clippy::expect_used)]

mod support;

use std::{
    cell::Cell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use weir_core::{
    algorithm::{Bounds, Params, rates},
    domain::{Clock, Key, StepInput},
    plan::{Decisions, Plan},
};
use weir_policy::Policy;
use weir_store::{MemoryStore, SystemClock, memory::MemorySettings};

use bytes::Bytes;
use divan::{Bencher, black_box};
use futures_util::FutureExt;
use prost::Message;
use support::Shape;
use weir::{
    limiter::{Limiter, Request},
    proto::CheckRequest,
    telemetry::Metrics,
    transport::{api, check_service::CheckService, decode, message::CheckMessage},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// Calls that are timed together; many, so that a case covers much of the memory.
const CALLS: u32 = 1_000;
const SAMPLES: u32 = 100;
/// Numbers of concurrent threads.
const THREADS: [usize; 2] = [1, 2];
/// Users of concurrent threads; more than the calls that are timed together.
const USERS: usize = 10_000;
const SHAPES: [Shape; 2] = [Shape::One, Shape::Nested];

/// More units than a bench spends.
const PLENTY: u64 = 100_000_000;

struct Case {
    shape: Shape,
    users: usize,
    passes: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.passes { "passes" } else { "refused" };
        write!(f, "{}, {} users, {outcome}", self.shape, self.users)
    }
}

fn cases() -> impl Iterator<Item = Case> {
    let passes = [1, 100_000, 1_000_000].map(|users| (users, true));
    let refused = [1, 100_000].map(|users| (users, false));
    let all = passes.into_iter().chain(refused);
    all.flat_map(|(users, passes)| SHAPES.map(|shape| Case { shape, users, passes }))
}

impl Case {
    /// Makes the policy. For refused requests its periods are hours rather than minutes, so that no units are refilled
    /// meanwhile.
    fn policy(&self) -> Policy {
        if self.passes { self.shape.policy(1, PLENTY) } else { self.shape.policy(60, 0) }
    }

    /// Makes a store with the states of all users, exhausted if requests are to be refused.
    fn store(&self, policy: &Policy) -> MemoryStore<SystemClock> {
        let max_keys = self.users * self.shape.levels() + 1;
        let store = MemoryStore::new(MemorySettings { max_keys, ..MemorySettings::default() }, SystemClock::new());
        for user in 0..self.users {
            let key = self.shape.key(user);
            let plan = plan(policy, &key, if self.passes { 1 } else { 6 });
            // The user's own limit is 16, the limit of trades 6; the refused case costs 6.
            (0..if self.passes { 1 } else { 3 }).for_each(|_| drop(store.verdict(&plan)));
        }
        store
    }

    fn cost(&self) -> i64 {
        if self.passes { 1 } else { 6 }
    }

    /// Returns users in random order.
    fn users(&self) -> impl Fn() -> usize {
        let users = self.users as u64;
        let state = Cell::new(0x9e37_79b9_7f4a_7c15_u64);
        move || {
            state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
            (((state.get() >> 32) * users) >> 32) as usize
        }
    }
}

fn plan<'a>(policy: &'a Policy, key: &'a Key, cost: i64) -> Plan<'a> {
    let domain = policy.domain("").expect("the default domain");
    Plan::new(domain.levels(key, cost, 1.0).expect("no factor"), domain.charge, None)
}

fn message(shape: Shape) -> Vec<u8> {
    CheckRequest { key: shape.segments(1), ..Default::default() }.encode_to_vec()
}

mod request {
    use super::*;

    #[divan::bench(args = SHAPES, sample_size = CALLS, sample_count = SAMPLES)]
    fn decode_message(bencher: Bencher, shape: Shape) {
        let bytes = message(shape);
        bencher.bench_local(|| drop(black_box(CheckMessage::read(black_box(&bytes[..])))));
    }

    #[divan::bench(args = SHAPES, sample_size = CALLS, sample_count = SAMPLES)]
    fn encode_key(bencher: Bencher, shape: Shape) {
        let segments = shape.segments(1);
        bencher.bench_local(|| drop(black_box(Key::new("", black_box(&segments)))));
    }

    #[divan::bench(args = SHAPES, sample_size = CALLS, sample_count = SAMPLES)]
    fn message_to_request(bencher: Bencher, shape: Shape) {
        let (bytes, bounds) = (message(shape), Bounds::default());
        bencher.bench_local(|| {
            let message = CheckMessage::read(black_box(&bytes[..])).expect("a message");
            drop(black_box(decode::check(&message, &bounds, 0)));
        });
    }
}

mod policy {
    use super::*;

    #[divan::bench(args = SHAPES, sample_size = CALLS, sample_count = SAMPLES)]
    fn resolve(bencher: Bencher, shape: Shape) {
        let (policy, key) = (shape.policy(1, 0), shape.key(1));
        bencher.bench_local(|| drop(black_box(plan(black_box(&policy), black_box(&key), 1))));
    }
}

mod store {
    use super::*;

    #[divan::bench(sample_size = CALLS, sample_count = SAMPLES)]
    fn read_the_clock(bencher: Bencher) {
        let clock = SystemClock::new();
        bencher.bench_local(|| clock.now());
    }

    #[divan::bench(args = cases().filter(|case| case.users == 1), sample_size = CALLS, sample_count = SAMPLES)]
    fn decide(bencher: Bencher, case: &Case) {
        let (policy, key) = (case.policy(), case.shape.key(0));
        let (store, plan) = (case.store(&policy), plan(&policy, &key, case.cost()));
        assert_eq!(passes(&store.verdict(&plan).decisions), case.passes);
        bencher.bench_local(|| drop(black_box(store.verdict(black_box(&plan)))));
    }
}

/// The main figure: a check without the encoding of the key.
#[divan::bench(args = cases(), sample_size = CALLS, sample_count = SAMPLES)]
fn resolve_and_decide(bencher: Bencher, case: &Case) {
    let policy = case.policy();
    let (store, next, cost) = (case.store(&policy), case.users(), case.cost());
    assert_eq!(passes(&store.verdict(&plan(&policy, &case.shape.key(next()), cost)).decisions), case.passes);
    let bencher = bencher.with_inputs(|| case.shape.key(next()));
    bencher.bench_local_refs(|key| drop(black_box(store.verdict(&plan(&policy, key, cost)))));
}

#[divan::bench(args = cases(), sample_size = CALLS, sample_count = SAMPLES)]
fn check(bencher: Bencher, case: &Case) {
    let policy = case.policy();
    let (store, next) = (case.store(&policy), case.users());
    let limiter = Limiter::new(store, policy, Metrics::new());
    let request = || {
        let mut request = Request::new("", &case.shape.segments(next())).expect("a key");
        request.set_terms(case.cost(), None, 1.0).expect("terms");
        request
    };
    bencher.with_inputs(request).bench_local_refs(|request| {
        let handle = limiter.policy_guard();
        let answer = limiter.check(&handle, request).now_or_never().expect("memory does not wait");
        assert_eq!(answer.expect("a decision").summary.decision.allowed, case.passes);
    });
}

/// A call without the wire: from the bytes of its message to the bytes of its answer.
#[divan::bench(args = cases(), sample_size = CALLS, sample_count = SAMPLES)]
fn call(bencher: Bencher, case: &Case) {
    let policy = case.policy();
    let (store, next) = (case.store(&policy), case.users());
    let checks = CheckService::new(Arc::new(Limiter::new(store, policy, Metrics::new())), Bounds::default());
    let message = || {
        let cost = Some(case.cost());
        Bytes::from(CheckRequest { key: case.shape.segments(next()), cost, ..Default::default() }.encode_to_vec())
    };
    bencher.with_inputs(message).bench_local_refs(|message| {
        answer(&checks, message);
    });
}

fn answer(checks: &CheckService<MemoryStore<SystemClock>>, message: &Bytes) {
    let answer = api::call::check(checks, message.clone()).now_or_never();
    assert!(black_box(answer).is_some_and(|answer| answer.is_ok()));
}

/// Concurrent calls on several threads, each with its own user or all with one: the cost of shared
/// state.
mod together {
    use super::*;

    #[divan::bench(args = SHAPES, threads = THREADS, sample_size = CALLS, sample_count = SAMPLES)]
    fn own_key(bencher: Bencher, shape: Shape) {
        let next = AtomicUsize::new(0);
        call(bencher, shape, || next.fetch_add(1, Ordering::Relaxed) % USERS);
    }

    #[divan::bench(args = SHAPES, threads = THREADS, sample_size = CALLS, sample_count = SAMPLES)]
    fn one_key(bencher: Bencher, shape: Shape) {
        call(bencher, shape, || 0);
    }

    fn call(bencher: Bencher, shape: Shape, user: impl Fn() -> usize + Sync) {
        let case = Case { shape, users: USERS, passes: true };
        let policy = case.policy();
        let store = case.store(&policy);
        let checks = CheckService::new(Arc::new(Limiter::new(store, policy, Metrics::new())), Bounds::default());
        let message =
            || Bytes::from(CheckRequest { key: shape.segments(user()), ..Default::default() }.encode_to_vec());
        bencher.with_inputs(message).bench_refs(|message| {
            answer(&checks, message);
        });
    }
}

fn passes(decisions: &Decisions) -> bool {
    decisions.iter().all(|decision| decision.allowed)
}

struct Step(Params);

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.name(), self.0.describe())
    }
}

fn steps() -> impl Iterator<Item = Step> {
    let parse =
        |entry: &weir_core::algorithm::Entry, example: &&[(&str, &str)]| (entry.parse)(example, &Bounds::default());
    rates().flat_map(move |entry| entry.examples.iter().filter_map(move |it| parse(entry, it).ok()).map(Step))
}

/// Each algorithm with a request every 100 µs, some of which pass.
#[divan::bench(args = steps(), sample_size = CALLS, sample_count = SAMPLES)]
fn algorithm(bencher: Bencher, step: &Step) {
    let every = Duration::from_micros(100).as_micros() as i64;
    let (mut now, mut state) = (1_800_000_000_000_000, None);
    bencher.bench_local(|| {
        now += every;
        let input = StepInput { now, cost: 1, max_wait: None, phase: 0 };
        let (decision, next) = black_box(&step.0).step(state.as_ref(), black_box(&input));
        state = next.or(state.take());
        black_box(decision);
    });
}
