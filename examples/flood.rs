//! Floods a service with bounded memory, and checks its guarantees. `./drill full-memory` runs it.
//!
//! It needs the policy of that drill: in the default domain `spent/*` allows 5 requests and `flood/*` one, and no units
//! are refilled within an hour; in the domain `short` the one request of a user expires after two seconds.

use std::{
    error::Error,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use clap::Parser;
use futures_util::{StreamExt, stream};
use tonic::transport::Channel;
use weir::proto::{CheckBatchRequest, CheckRequest, CheckResponse, rate_limiter_client::RateLimiterClient};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Number of checks in a call.
const BATCH: usize = 1_000;
/// Maximum number of calls in flight.
const CALLS: usize = 8;
/// Number of keys that are exhausted before the flood.
const SPENT: usize = 10_000;
/// Number of keys of the domain `short`.
const SHORT: usize = 200_000;
/// Number of memory samples during the flood.
const SAMPLES: usize = 10;
/// Maximum memory of the service in bytes: of itself, and of each of `max_keys` states.
const BASE_BYTES: usize = 64 << 20;
const STATE_BYTES: usize = 100;

#[derive(Parser)]
struct Flood {
    /// The gRPC address
    #[arg(long)]
    grpc: SocketAddr,
    /// The HTTP address
    #[arg(long)]
    http: SocketAddr,
    /// The service's process
    #[arg(long)]
    pid: u32,
    /// The service's store.max_keys
    #[arg(long)]
    max_keys: usize,
    /// Distinct keys to send
    #[arg(long)]
    keys: usize,
}

/// Outcomes of checks.
#[derive(Clone, Copy, Default)]
struct Counts {
    allowed: usize,
    refused: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let flood = Flood::parse();
    let client = RateLimiterClient::connect(format!("http://{}", flood.grpc)).await?;
    let started = Instant::now();

    let short = flood.send(&client, "short", "user", 0..SHORT).await?;
    check("the short-lived keys pass", short.allowed == SHORT)?;
    let mut spent = Counts::default();
    for _ in 0..6 {
        spent += flood.send(&client, "", "spent", 0..SPENT).await?;
    }
    check("5 units of each known key pass, the 6th is refused", (spent.allowed, spent.refused) == (5 * SPENT, SPENT))?;

    let sent = flood.flood(&client).await?;
    println!("sent after {:.1} s", started.elapsed().as_secs_f64());
    check("the flood got all the room but the known keys', the expired states' too", {
        sent.allowed == flood.max_keys - SPENT
    })?;

    let after = flood.send(&client, "", "spent", 0..SPENT).await?;
    check("every known key is still refused: no live limit is forgotten", after.refused == SPENT)?;
    flood.compare_counts(short, spent, sent, after)
}

impl Flood {
    /// Sends all keys, and prints a line about memory for each sample.
    async fn flood(&self, client: &RateLimiterClient<Channel>) -> Outcome<Counts> {
        let most = BASE_BYTES + self.max_keys * STATE_BYTES;
        let mut total = Counts::default();
        println!("{:>12} {:>12} {:>12} {:>12} {:>10}", "sent", "allowed", "refused", "weir_keys", "RSS MB");
        for part in 1..=SAMPLES {
            total +=
                self.send(client, "", "flood", self.keys * (part - 1) / SAMPLES..self.keys * part / SAMPLES).await?;
            let (keys, bytes) = (self.metric("weir_keys")?, self.resident()?);
            let sent = total.allowed + total.refused;
            println!("{sent:>12} {:>12} {:>12} {keys:>12} {:>10}", total.allowed, total.refused, bytes / 1_000_000);
            if keys > self.max_keys || bytes > most {
                return Err(format!("memory is not bounded by {} keys and {most} bytes", self.max_keys).into());
            }
        }
        println!("ok: never over {} keys, nor over {} MB", self.max_keys, most / 1_000_000);
        Ok(total)
    }

    /// Sends one check for each key, in batches.
    async fn send(
        &self,
        client: &RateLimiterClient<Channel>,
        domain: &str,
        first: &str,
        numbers: std::ops::Range<usize>,
    ) -> Outcome<Counts> {
        let request = |number: usize| CheckRequest {
            domain: domain.to_owned(),
            key: vec![first.to_owned(), format!("{number:019}")],
            summary_only: true,
            ..Default::default()
        };
        let end = numbers.end;
        let calls = numbers.step_by(BATCH).map(|start| {
            let checks = (start..end.min(start + BATCH)).map(request).collect();
            let mut client = client.clone();
            async move { client.check_batch(CheckBatchRequest { checks }).await }
        });
        let mut calls = stream::iter(calls).buffer_unordered(CALLS);
        let mut counts = Counts::default();
        while let Some(answer) = calls.next().await {
            for result in answer?.into_inner().results {
                counts.add(&result)?;
            }
        }
        Ok(counts)
    }

    /// Compares the service's metrics with the answers received here.
    fn compare_counts(&self, short: Counts, spent: Counts, sent: Counts, after: Counts) -> Outcome<()> {
        let checks = |domain: &str, outcome: &str| {
            self.metric(&format!(
                "weir_checks_total{{domain=\"{domain}\",transport=\"grpc_batch\",outcome=\"{outcome}\"}}"
            ))
        };
        let allowed = spent.allowed + sent.allowed + after.allowed;
        let refused = spent.refused + sent.refused + after.refused;
        for (name, counted, answered) in [
            ("weir_store_full_total", self.metric("weir_store_full_total{rule=\"deny\"}")?, sent.refused),
            ("weir_checks_total, allowed", checks("default", "allowed")?, allowed),
            ("weir_checks_total, limited", checks("default", "limited")?, refused),
            ("weir_checks_total of `short`, allowed", checks("short", "allowed")?, short.allowed),
            ("weir_evictions_total, expired", self.metric("weir_evictions_total{reason=\"expired\"}")?, SHORT),
            ("weir_keys", self.metric("weir_keys")?, self.max_keys),
        ] {
            check(&format!("{name} is {counted}, answered were {answered}"), counted == answered)?;
        }
        Ok(())
    }

    /// Returns the value of a series of `/metrics`, by its name and labels.
    fn metric(&self, series: &str) -> Outcome<usize> {
        let mut connection = TcpStream::connect(self.http)?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        connection.read_to_string(&mut text)?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = value.ok_or_else(|| format!("/metrics has no {series}"))?;
        Ok(value.parse::<f64>()? as usize)
    }

    /// Returns the resident memory of the service, in bytes.
    fn resident(&self) -> Outcome<usize> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1_024)
    }
}

impl Counts {
    fn add(&mut self, answer: &CheckResponse) -> Outcome<()> {
        if let Some(error) = &answer.error {
            return Err(format!("{}: {}", error.field, error.message).into());
        }
        self.allowed += usize::from(answer.allowed);
        self.refused += usize::from(!answer.allowed);
        Ok(())
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.refused += other.refused;
    }
}

fn check(what: &str, holds: bool) -> Outcome<()> {
    if !holds {
        return Err(format!("failed: {what}").into());
    }
    println!("ok: {what}");
    Ok(())
}
