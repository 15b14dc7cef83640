//! Abuses a service in all ways of malicious clients concurrently, and prints the results. `./drill
//! abuse` and `./drill soak` run it together with good traffic.
//!
//! It needs a policy with the keys `flood/*`.

#![allow(clippy::expect_used)]

use std::{
    error::Error,
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use clap::Parser;
use tokio::{runtime::Builder, time::interval};
use weir::proto::{CheckBatchRequest, CheckRequest, rate_limiter_client::RateLimiterClient};

// The tests use the rest.
#[allow(dead_code)]
#[path = "../tests/blackbox/support/raw.rs"]
mod raw;

use raw::{ENHANCE_YOUR_CALM, Raw, is_closed};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Timeout of each kind of abuse.
const TIMEOUT: Duration = Duration::from_secs(60);
const CHECK: &str = "/weir.v1.RateLimiter/Check";
const CHECK_STREAM: &str = "/weir.v1.RateLimiter/CheckStream";
/// Number of checks that flow control lets a client send while it reads no answer.
const UNREAD: usize = 10_000;
/// Number of distinct keys in a call.
const BATCH: u64 = 1_000;
/// Number of calls reset in one write, and on one connection before the service must have closed it.
const RESETS: (u32, u32) = (1_000, 1_000_000);
/// Number of silent connections.
const SILENT: usize = 200;
/// Number of endless streams, and the interval of each one's checks.
const ENDLESS: (usize, Duration) = (32, Duration::from_millis(100));

/// Do harm to a service
#[derive(Parser)]
struct Args {
    /// The gRPC address
    #[arg(long)]
    grpc: SocketAddr,
    /// How long
    #[arg(long)]
    seconds: u64,
    /// Distinct keys a minute
    #[arg(long, default_value_t = 1_000_000)]
    keys_a_minute: u64,
}

/// Counts of the abuse.
#[derive(Default)]
struct Done {
    keys: AtomicU64,
    resets: AtomicU64,
    closed_for_resets: AtomicU64,
    heads: AtomicU64,
    pings: AtomicU64,
    held_back: AtomicU64,
    slow_readers: AtomicU64,
    silent: AtomicU64,
    stream_answers: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    let (address, done) = (args.grpc.to_string(), Done::default());
    let deadline = Instant::now() + Duration::from_secs(args.seconds);
    let again = |pause: u64, harm: &dyn Fn(&str, &Done) -> Outcome<()>| -> Outcome<()> {
        while Instant::now() < deadline {
            harm(&address, &done)?;
            sleep(Duration::from_millis(pause));
        }
        Ok(())
    };
    thread::scope(|scope| {
        let mut running = vec![scope.spawn(|| calls(&args, deadline, &done))];
        for _ in 0..2 {
            running.push(scope.spawn(|| again(20, &reset)));
            running.push(scope.spawn(|| again(50, &giant_head)));
            running.push(scope.spawn(|| again(100, &ping)));
        }
        for _ in 0..8 {
            running.push(scope.spawn(|| again(0, &send_and_never_read)));
        }
        running.push(scope.spawn(|| again(0, &open_silent)));
        running.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| Err("a part of the harm panicked".into())))
    })?;
    done.print()
}

impl Done {
    /// Prints the counts, each of which must be above 0.
    fn print(&self) -> Outcome<()> {
        for (what, count) in [
            ("distinct keys", &self.keys),
            ("calls taken back", &self.resets),
            ("connections closed for it", &self.closed_for_resets),
            ("heads that do not end", &self.heads),
            ("pings and settings", &self.pings),
            ("times that who sent them was held back or closed", &self.held_back),
            ("clients that never read", &self.slow_readers),
            ("connections that say nothing", &self.silent),
            ("answers on endless streams", &self.stream_answers),
        ] {
            let count = count.load(Ordering::Relaxed);
            println!("{count:>12} {what}");
            if count == 0 {
                return Err(format!("{what}: none").into());
            }
        }
        Ok(())
    }
}

