//! Closed-loop benchmark: checks per second and latency of checks of one key, unary, coalesced and leased, against the
//! service at `WEIR_ADDR`.

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use tokio::task::{JoinSet, yield_now};
use weir_client::{Check, Client};

/// Leased checks between two yields: they never wait, so the task would block its thread.
const TURN: u64 = 64;
/// Leased checks per timed one, since reading the clock twice takes as long as a check.
const TIMED: u64 = 16;

/// Sends checks for `seconds`. Returns their number and the sorted latencies.
async fn load(
    weir: &Client,
    callers: usize,
    leased: bool,
    seconds: u64,
) -> Result<(u64, Vec<Duration>), Box<dyn Error>> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let weir = weir.clone();
        tasks.spawn(async move {
            let (check, mut count, mut latencies) = (Check::new(["user", "bench"]), 0, Vec::new());
            loop {
                if leased && count % TIMED > 0 {
                    weir.check(&check).await?;
                } else {
                    let since = Instant::now();
                    if since >= until {
                        return Ok::<_, weir_client::Error>((count, latencies));
                    }
                    weir.check(&check).await?;
                    latencies.push(since.elapsed());
                }
                count += 1;
                if leased && count % TURN == 0 {
                    yield_now().await;
                }
            }
        });
    }
    let (mut checks, mut all) = (0, Vec::new());
    while let Some(result) = tasks.join_next().await {
        let (count, latencies) = result??;
        checks += count;
        all.extend(latencies);
    }
    all.sort_unstable();
    Ok((checks, all))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("WEIR_ADDR").unwrap_or("127.0.0.1:8081".to_owned());
    let seconds = env::var("BENCH_SECONDS").map_or(Ok(5), |seconds| seconds.parse())?;
    println!("| calls | retries | callers | checks/s | p50 µs | p99 µs |\n|---|---|---|---|---|---|");
    for (name, retries) in [("unary", 1), ("coalesced", 1), ("unary", 0), ("coalesced", 0), ("leased", 1)] {
        let (coalesce, lease) = (name == "coalesced", name == "leased");
        for callers in [1, 16, 256] {
            let builder = Client::builder(&address).deadline(Duration::from_secs(1));
            let weir = builder.retries(retries).coalesce(coalesce).lease(lease).build()?;
            let (checks, latencies) = load(&weir, callers, lease, seconds).await?;
            weir.close().await;
            let percentile = |part: usize| latencies[latencies.len() * part / 100].as_secs_f64() * 1e6;
            let (p50, p99) = (percentile(50), percentile(99));
            println!("| {name} | {retries} | {callers} | {} | {p50:.2} | {p99:.2} |", checks / seconds);
        }
    }
    Ok(())
}
