//! Checks many keys with Weir or throttlecrab-server, one call per check. `benches/compare` runs it, so that one client
//! measures both: throughput over many keys, and the memory per key.
//!
//! A request to Weir has the key `many / N` in the default domain, whose policy decides; one to throttlecrab has the
//! key `many/N` and the limit.

use std::{
    error::Error,
    iter,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use futures_util::future::join_all;
use prost::Message;
use tokio::runtime::Builder;
use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use weir::proto::{CheckRequest, CheckResponse};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Ask a service for many keys
#[derive(Clone, Parser)]
struct Spread {
    /// Whom to ask
    #[arg(long, value_enum)]
    service: Service,
    /// The gRPC address
    #[arg(long)]
    addr: SocketAddr,
    /// Distinct keys
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// How many seconds to ask for keys in no order; 0: once for each key
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Threads, each with its share of the connections
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Connections of each thread
    #[arg(long, default_value_t = 4)]
    connections: u64,
    /// Loops on each connection, each of which asks when it has its answer
    #[arg(long, default_value_t = 100)]
    loops: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Service {
    Weir,
    Throttlecrab,
}

/// An RPC that decides a key.
trait Rpc: Message + Default + 'static {
    const PATH: &'static str;
    type Answer: Message + Default + 'static;
    fn of(key: u64) -> Self;
    fn allowed(answer: &Self::Answer) -> bool;
}

impl Rpc for CheckRequest {
    const PATH: &'static str = "/weir.v1.RateLimiter/Check";
    type Answer = CheckResponse;

    fn of(key: u64) -> Self {
        Self { key: vec!["many".to_owned(), format!("{key:019}")], ..Default::default() }
    }

    fn allowed(answer: &CheckResponse) -> bool {
        // Without a level the key has no limit.
        answer.allowed && answer.levels.len() == 1
    }
}

/// The request of throttlecrab: the key with its limit.
#[derive(Clone, PartialEq, Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    /// The period in seconds.
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ThrottleResponse {
    #[prost(bool, tag = "1")]
    allowed: bool,
    #[prost(int32, tag = "2")]
    limit: i32,
    #[prost(int32, tag = "3")]
    remaining: i32,
    #[prost(int32, tag = "4")]
    retry_after: i32,
    #[prost(int32, tag = "5")]
    reset_after: i32,
}

impl Rpc for ThrottleRequest {
    const PATH: &'static str = "/throttlecrab.RateLimiter/Throttle";
    type Answer = ThrottleResponse;

    fn of(key: u64) -> Self {
        let key = format!("many/{key:019}");
        Self { key, max_burst: 10_000, count_per_period: 1, period: 600, quantity: 1 }
    }

    fn allowed(answer: &ThrottleResponse) -> bool {
        answer.allowed
    }
}

fn main() -> Outcome<()> {
    let spread = Spread::parse();
    let since = Instant::now();
    let threads = (0..spread.threads).map(|thread| {
        let spread = spread.clone();
        thread::spawn(move || match spread.service {
            Service::Weir => spread.run::<CheckRequest>(thread, since),
            Service::Throttlecrab => spread.run::<ThrottleRequest>(thread, since),
        })
    });
    // All threads are spawned before the first is joined.
    let threads: Vec<_> = threads.collect();
    let mut checks = 0;
    for thread in threads {
        checks += thread.join().map_err(|_| "a thread failed")??;
    }
    println!("checks={checks} per_second={:.0}", checks as f64 / since.elapsed().as_secs_f64());
    Ok(())
}

impl Spread {
    /// Runs the loops of one thread, and returns the number of their checks.
    fn run<T: Rpc>(&self, thread: u64, since: Instant) -> Outcome<u64> {
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let mut loops = Vec::new();
            for connection in 0..self.connections {
                let channel = Endpoint::try_from(format!("http://{}", self.addr))?.connect().await?;
                for index in 0..self.loops {
                    let number = (thread * self.connections + connection) * self.loops + index;
                    loops.push(self.ask::<T>(Grpc::new(channel.clone()), number, since));
                }
            }
            join_all(loops).await.into_iter().sum()
        })
    }

    async fn ask<T: Rpc>(&self, mut client: Grpc<Channel>, number: u64, since: Instant) -> Outcome<u64> {
        let mut checks = 0;
        for key in self.keys_of(number, since) {
            client.ready().await?;
            let codec = ProstCodec::<T, T::Answer>::default();
            let answer = client.unary(Request::new(T::of(key)), PathAndQuery::from_static(T::PATH), codec).await?;
            if !T::allowed(answer.get_ref()) {
                return Err(format!("key {key} is not answered as it should be").into());
            }
            checks += 1;
        }
        Ok(checks)
    }

    /// Returns the keys of one loop: its share of all keys, or random ones until time is up.
    fn keys_of(&self, number: u64, since: Instant) -> Box<dyn Iterator<Item = u64>> {
        let (keys, loops) = (self.keys, self.threads * self.connections * self.loops);
        if self.seconds == 0 {
            return Box::new((number..keys).step_by(loops as usize));
        }
        let (until, mut random) = (Duration::from_secs(self.seconds), number);
        let any = iter::repeat_with(move || {
            // The upper bits of a linear congruential generator.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % keys
        });
        Box::new(any.take_while(move |_| since.elapsed() < until))
    }
}
