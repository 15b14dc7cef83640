//! Asks a service as fast as it answers: closed loops, each of which asks for the next thing when it has its answer.
//! `./drill redis-speed` runs it.
//!
//! It wants a policy for the keys `user/*/trade` in the default domain.

use std::{
    error::Error,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use futures_util::{future::join_all, stream};
use tokio::sync::mpsc;
use tonic::transport::Channel;
use weir::proto::{CheckRequest, CheckResponse, rate_limiter_client::RateLimiterClient};

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, ValueEnum)]
enum Call {
    /// A call for each check
    Unary,
    /// A stream for each loop
    Stream,
}

#[derive(Clone, Parser)]
struct Load {
    /// The gRPC address
    #[arg(long)]
    grpc: SocketAddr,
    /// How checks are sent
    #[arg(long, value_enum, default_value = "unary")]
    call: Call,
    /// Threads, each with its share of the connections
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Connections of each thread
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Loops on each connection
    #[arg(long, default_value_t = 64)]
    loops: usize,
    /// Distinct users
    #[arg(long, default_value_t = 1)]
    keys: u64,
    /// How long
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

/// How the checks of some loops went.
#[derive(Default)]
struct Tally {
    allowed: u64,
    refused: u64,
    degraded: u64,
    micros: Vec<u32>,
}

fn main() -> Result<(), Failure> {
    let load = Load::parse();
    let since = Instant::now();
    let threads: Vec<_> = (0..load.threads)
        .map(|number| {
            let load = load.clone();
            thread::spawn(move || load.thread(number as u64, since))
        })
        .collect();
    let mut all = Tally::default();
    for thread in threads {
        all.add(thread.join().map_err(|_| "a thread failed")??);
    }
    all.micros.sort_unstable();
    let checks = all.micros.len();
    let quantile = |share: f64| all.micros.get(((checks.max(1) - 1) as f64 * share) as usize).copied().unwrap_or(0);
    println!(
        "checks={checks} per_second={:.0} p50_us={} p99_us={} allowed={} refused={} degraded={}",
        checks as f64 / since.elapsed().as_secs_f64(),
        quantile(0.5),
        quantile(0.99),
        all.allowed,
        all.refused,
        all.degraded
    );
    Ok(())
}

impl Load {
    /// All loops of one thread, on a runtime of its own.
    fn thread(&self, number: u64, since: Instant) -> Result<Tally, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let until = since + Duration::from_secs(self.seconds);
        runtime.block_on(async {
            let mut loops = Vec::new();
            for connection in 0..self.connections {
                let client = RateLimiterClient::connect(format!("http://{}", self.grpc)).await?;
                for index in 0..self.loops {
                    let seed = (number << 40) + ((connection as u64) << 20) + index as u64;
                    loops.push(self.ask(client.clone(), Users { state: seed, count: self.keys }, until));
                }
            }
            let mut all = Tally::default();
            for tally in join_all(loops).await {
                all.add(tally?);
            }
            Ok(all)
        })
    }

    async fn ask(
        &self,
        mut client: RateLimiterClient<Channel>,
        mut users: Users,
        until: Instant,
    ) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        match self.call {
            Call::Unary => {
                let mut since = Instant::now();
                while since < until {
                    let answer = client.check(users.check()).await?.into_inner();
                    since = tally.count(&answer, since)?;
                }
            }
            Call::Stream => {
                let (requests, receiver) = mpsc::channel(1);
                let stream = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
                requests.send(users.check()).await?;
                let mut answers = client.check_stream(stream).await?.into_inner();
                let mut since = Instant::now();
                while since < until {
                    let answer = answers.message().await?.ok_or("the stream ended")?;
                    since = tally.count(&answer, since)?;
                    requests.send(users.check()).await?;
                }
            }
        }
        Ok(tally)
    }
}

/// Users in no order: a linear congruential generator's upper bits.
struct Users {
    state: u64,
    count: u64,
}

impl Users {
    fn check(&mut self) -> CheckRequest {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let user = (self.state >> 33) % self.count;
        CheckRequest {
            key: vec!["user".to_owned(), user.to_string(), "trade".to_owned()],
            summary_only: true,
            ..CheckRequest::default()
        }
    }
}

impl Tally {
    /// Counts an answer to what was asked then; tells when it came.
    fn count(&mut self, answer: &CheckResponse, since: Instant) -> Result<Instant, Failure> {
        if let Some(error) = &answer.error {
            return Err(error.message.clone().into());
        }
        let now = Instant::now();
        self.micros.push(u32::try_from((now - since).as_micros()).unwrap_or(u32::MAX));
        self.allowed += u64::from(answer.allowed);
        self.refused += u64::from(!answer.allowed);
        self.degraded += u64::from(answer.degraded);
        Ok(now)
    }

    fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.refused += other.refused;
        self.degraded += other.degraded;
        self.micros.extend(other.micros);
    }
}
