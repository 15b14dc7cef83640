//! Starts a server, asks it, and ends it.

use weir_test_redis::{Options, Server};

fn main() {
    let server = Server::start(Options::socket());
    println!("{}: {}", server.url(), server.cli(&["PING"]));
}
