//! Many clients on one key are admitted exactly the limit, like a single client.

use crate::support::{Server, crowd, eventually, server::Setup};

/// Fewer units than the clients request together.
const UNITS: u64 = 700;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_algorithm_admits_exactly_the_limit_to_64_clients() {
    let server = [Server::with_policy(&crowd::schema(UNITS))];
    for algorithm in weir_core::algorithm::rates() {
        crowd::gets_exactly(crowd::CLIENTS, UNITS, &server, algorithm, "alex").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_multi_thread_runtime_admits_exactly_the_limit() {
    let setup = Setup::new().env("WEIR_GRPC__RUNTIME", "multi_thread").env("WEIR_GRPC__WORKERS", "3");
    let server = [setup.policy(&crowd::schema(UNITS)).start()];
    assert_eq!(server[0].log_lines("serving")[0]["workers"], 3);
    // A thread gets its name when it first runs.
    eventually("three threads of one runtime", || {
        let threads = server[0].threads();
        (threads.iter().filter(|name| *name == "weir-worker").count() == 3).then_some(())
    });
    let algorithm = weir_core::algorithm::find("gcra").expect("it is there");
    crowd::gets_exactly(crowd::CLIENTS, UNITS, &server, algorithm, "alex").await;
}
