//! A reservation: the estimated cost of a language model call, settled with the tokens used.

use std::{env, error::Error, time::Duration};

use weir_client::{Acquired, Check, Client, Reserve};

const ESTIMATE: i64 = 10;

/// A stub of the model. Returns its answer and the tokens used.
async fn complete(prompt: &str) -> Result<(String, u64), Box<dyn Error>> {
    Ok((prompt.to_uppercase(), 4))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("WEIR_ADDR").unwrap_or("127.0.0.1:8081".to_owned());
    let weir = Client::builder(address).deadline(Duration::from_secs(10)).build()?;
    // Longer than any call takes. A reservation that is not settled by then counts as spent.
    let reserve = Reserve::new(Check::new(["user", "alex"]).cost(ESTIMATE)).ttl(Duration::from_secs(120));
    match weir.reserve(reserve).await? {
        Acquired::Refused(decision) => println!("refused, retry after {:?}", decision.retry_after),
        Acquired::Held(reservation) => {
            // If it fails, the reservation is dropped and thereby cancelled.
            let (_, used) = complete("hello").await?;
            let settled = reservation.commit(used).await?;
            println!(
                "used {} of {ESTIMATE} reserved, {} given back, {} over",
                settled.charged, settled.refunded, settled.overage
            );
        }
    }
    Ok(())
}
