//! Attacks a service with one kind of abuse: calls or connections that are held open without a message or a body,
//! unread answers, or ever new quota buckets. `./drill attack` runs it together with good traffic.

use std::{
    collections::VecDeque,
    error::Error,
    io::Write,
    net::{SocketAddr, TcpStream},
    ops::Range,
    thread::sleep,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use tonic_health::pb::HealthCheckRequest;
use weir::proto::{CheckBatchRequest, CheckRequest};
use weir_envoy::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage,
};

// The tests use the rest.
#[allow(dead_code, clippy::expect_used)]
#[path = "../tests/blackbox/support/raw.rs"]
mod raw;

use raw::{Raw, is_closed};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Timeout of a write or a read.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which new calls are opened, as many as may have ended.
const WAVE: Duration = Duration::from_secs(1);
/// Calls of one connection in the first wave, four times the service's maximum, and in each further
/// one.
const CALLS: (usize, usize) = (1_024, 102);
/// Batches of one connection in a wave: a megabyte, four times the service's receive window.
const BATCHES: usize = 64;
/// Number of buckets that a message reports, and length of the id of each in bytes: just below the maximum.
const BUCKETS: (usize, usize) = (4, 4_000);
/// Length of a body, just below the maximum.
const BODY_BYTES: usize = 1_000_000;
/// Number of checks in a batch.
const BATCH: usize = 1_000;
/// Number of headers of each check and health check without a message: they take 20 KB.
const HEADERS: u8 = 180;
/// Pause between two bodies.
const BODY_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Attack {
    /// Checks without their message
    Check,
    /// Streams of checks without a message
    Stream,
    /// Health checks without their message
    Health,
    /// Health watches
    Watch,
    /// Reflection streams without a message
    Reflection,
    /// Checks whose answers are not read
    Unread,
    /// Batches of checks whose answers are not read
    UnreadBatches,
    /// Reports of ever new buckets with long ids, to a domain `quota` that is divided
    Quotas,
    /// Bodies without their last byte, over HTTP
    Bodies,
    /// Connections that say nothing, over gRPC and HTTP
    Silent,
}

/// Attack a service
#[derive(Parser)]
struct Args {
    /// The kind of attack
    attack: Attack,
    /// The gRPC address
    #[arg(long)]
    grpc: SocketAddr,
    /// The HTTP address
    #[arg(long)]
    http: SocketAddr,
    /// How long
    #[arg(long)]
    seconds: u64,
    /// From so many connections; of the silent ones as many on each port, a hundred times as often
    #[arg(long, default_value_t = 100)]
    connections: usize,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let opened = match args.attack {
        Attack::Bodies => send_bodies(&args, end)?,
        Attack::Silent => open_silent(&args, end)?,
        _ => open_calls(&args, end)?,
    };
    println!("{opened:>12} opened");
    Ok(())
}

/// Opens as many silent connections as the options allow, and closes the oldest for new ones.
fn open_silent(args: &Args, end: Instant) -> Outcome<usize> {
    let (mut held, mut opened) = (VecDeque::new(), 0);
    while Instant::now() < end {
        for address in [args.grpc, args.http] {
            held.push_back(TcpStream::connect(address)?);
            opened += 1;
        }
        while held.len() > 100 * args.connections {
            held.pop_front();
        }
        if held.len() >= 30 * args.connections {
            sleep(Duration::from_millis(1));
        }
    }
    Ok(opened)
}

/// Sends bodies that do not end, each on its own connection, and closes the oldest for new ones.
fn send_bodies(args: &Args, end: Instant) -> Outcome<usize> {
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: weir\r\ncontent-type: application/json\r\ncontent-length: {BODY_BYTES}\r\n\r\n"
    );
    let all_but_the_last = vec![b' '; BODY_BYTES - 1];
    let (mut held, mut opened) = (VecDeque::new(), 0);
    while Instant::now() < end {
        let mut stream = TcpStream::connect(args.http)?;
        stream.set_write_timeout(Some(WAVE))?;
        // The service does not read the whole body of a request that it rejects meanwhile.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&all_but_the_last));
        held.push_back(stream);
        opened += 1;
        if held.len() > args.connections {
            held.pop_front();
            // Memory is measured here, not the rate at which the service can receive bytes.
            sleep(BODY_PAUSE);
        }
    }
    Ok(opened)
}

fn open_calls(args: &Args, end: Instant) -> Outcome<usize> {
    let address = args.grpc.to_string();
    // A client that reads no answer has a window of 0.
    let window = if matches!(args.attack, Attack::Unread | Attack::UnreadBatches) { 0 } else { 65_535 };
    let connect = || Raw::connect(&address, window);
    let mut connections = (0..args.connections).map(|_| connect()).collect::<Result<Vec<_>, _>>()?;
    let waves = if matches!(args.attack, Attack::UnreadBatches | Attack::Quotas) { (BATCHES, BATCHES) } else { CALLS };
    let (mut opened, mut calls) = (0, waves.0);
    while Instant::now() < end {
        let since = Instant::now();
        for raw in &mut connections {
            match open(raw, args.attack, opened..opened + calls) {
                Ok(()) => opened += calls,
                Err(error) if is_closed(&error) => *raw = connect()?,
                Err(error) => return Err(error.into()),
            }
        }
        sleep(WAVE.saturating_sub(since.elapsed()));
        calls = waves.1;
    }
    Ok(opened)
}

fn check() -> CheckRequest {
    CheckRequest { key: vec!["user".to_owned(), "alex".to_owned()], ..CheckRequest::default() }
}

/// Makes a report of buckets that no other call reports.
fn reports(call: usize) -> RateLimitQuotaUsageReports {
    let (buckets, bytes) = BUCKETS;
    let usage = |number: usize| {
        let bucket = [("user".to_owned(), format!("{number:0bytes$}"))].into();
        BucketQuotaUsage { bucket_id: Some(BucketId { bucket }), ..BucketQuotaUsage::default() }
    };
    let bucket_quota_usages = (0..buckets).map(|bucket| usage(call * buckets + bucket)).collect();
    RateLimitQuotaUsageReports { domain: "quota".to_owned(), bucket_quota_usages }
}

fn open(raw: &mut Raw, attack: Attack, calls: Range<usize>) -> std::io::Result<()> {
    let names: Vec<_> = (0..HEADERS).map(|number| format!("x-{number}")).collect();
    let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    for call in calls {
        match attack {
            Attack::Check => raw.call_with("/weir.v1.RateLimiter/Check", &headers),
            Attack::Stream => raw.call("/weir.v1.RateLimiter/CheckStream"),
            Attack::Health => raw.call_with("/grpc.health.v1.Health/Check", &headers),
            Attack::Watch => raw.ask("/grpc.health.v1.Health/Watch", &HealthCheckRequest::default()),
            Attack::Reflection => raw.call("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
            Attack::Unread => raw.ask("/weir.v1.RateLimiter/Check", &check()),
            Attack::UnreadBatches => {
                raw.ask("/weir.v1.RateLimiter/CheckBatch", &CheckBatchRequest { checks: vec![check(); BATCH] })
            }
            Attack::Quotas => raw
                .ask("/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas", &reports(call)),
            Attack::Bodies | Attack::Silent => Ok(()),
        }?;
    }
    raw.discard()
}
