//! Streams of Envoy's quota service, each of which reports many buckets every five seconds: measures CPU time and
//! memory of the service.
//!
//! `quotas ADDRESS PID STREAMS BUCKETS SECONDS`, with a domain `quota=user` that has a limit for each user.

use std::{env, fs, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use prost::Message;
use tokio::{sync::mpsc, time::Instant};
use tonic::{Request, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;
use weir_envoy::envoy::service::rate_limit_quota::v3::{BucketId, rate_limit_quota_usage_reports::BucketQuotaUsage};

const CALL: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// `RateLimitQuotaUsageReports`, with usages that are encoded once.
#[derive(Clone, PartialEq, Message)]
struct Reports {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    usages: Vec<Bytes>,
}

/// `RateLimitQuotaResponse`, with actions that are only counted.
#[derive(Clone, PartialEq, Message)]
struct Answers {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    actions: Vec<Bytes>,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, pid, streams, buckets, seconds] = &arguments[..] else {
        return Err("usage: quotas ADDRESS PID STREAMS BUCKETS SECONDS".into());
    };
    let (streams, buckets, seconds): (u32, u64, f64) = (streams.parse()?, buckets.parse()?, seconds.parse()?);
    let usages: Vec<Bytes> = (0..buckets).map(usage).collect();
    let (counts, mut received) = mpsc::unbounded_channel();
    for number in 0..streams {
        let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
        let begin = Instant::now() + REPORT_EVERY * number / streams;
        let (usages, counts) = (usages.clone(), counts.clone());
        tokio::spawn(async move {
            if let Err(error) = report(channel, begin, usages, counts).await {
                eprintln!("a stream has ended: {error}");
            }
        });
    }
    // Time for all streams to join and the assignments to settle.
    let settled = Duration::from_secs(20);
    let (mut answers, begin) = (0, Instant::now() + settled);
    tokio::time::sleep(settled).await;
    while received.try_recv().is_ok() {}
    let cpu = cpu_seconds(pid)?;
    tokio::time::sleep_until(begin + Duration::from_secs_f64(seconds)).await;
    let used = cpu_seconds(pid)? - cpu;
    while let Ok(count) = received.try_recv() {
        answers += count;
    }
    let resident = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = resident.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default().trim();
    println!(
        "{streams} streams x {buckets} buckets: {:.0} reports/s, {:.0} answers/s, {:.2} CPUs ({:.2} us a report), {resident}",
        f64::from(streams) * buckets as f64 / REPORT_EVERY.as_secs_f64(),
        answers as f64 / seconds,
        used / seconds,
        used / seconds * 1e6 / (f64::from(streams) * buckets as f64 / REPORT_EVERY.as_secs_f64()),
    );
    Ok(())
}

/// Encodes the usage of the bucket `{user: NUMBER}`.
fn usage(number: u64) -> Bytes {
    let bucket_id = Some(BucketId { bucket: [("user".to_owned(), format!("u{number}"))].into() });
    let time_elapsed = Some(prost_types::Duration { seconds: 5, nanos: 0 });
    let num_requests_allowed = number % 50 + 1;
    BucketQuotaUsage { bucket_id, time_elapsed, num_requests_allowed, ..Default::default() }.encode_to_vec().into()
}

/// Reports all usages from `begin` on, and sends the number of assignments in each answer.
async fn report(
    channel: Channel,
    begin: Instant,
    usages: Vec<Bytes>,
    counts: mpsc::UnboundedSender<usize>,
) -> Result<(), Failed> {
    let mut service = Grpc::new(channel);
    service.ready().await?;
    let mut ticks = tokio::time::interval_at(begin, REPORT_EVERY);
    let mut domain = Some("quota".to_owned());
    let reports = stream::poll_fn(move |cx| {
        ticks.poll_tick(cx).map(|_| Some(Reports { domain: domain.take().unwrap_or_default(), usages: usages.clone() }))
    });
    let codec = ProstCodec::<Reports, Answers>::default();
    let answers = service.streaming(Request::new(reports), PathAndQuery::from_static(CALL), codec).await?;
    let mut answers = answers.into_inner();
    while let Some(answer) = answers.message().await? {
        let _ = counts.send(answer.actions.len());
    }
    Ok(())
}

/// Returns the CPU time of a process so far, in seconds.
fn cpu_seconds(pid: &str) -> Result<f64, Failed> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    // User and system time of the process, in hundredths of a second.
    Ok((ticks(11) + ticks(12)) / 100.0)
}
