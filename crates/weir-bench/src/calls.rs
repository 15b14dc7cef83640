//! Unary calls: each waits for its answer before the next one starts.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Code;

use super::{
    checks::RequestWriter,
    pacing::{Clock, Pacer},
    recorder::{Call, Recorder},
    wire::{
        answers::{self, Answers, Fault, Kind},
        connection::SharedConnection,
        dial::Head,
        exchange::{Incoming, one_message},
        timeout::Timeout,
    },
};

/// A sender of calls to a service. Tests have a scripted one.
pub(crate) trait CallSender: Send {
    /// Waits until a call can be sent. `false`: the load ended first.
    fn is_ready(&mut self) -> impl Future<Output = bool> + Send;

    /// Sends a call of `checks` checks and waits for its outcome. `None`: nothing was sent.
    fn send(&mut self, body: &Bytes, checks: u64, kind: Kind) -> impl Future<Output = Option<Answers>> + Send;
}

/// Makes one call after another until the load ends.
pub(crate) async fn call<C: Clock>(
    pacer: Pacer<C>,
    mut sender: impl CallSender,
    mut writer: RequestWriter,
    recorder: Arc<Recorder>,
) {
    let (checks, kind) = writer.call();
    while let Some(due) = pacer.next().await {
        let body = writer.body();
        loop {
            if !sender.is_ready().await {
                pacer.put_back();
                break;
            }
            let sent = pacer.now();
            if let Some(answers) = sender.send(&body, checks, kind).await {
                recorder.record([(Call { due, sent, ended: pacer.now() }, checks, answers)]);
                break;
            }
        }
    }
}

/// Calls over a shared connection.
pub(crate) struct ConnectionSender {
    pub connection: SharedConnection,
    pub head: Head,
    pub timeout: Timeout,
}

impl CallSender for ConnectionSender {
    async fn is_ready(&mut self) -> bool {
        self.connection.is_ready().await
    }

    async fn send(&mut self, body: &Bytes, checks: u64, kind: Kind) -> Option<Answers> {
        let (response, mut stream) = self.connection.start(self.head.request())?;
        // If this fails, the response has the reason.
        let _ = stream.send_data(body.clone(), true);
        let mut incoming = Incoming::Head(response);
        let answer = self.timeout.wait(Instant::now(), one_message(&mut incoming)).await;
        Some(match answer {
            Some(Ok(message)) => answers::read(kind, checks, &message),
            Some(Err(fault)) => Answers::failed(checks, fault),
            None => Answers::failed(checks, Fault::new(Code::DeadlineExceeded, "no answer in time")),
        })
    }
}

#[cfg(test)]
mod tests;
