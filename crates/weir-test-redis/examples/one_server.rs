//! Starts a server, sends one command, and stops it.

use weir_test_redis::{Options, Server};

fn main() {
    let server = Server::start(Options::socket());
    println!("{}: {}", server.url(), server.cli(&["PING"]));
}
