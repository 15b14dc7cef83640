//! Client of [Weir](https://github.com/OWNER/weir), the rate-limit service.
//!
//! ```no_run
//! # async fn check() -> Result<(), Box<dyn std::error::Error>> {
//! let weir = weir_client::Client::new("127.0.0.1:8081")?;
//! let decision = weir.check(["user", "alex", "trade"]).await?;
//! if !decision.allowed {
//!     println!("refused, retry after {:?}", decision.retry_after);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * A refusal is a [`Decision`], never an [`Error`]. An error means that the service did not decide; [`OnFailure`]
//!   then applies.
//! * Every call has a deadline, 50 ms by default, which includes retries. A retried check carries a `request_id`, so
//!   that it is charged once.
//! * A [`Client`] is cheap to clone. All clones share its connections, one to each address of the target.
//! * With [`Builder::lease`] the client holds units of hot keys and decides their checks in less than a microsecond.
//! * After five consecutive outages the circuit breaker opens: calls fail immediately, and a second later a probe is
//!   sent.

mod breaker;
mod call;
mod check;
mod client;
mod coalesce;
mod decision;
mod error;
#[cfg(test)]
#[cfg(unix)]
mod fake_service;
mod guard;
#[cfg(feature = "tower")]
mod layer;
mod lease;
mod limit;
mod net;
mod reservation;
mod reset;
mod slot;
mod telemetry;
mod token;

pub use breaker::{BreakerSettings, BreakerState};
pub use check::{Check, OnFailure};
pub use client::{Builder, Client};
pub use decision::{Decision, Level, Source, Together};
pub use error::Error;
pub use guard::{Refusal, Verdict};
#[cfg(feature = "tower")]
pub use layer::{GuardLayer, GuardService, key};
pub use limit::duration;
#[cfg(feature = "tls")]
pub use net::Tls;
pub use proto::OnExpiry;
pub use reservation::{Acquired, Reservation, Reserve, Settlement};
pub use reset::Reset;
pub use slot::Slot;

/// The messages and the client of `weir.v1`, generated from `weir.proto`.
pub mod proto {
    #![allow(clippy::doc_markdown, missing_docs, rustdoc::all)]
    tonic::include_proto!("weir.v1");
}
