//! Many clients on one key, and limits whose units do not refill in the meantime.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_core::{
    algorithm::{Bounds, Entry, Params, rates},
    domain::{Micros, StepInput, time::DAY},
};

use futures_util::future::join_all;
use tonic::Code;
use weir::proto::{CheckBatchRequest, CheckRequest, CheckResponse};

use super::{
    Server,
    requests::{check, peek, short},
};

/// Number of clients in a large crowd.
pub const CLIENTS: usize = 64;
/// Checks of a client by each of the three calls.
const EACH: usize = 8;
/// Timeout of a crowd.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the number of checks of a crowd.
pub const fn asked(clients: usize) -> u64 {
    (clients * EACH * 3) as u64
}

/// Counts of answers by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of answered checks.
    pub answered: u64,
    /// Allowed checks.
    pub allowed: u64,
    /// Checks decided without the shared store.
    pub degraded: u64,
    /// Allowed checks decided without the shared store.
    pub degraded_allowed: u64,
    /// Checks that were shed because the store could not decide them in time.
    pub shed: u64,
}

impl Tally {
    /// Counts an answer, which must not be an error other than load shedding.
    pub fn add(&mut self, answer: &CheckResponse) {
        if let Some(error) = &answer.error {
            assert_eq!(error.code, Code::ResourceExhausted as i32, "{error:?}");
            self.shed += 1;
            return;
        }
        self.answered += 1;
        self.allowed += u64::from(answer.allowed);
        self.degraded += u64::from(answer.degraded);
        self.degraded_allowed += u64::from(answer.degraded && answer.allowed);
    }
}

impl std::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |mut all, tally| {
            all += tally;
            all
        })
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.allowed += other.allowed;
        self.degraded += other.degraded;
        self.degraded_allowed += other.degraded_allowed;
        self.shed += other.shed;
    }
}

fn now() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_micros() as Micros
}

/// Finds parameters of an algorithm, a scaled example, with a limit of `units` in one burst, none of which refills
/// within an hour, and whose refusals are not charged.
fn lasting(algorithm: &Entry, units: u64) -> Params {
    let now = now();
    let input = |now, cost| StepInput { now, cost, max_wait: Some(0), phase: 0 };
    let lasts = |params: &Params| {
        let (full, state) = params.step(None, &input(now, units as i64));
        // An algorithm that can overdraw grants one more unit.
        let lent = params.step(state.as_ref(), &input(now, 1)).1.or(state);
        let (later, charged) = params.step(lent.as_ref(), &input(now, 1));
        let waits = !later.allowed && later.retry_after > Some(DAY / 24);
        full.limit == units && full.allowed && waits && charged.is_none()
    };
    let sized = |params: Params| {
        let limit = params.step(None, &input(now, 0)).0.limit as f64;
        // Parameters round up, so the limit may be one more than the parameter.
        let factors = [limit / units as f64, (limit - 1.0) / (units - 1) as f64].map(|factor| factor * (1.0 + 1e-12));
        factors.into_iter().filter_map(move |factor| params.scale(factor).ok())
    };
    let examples = algorithm.examples.iter().filter_map(|it| (algorithm.parse)(it, &Bounds::default()).ok());
    let mut found = examples.flat_map(sized).filter(lasts);
    found.next().unwrap_or_else(|| panic!("{} needs an example of which nothing comes back for hours", algorithm.name))
}

/// Returns the number of units that a limit of `units` admits to a crowd with checks of one unit: more if the algorithm
/// can overdraw, fewer if the first units cost more.
pub fn given(algorithm: &Entry, units: u64) -> u64 {
    let (params, now) = (lasting(algorithm, units), now());
    let mut state = None;
    let passes = |_: &u64| {
        let (decision, next) = params.step(state.as_ref(), &StepInput { now, cost: 1, max_wait: None, phase: 0 });
        state = next.or(state.take());
        decision.allowed
    };
    (0..asked(CLIENTS)).take_while(passes).count() as u64
}

/// Makes a policy with the keys `[algorithm, user]` with twice the units and `[algorithm, user, "trade"]` with `units`
/// for every algorithm.
pub fn schema(units: u64) -> String {
    let nodes = rates().map(|algorithm| {
        let name = algorithm.name;
        let [outer, inner] =
            [2 * units, units].map(|units| format!("{name}: {}", lasting(algorithm, units).describe()));
        format!(
            "  {name}: {{ children: {{ '*': {{ limits: [{{ {outer} }}], children: {{ trade: {{ limits: [{{ {inner} }}] }} }} \
             }} }} }}\n"
        )
    });
    format!("schema:\n{}", nodes.collect::<String>())
}

/// Runs the clients' checks of `[algorithm, user, "trade"]`, spread over the services.
pub async fn ask(services: &[Server], clients: usize, algorithm: &str, user: &str) -> Tally {
    let key = [algorithm, user, "trade"];
    let clients = (0..clients).map(|number| one(&services[number % services.len()], &key));
    tokio::time::timeout(TIMEOUT, join_all(clients)).await.expect("in time").into_iter().sum()
}

/// Asserts that a crowd is admitted exactly the units that a single caller would be, under a policy of [`schema`], and
/// that the level above is charged equally.
pub async fn gets_exactly(clients: usize, units: u64, services: &[Server], algorithm: &Entry, user: &str) {
    let (name, units_given) = (algorithm.name, given(algorithm, units));
    assert!(asked(clients) > 2 * units_given);
    let tally = ask(services, clients, name, user).await;
    let expected = Tally { answered: asked(clients), allowed: units_given, ..Tally::default() };
    assert_eq!(tally, expected, "{name}");
    for service in services {
        above_is_charged_as_often(units, service, algorithm, user).await;
    }
}

/// Asserts that the level above was charged as much as the level that a crowd has exhausted.
pub async fn above_is_charged_as_often(units: u64, service: &Server, algorithm: &Entry, user: &str) {
    let answer = service.client().await.check(peek(&[algorithm.name, user])).await.expect("an answer").into_inner();
    let (above, now) = (lasting(algorithm, 2 * units), now());
    let input = |cost| StepInput { now, cost, max_wait: None, phase: 0 };
    let mut state = None;
    for _ in 0..given(algorithm, units) {
        state = above.step(state.as_ref(), &input(1)).1;
    }
    let expected = above.step(state.as_ref(), &input(0)).0;
    assert_eq!(short(&answer), (expected.allowed, expected.limit, expected.remaining), "{}", algorithm.name);
}

/// Sends one client's checks, with every call in turn.
async fn one(service: &Server, key: &[&str]) -> Tally {
    let mut client = service.client().await;
    let one = || check(key);
    let mut tally = Tally::default();
    for _ in 0..EACH {
        match client.check(one()).await {
            Ok(answer) => tally.add(&answer.into_inner()),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                tally.shed += 1;
            }
        }
    }
    let batch = CheckBatchRequest { checks: vec![one(); EACH] };
    let answers = client.check_batch(batch).await.expect("answers").into_inner().results;
    answers.iter().for_each(|answer| tally.add(answer));
    let stream = futures_util::stream::iter(vec![CheckRequest { summary_only: true, ..one() }; EACH]);
    let mut answers = client.check_stream(stream).await.expect("a stream").into_inner();
    while let Some(answer) = answers.message().await.expect("an answer") {
        tally.add(&answer);
    }
    tally
}
