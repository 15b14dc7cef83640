//! What means nothing any more leaves the store by itself.

use crate::{
    servers::{Options, Server, eventually},
    service::{patient, runtime},
    support::requests::check,
};

/// Users with states of their own.
const USERS: usize = 50;

/// A limit of each algorithm whose states mean nothing after a second.
fn short_lived(algorithm: &str) -> &str {
    match algorithm {
        "gcra" => "gcra: { burst: 0, count: 1, period: 1s }",
        "token_bucket" => "token_bucket: { capacity: 1, count: 1, period: 1s }",
        "fixed_window" => "fixed_window: { count: 1, period: 1s }",
        other => panic!("{other} is new: say here what is forgotten after a second"),
    }
}

#[test]
fn after_the_longest_period_the_store_is_empty() {
    let redis = Server::start(Options::socket());
    let limits: String =
        weir::algorithm::LIST.iter().map(|algorithm| format!("{{ {} }}, ", short_lived(algorithm.name))).collect();
    let service = patient(&redis.url())
        .policy(&format!(
            "schema: {{ user: {{ children: {{ '*': {{ limits: [{limits}], children: {{ trade: {{ limits: [{limits}] }} }} \
             }} }} }} }}"
        ))
        .start();
    runtime().block_on(async {
        let mut client = service.client().await;
        for user in 0..USERS {
            let answer = client.check(check(&["user", &user.to_string(), "trade"])).await.expect("an answer");
            assert!(answer.into_inner().allowed);
        }
    });
    let keys = || redis.try_cli(&["DBSIZE"]);
    assert_ne!(keys(), Ok("0".to_owned()));
    eventually("an empty store", || keys().and_then(|keys| if keys == "0" { Ok(()) } else { Err(keys) }));
}
