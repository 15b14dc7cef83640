//! The first check: may alex trade?

use std::{env, error::Error, time::Duration};

use weir_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("WEIR_ADDR").unwrap_or("127.0.0.1:8081".to_owned());
    let weir = Client::builder(address).deadline(Duration::from_secs(10)).build()?;
    let decision = weir.check(["user", "alex", "trade"]).await?;
    match decision.retry_after {
        None => println!("allowed, {} of {} left", decision.remaining, decision.limit),
        Some(wait) => println!("refused, retry after {:.3} s", wait.as_secs_f64()),
    }
    Ok(())
}
