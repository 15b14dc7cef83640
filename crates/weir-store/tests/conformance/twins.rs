//! Two limits of one request that share a state: once the first has given everything back, the state is nothing to the
//! second, whatever words are left of it. Some keep words of what no longer counts, which a clock that steps back shows.

use weir_core::{
    algorithm::{Bounds, Entry, LIST, Params},
    domain::{Charge, Key, Micros},
    plan::{Decisions, Level, Limit, Origin, Plan},
};

use super::{
    memory::InMemory,
    redis::OnRedis,
    told::{Reference, Told},
};
use weir_test_redis::{Options, Server};

/// When stories of known moments begin.
pub const START: Micros = 1_790_000_000_000_000;

/// When, in tenths of the limit's window, and what a request's levels ask, which all share one state. What was charged first
/// is behind the window when the rest is given back, and within it again when the clock has stepped back.
const STORY: [(Micros, &[i64]); 4] = [(0, &[2]), (5, &[2]), (12, &[-2, -2]), (6, &[0])];

/// Tells the story, and gives all that was answered.
async fn tell(params: &Params, store: &mut impl Told) -> Vec<Decisions> {
    store.forget().await;
    let key = Key::new("", &["user", "alex"]).expect("a key");
    let limit = Limit::new(Origin::Policy, None, "*", 0, false, params.clone());
    let mut answers = Vec::new();
    for (tenths, costs) in STORY {
        let levels = costs.iter().map(|cost| Level::new(&key, 2, 2, &limit, *cost)).collect();
        let plan = Plan::new(levels, Charge::Independent, None);
        answers.push(store.decide(&plan, START + tenths * (params.window() / 10)).await);
    }
    answers
}

fn examples(algorithm: &Entry) -> Vec<Params> {
    algorithm.examples.iter().map(|it| (algorithm.parse)(it, &Bounds::default()).expect("an example")).collect()
}

#[tokio::test]
async fn a_state_that_a_limit_has_emptied_is_nothing_to_the_next() {
    let server = Server::start(Options::socket());
    let mut redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    for algorithm in LIST {
        for params in examples(algorithm) {
            let expected = tell(&params, &mut Reference::default()).await;
            let what = format!("{} {}", algorithm.name, params.describe());
            assert_eq!(tell(&params, &mut InMemory::new()).await, expected, "in memory: {what}");
            assert_eq!(tell(&params, &mut redis).await, expected, "on Redis: {what}");
        }
    }
    // The second refund takes nothing of what the first has left behind.
    let log = LIST.iter().find(|algorithm| algorithm.name == "sliding_log").expect("it is there");
    let answers = tell(&examples(log)[0], &mut redis).await;
    let left = answers.last().and_then(|last| Some((last.first()?.limit, last.first()?.remaining)));
    assert_eq!(left, Some((10, 8)));
}
