//! Many clients on one key, and limits whose units do not come back while they ask.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use weir::proto::{CheckBatchRequest, CheckRequest, CheckResponse};

use super::{
    Server,
    requests::{check, peek, short},
};

/// How many clients a crowd has.
const CLIENTS: usize = 64;
/// Checks of a client by each of the three calls.
const EACH: usize = 8;
/// How long a crowd may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Checks of a crowd.
pub const ASKED: u64 = (CLIENTS * EACH * 3) as u64;

/// How checks were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many were answered.
    pub answered: u64,
    /// Those that passed.
    pub allowed: u64,
    /// Those decided without the shared store.
    pub degraded: u64,
    /// Those of them that passed.
    pub degraded_allowed: u64,
}

impl Tally {
    /// Counts an answer, which is no error.
    pub fn add(&mut self, answer: &CheckResponse) {
        assert_eq!(answer.error, None);
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
    }
}

/// A limit of `units`, none of which come back while a test runs.
pub fn limit(algorithm: &str, units: u64) -> String {
    match algorithm {
        "gcra" => format!("gcra: {{ burst: {}, count: 1, period: 1d }}", units - 1),
        "token_bucket" => format!("token_bucket: {{ capacity: {units}, count: 1, period: 1d }}"),
        "fixed_window" => format!("fixed_window: {{ count: {units}, period: {}d }}", days_without_an_edge()),
        other => panic!("{other} is new: say here how {units} units are written that do not come back"),
    }
}

/// A period whose windows, counted from the epoch, have no edge within the next hour.
fn days_without_an_edge() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_secs();
    let day = 86_400;
    let found = [31, 30, 29].into_iter().find(|days| days * day - now % (days * day) > 3_600);
    found.expect("the three have an edge in common only every 73 years")
}

/// For every algorithm the keys `[algorithm, user]` with twice so many units and `[algorithm, user, "trade"]` with so many.
pub fn schema(units: u64) -> String {
    let nodes = weir::algorithm::LIST.iter().map(|algorithm| {
        let (outer, inner) = (limit(algorithm.name, 2 * units), limit(algorithm.name, units));
        format!(
            "  {}: {{ children: {{ '*': {{ limits: [{{ {outer} }}], children: {{ trade: {{ limits: [{{ {inner} }}] }} }} \
             }} }} }}\n",
            algorithm.name
        )
    });
    format!("schema:\n{}", nodes.collect::<String>())
}

/// A crowd's checks of `[algorithm, user, "trade"]`, its clients dealt to the services in turn.
pub async fn ask(services: &[Server], algorithm: &str, user: &str) -> Tally {
    let key = [algorithm, user, "trade"];
    let clients = (0..CLIENTS).map(|number| one(&services[number % services.len()], &key));
    tokio::time::timeout(PATIENCE, join_all(clients)).await.expect("in time").into_iter().sum()
}

/// A crowd gets exactly `units`, under a policy of [`schema`], and the level above is charged as often.
pub async fn gets_exactly(units: u64, services: &[Server], algorithm: &str, user: &str) {
    assert!(ASKED > 2 * units);
    let tally = ask(services, algorithm, user).await;
    let expected = Tally { answered: ASKED, allowed: units, degraded: 0, degraded_allowed: 0 };
    assert_eq!(tally, expected, "{algorithm}");
    for service in services {
        let answer = service.client().await.check(peek(&[algorithm, user])).await.expect("an answer").into_inner();
        assert_eq!(short(&answer), (true, 2 * units, units), "{algorithm}: the level above was charged as often");
    }
}

/// One client's checks, by every call in turn.
async fn one(service: &Server, key: &[&str]) -> Tally {
    let mut client = service.client().await;
    let one = || check(key);
    let mut tally = Tally::default();
    for _ in 0..EACH {
        tally.add(&client.check(one()).await.expect("an answer").into_inner());
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
