//! Unary calls: each waits for its answer before the next begins.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Code;

use super::{
    checks::Asker,
    tally::{Call, Meter},
    turns::{Turns, Watch},
    wire::{
        answers::{self, Answers, Fault, Kind},
        dial::Head,
        exchange::{Incoming, one_message},
        line::Line,
        patience::Patience,
    },
};

/// What carries a call to a service. Tests have one that does what they tell it.
pub trait Carrier: Send {
    /// Waits until a call can be sent. `false`: the load ended first.
    fn is_ready(&mut self) -> impl Future<Output = bool> + Send;

    /// Sends a call of so many checks and waits for what comes of it. `None`: nothing was sent.
    fn carry(&mut self, body: &Bytes, checks: u64, kind: Kind) -> impl Future<Output = Option<Answers>> + Send;
}

/// One call after the other, as long as there are turns.
pub async fn call<W: Watch>(turns: Turns<W>, mut carrier: impl Carrier, mut asker: Asker, meter: Arc<Meter>) {
    let (checks, kind) = asker.call();
    while let Some(due) = turns.next().await {
        let body = asker.body();
        loop {
            if !carrier.is_ready().await {
                turns.give_back();
                break;
            }
            let sent = turns.now();
            if let Some(answers) = carrier.carry(&body, checks, kind).await {
                meter.ended([(Call { due, sent, ended: turns.now() }, checks, answers)]);
                break;
            }
        }
    }
}

/// Calls over a connection.
pub struct OverLine {
    pub line: Line,
    pub head: Head,
    pub patience: Patience,
}

impl Carrier for OverLine {
    async fn is_ready(&mut self) -> bool {
        self.line.is_ready().await
    }

    async fn carry(&mut self, body: &Bytes, checks: u64, kind: Kind) -> Option<Answers> {
        let (response, mut stream) = self.line.begin(self.head.request())?;
        // Where that fails the answer says why.
        let _ = stream.send_data(body.clone(), true);
        let mut incoming = Incoming::Head(response);
        let answer = self.patience.wait(Instant::now(), one_message(&mut incoming)).await;
        Some(match answer {
            Some(Ok(message)) => answers::read(kind, checks, &message),
            Some(Err(fault)) => Answers::failed(checks, fault),
            None => Answers::failed(checks, Fault::new(Code::DeadlineExceeded, "no answer in time")),
        })
    }
}

#[cfg(test)]
mod tests;
