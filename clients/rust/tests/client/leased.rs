use weir_client::{Check, Client, Error, Source};

pub async fn import(target: &str, rows: u32) -> Result<u32, Error> {
    let weir = Client::builder(target).lease(true).build()?;
    // Kept and lent, so that a check that a lease decides allocates nothing.
    let (check, mut without_a_call) = (Check::new(["api", "alex"]), 0);
    for _ in 0..rows {
        let decision = weir.check(&check).await?;
        if decision.source == Source::Lease {
            without_a_call += 1;
        }
    }
    // Returns the unspent units; otherwise they count as spent.
    weir.close().await;
    Ok(without_a_call)
}
