//! Many clients on one key get exactly what one would get.

use crate::support::{Server, crowd};

/// Well below what the clients ask for together.
const UNITS: u64 = 700;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_are_admitted_exactly_the_limit_by_every_algorithm() {
    let server = [Server::with_policy(&crowd::schema(UNITS))];
    for algorithm in weir::algorithm::LIST {
        crowd::gets_exactly(UNITS, &server, algorithm, "alex").await;
    }
}
