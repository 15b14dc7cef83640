//! Many clients on one key get exactly what one would get.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use weir::proto::{CheckBatchRequest, CheckRequest};

use crate::support::{
    Server,
    requests::{check, peek, short},
};

const CLIENTS: usize = 64;
/// Checks of a client by each of the three calls.
const EACH: usize = 8;
/// Well below what the clients ask for together.
const LIMIT: u64 = 700;

/// A limit of `units`, none of which come back while the test runs.
fn limit(algorithm: &str, units: u64) -> String {
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

fn policy(algorithm: &str) -> String {
    let (outer, inner) = (limit(algorithm, 2 * LIMIT), limit(algorithm, LIMIT));
    format!(
        "schema: {{ user: {{ children: {{ '*': {{ limits: [{{ {outer} }}], children: {{ trade: {{ limits: [{{ {inner} \
         }}] }} }} }} }} }} }}"
    )
}

/// One client's checks, by every call in turn; tells how many passed.
async fn ask(server: &Server) -> usize {
    let mut client = server.client().await;
    let one = || check(&["user", "alex", "trade"]);
    let mut allowed = 0;
    for _ in 0..EACH {
        allowed += usize::from(client.check(one()).await.expect("an answer").into_inner().allowed);
    }
    let batch = CheckBatchRequest { checks: vec![one(); EACH] };
    let answers = client.check_batch(batch).await.expect("answers").into_inner().results;
    assert_eq!(answers.len(), EACH);
    allowed += answers.iter().filter(|answer| answer.allowed).count();
    let stream = futures_util::stream::iter(vec![CheckRequest { summary_only: true, ..one() }; EACH]);
    let mut answers = client.check_stream(stream).await.expect("a stream").into_inner();
    let mut answered = 0;
    while let Some(answer) = answers.message().await.expect("an answer") {
        answered += 1;
        allowed += usize::from(answer.allowed);
    }
    assert_eq!(answered, EACH);
    allowed
}

async fn exactly_the_limit_is_admitted(algorithm: &str) {
    let server = std::sync::Arc::new(Server::with_policy(&policy(algorithm)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let server = std::sync::Arc::clone(&server);
        clients.spawn(async move { ask(&server).await });
    }
    let allowed: usize =
        tokio::time::timeout(Duration::from_secs(120), clients.join_all()).await.expect("in time").into_iter().sum();
    assert_eq!(allowed as u64, LIMIT, "{algorithm}");
    let mut client = server.client().await;
    let user = client.check(peek(&["user", "alex"])).await.expect("an answer").into_inner();
    assert_eq!(short(&user), (true, 2 * LIMIT, LIMIT), "{algorithm}: the level above was charged as often");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_are_admitted_exactly_the_limit_by_every_algorithm() {
    assert!((CLIENTS * EACH * 3) as u64 > 2 * LIMIT);
    for algorithm in weir::algorithm::LIST {
        exactly_the_limit_is_admitted(algorithm.name).await;
    }
}
