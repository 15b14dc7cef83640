//! Checks one key by leases for some seconds: `leased TARGET DOMAIN KEY SECONDS`, for example
//! `leased 127.0.0.1:8081 "" user/alex 10`.
//!
//! Prints a line for each allowed check, with the clock's microseconds before and after it, and a line for each failed
//! check.

use std::{
    env,
    error::Error,
    io::{BufWriter, Write as _, stdout},
    time::{Duration, Instant, SystemTime},
};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};
use weir_client::{Check, Client, OnFailure};

const PAUSE_ALLOWED: Duration = Duration::from_micros(200);
const PAUSE_REFUSED: Duration = Duration::from_millis(1);
const FLUSH_EVERY: Duration = Duration::from_millis(50);

fn micros() -> Result<u128, Box<dyn Error>> {
    Ok(SystemTime::UNIX_EPOCH.elapsed()?.as_micros())
}

async fn load(weir: &Client, check: &Check, until: Instant) -> Result<(), Box<dyn Error>> {
    let (mut out, mut flushed) = (BufWriter::new(stdout()), Instant::now());
    while Instant::now() < until {
        let before = micros()?;
        let decision = weir.check(check).await;
        let after = micros()?;
        let is_allowed = match decision {
            Ok(decision) => decision.allowed,
            Err(error) => {
                writeln!(out, "error {error}")?;
                false
            }
        };
        if is_allowed {
            writeln!(out, "{before} {after}")?;
        }
        if flushed.elapsed() >= FLUSH_EVERY {
            flushed = Instant::now();
            out.flush()?;
        }
        sleep(if is_allowed { PAUSE_ALLOWED } else { PAUSE_REFUSED }).await;
    }
    Ok(out.flush()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [target, domain, key, seconds] = arguments.as_slice() else {
        return Err("usage: leased TARGET DOMAIN KEY SECONDS".into());
    };
    let until = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let weir = Client::builder(target).lease(true).on_failure(OnFailure::Deny).build()?;
    let check = Check::new(key.split('/')).domain(domain);
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        result = load(&weir, &check, until) => result?,
        _ = terminated.recv() => {}
    }
    // Returns the held units.
    weir.close().await;
    Ok(())
}
