//! A slot of a concurrency limit guards work that must not run twice at the same time.

use std::{env, error::Error, time::Duration};

use weir_client::{Acquired, Client};

/// Exports, unless another export is running.
async fn export(weir: &Client, what: &str) -> Result<(), Box<dyn Error>> {
    match weir.slot(["exports", "alex"]).await? {
        Acquired::Refused(_) => println!("another one has to wait"),
        Acquired::Held(slot) => {
            println!("{what}");
            if what == "exporting" {
                Box::pin(export(weir, "two at the same time")).await?;
            }
            slot.release().await?;
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("WEIR_ADDR").unwrap_or("127.0.0.1:8081".to_owned());
    let weir = Client::builder(address).deadline(Duration::from_secs(10)).build()?;
    export(&weir, "exporting").await?;
    export(&weir, "exporting again").await
}