/// Makes calls and resets them immediately, until the service closes the connection for it.
fn reset(address: &str, done: &Done) -> Outcome<()> {
    let mut raw = Raw::connect(address, 65_535)?;
    for _ in 0..RESETS.1 / RESETS.0 {
        match raw.take_back(CHECK, RESETS.0) {
            Ok(()) => add(&done.resets, RESETS.0.into()),
            Err(error) if is_closed(&error) => {
                if !matches!(raw.end()?, None | Some(ENHANCE_YOUR_CALM)) {
                    return Err("closed for another reason than the resets".into());
                }
                add(&done.closed_for_resets, 1);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err("the service accepts a million resets on one connection".into())
}

fn giant_head(address: &str, done: &Done) -> Outcome<()> {
    let mut raw = Raw::connect(address, 65_535)?;
    match raw.head_without_end(126, 10_000) {
        Err(error) if !is_closed(&error) => return Err(error.into()),
        _ => {}
    }
    raw.end()?;
    add(&done.heads, 1);
    Ok(())
}

/// Sends pings and SETTINGS, and reads no acknowledgement.
fn ping(address: &str, done: &Done) -> Outcome<()> {
    let mut raw = Raw::connect(address, 65_535)?;
    raw.wait_at_most(Duration::from_millis(100))?;
    loop {
        match raw.pings_and_settings(1_000) {
            Ok(()) => add(&done.pings, 2_000),
            Err(error) if is_held_back(error.kind()) || is_closed(&error) => {
                add(&done.held_back, 1);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_held_back(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn send_and_never_read(address: &str, done: &Done) -> Outcome<()> {
    let mut raw = Raw::connect(address, 65_535)?;
    raw.wait_at_most(Duration::from_secs(1))?;
    raw.call(CHECK_STREAM)?;
    let check = flood_of(0);
    for _ in 0..UNREAD {
        match raw.message(&check) {
            Ok(()) => {}
            Err(error) if is_held_back(error.kind()) || is_closed(&error) => break,
            Err(error) => return Err(error.into()),
        }
    }
    sleep(Duration::from_secs(2));
    add(&done.slow_readers, 1);
    Ok(())
}

fn open_silent(address: &str, done: &Done) -> Outcome<()> {
    let held = (0..SILENT).map(|_| TcpStream::connect(address)).collect::<Result<Vec<_>, _>>()?;
    add(&done.silent, held.len() as u64);
    sleep(Duration::from_secs(2));
    Ok(())
}

fn flood_of(number: u64) -> CheckRequest {
    CheckRequest { key: vec!["flood".to_owned(), number.to_string()], summary_only: true, ..Default::default() }
}

/// Checks ever new keys, and holds endless streams.
fn calls(args: &Args, deadline: Instant, done: &Done) -> Outcome<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let address = format!("http://{}", args.grpc);
        let streams = (0..ENDLESS.0).map(|number| endless(&address, number, deadline, done));
        tokio::try_join!(
            keys(&address, args.keys_a_minute, deadline, done),
            futures_util::future::try_join_all(streams)
        )
        .map(|_| ())
    })
}

async fn keys(address: &str, a_minute: u64, deadline: Instant, done: &Done) -> Outcome<()> {
    let mut client = RateLimiterClient::connect(address.to_owned()).await?;
    let mut ticks = interval(Duration::from_secs(60) * BATCH as u32 / u32::try_from(a_minute)?);
    let mut next = 1;
    while Instant::now() < deadline {
        ticks.tick().await;
        let checks = (next..next + BATCH).map(flood_of).collect();
        next += BATCH;
        let results = client.check_batch(CheckBatchRequest { checks }).await?.into_inner().results;
        if let Some(error) = results.into_iter().find_map(|result| result.error) {
            return Err(error.message.into());
        }
        add(&done.keys, BATCH);
    }
    Ok(())
}

async fn endless(address: &str, number: usize, deadline: Instant, done: &Done) -> Outcome<()> {
    let mut client = RateLimiterClient::connect(address.to_owned()).await?;
    let requests = futures_util::stream::unfold(interval(ENDLESS.1), move |mut ticks| async move {
        ticks.tick().await;
        (Instant::now() < deadline).then(|| (flood_of(u64::MAX - number as u64), ticks))
    });
    let mut answers = client.check_stream(requests).await?.into_inner();
    while answers.message().await?.is_some() {
        add(&done.stream_answers, 1);
    }
    Ok(())
}
