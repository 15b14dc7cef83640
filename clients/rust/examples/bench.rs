//! Calls a second and latency of checks of one key, unary and coalesced, against the service at `WEIR_ADDR`: callers that ask again as
//! soon as they are answered.

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use weir_client::{Check, Client};

const SECONDS: u64 = 5;

/// Checks for some seconds; the latencies of all, sorted.
async fn load(weir: &Client, callers: usize) -> Result<Vec<Duration>, Box<dyn Error>> {
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let weir = weir.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < until {
                let since = Instant::now();
                weir.check(Check::new(["user", "bench"])).await?;
                latencies.push(since.elapsed());
            }
            Ok::<_, weir_client::Error>(latencies)
        });
    }
    let mut all = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        all.extend(latencies??);
    }
    all.sort_unstable();
    Ok(all)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("WEIR_ADDR").unwrap_or("127.0.0.1:8081".to_owned());
    println!("| calls | retries | callers | checks/s | p50 µs | p99 µs |\n|---|---|---|---|---|---|");
    for retries in [1, 0] {
        for coalesce in [false, true] {
            for callers in [1, 16, 256] {
                let builder = Client::builder(&address).deadline(Duration::from_secs(1));
                let weir = builder.retries(retries).coalesce(coalesce).build()?;
                let latencies = load(&weir, callers).await?;
                let name = if coalesce { "coalesced" } else { "unary" };
                let percentile = |part: usize| latencies[latencies.len() * part / 100].as_micros();
                let per_second = latencies.len() as u64 / SECONDS;
                println!("| {name} | {retries} | {callers} | {per_second} | {} | {} |", percentile(50), percentile(99));
            }
        }
    }
    Ok(())
}
