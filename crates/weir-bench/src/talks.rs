//! Streams: many checks are under way on each, and answers come in their order.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use h2::SendStream;
use tokio::time::Instant;
use tonic::Code;

use super::{
    checks::Asker,
    tally::{Call, Meter},
    turns::{Nanos, Turns, Watch},
    wire::{
        answers::{self, Answers, Fault, Kind},
        dial::Head,
        exchange::{Incoming, Messages},
        line::Line,
        patience::Patience,
    },
};

/// A caller with a stream, opened anew when it ends.
pub struct Talker<W> {
    pub turns: Turns<W>,
    pub line: Line,
    pub head: Head,
    pub asker: Asker,
    pub meter: Arc<Meter>,
    pub patience: Patience,
    /// Most checks under way at once, at least 1.
    pub window: usize,
}

/// An open stream.
struct Talk {
    /// `None`: nothing more will be sent.
    out: Option<SendStream<Bytes>>,
    incoming: Incoming,
    messages: Messages,
    /// When each check without an answer was meant to begin, and when it was sent.
    under_way: VecDeque<(Nanos, Nanos)>,
    /// When something was last heard, or else the first of those under way was sent.
    heard: Instant,
}

impl<W: Watch> Talker<W> {
    /// Asks as long as there are turns.
    pub async fn talk(mut self) {
        while let Some(due) = self.turns.next().await {
            let Some(mut talk) = self.open().await else {
                self.turns.give_back();
                return;
            };
            self.ask(&mut talk, due);
            if let Err(fault) = self.go_on(&mut talk).await {
                let ended = self.turns.now();
                let lost = talk.under_way.drain(..);
                self.meter
                    .ended(lost.map(|(due, sent)| (Call { due, sent, ended }, 1, Answers::failed(1, fault.clone()))));
            }
        }
    }

    async fn open(&mut self) -> Option<Talk> {
        while self.line.is_ready().await {
            if let Some((response, out)) = self.line.begin(self.head.request()) {
                return Some(Talk {
                    out: Some(out),
                    incoming: Incoming::Head(response),
                    messages: Messages::default(),
                    under_way: VecDeque::with_capacity(self.window),
                    heard: Instant::now(),
                });
            }
        }
        None
    }

    /// Asks for the check that was due then, and for others whose turn it is.
    fn ask(&mut self, talk: &mut Talk, first: Nanos) {
        let Some(out) = &mut talk.out else { return };
        if talk.under_way.is_empty() {
            talk.heard = Instant::now();
        }
        let (sent, before) = (self.turns.now(), talk.under_way.len());
        let mut due = Some(first);
        while let Some(moment) = due {
            talk.under_way.push_back((moment, sent.max(moment)));
            due = if talk.under_way.len() < self.window { self.turns.next_now() } else { None };
        }
        // Where that fails what comes in says why.
        let _ = out.send_data(self.asker.messages(talk.under_way.len() - before), false);
    }

    /// Asks and counts answers, until there are no more turns and everything is answered.
    async fn go_on(&mut self, talk: &mut Talk) -> Result<(), Fault> {
        while talk.out.is_some() || !talk.under_way.is_empty() {
            let has_room = talk.out.is_some() && talk.under_way.len() < self.window;
            let (incoming, heard, waits) = (&mut talk.incoming, talk.heard, !talk.under_way.is_empty());
            let patience = &mut self.patience;
            let next =
                async { if waits { patience.wait(heard, incoming.next()).await } else { Some(incoming.next().await) } };
            tokio::select! {
                biased;
                answers = next => match answers {
                    Some(Ok(Some(bytes))) => self.count(talk, &bytes)?,
                    Some(Ok(None)) => return end_of(talk),
                    Some(Err(fault)) => return Err(fault),
                    None => return Err(Fault::new(Code::DeadlineExceeded, "no answer in time")),
                },
                due = self.turns.next(), if has_room => match due {
                    Some(due) => self.ask(talk, due),
                    None => close(talk),
                },
            }
        }
        Ok(())
    }

    /// Counts the answers that have come, and asks again in their place.
    fn count(&mut self, talk: &mut Talk, bytes: &Bytes) -> Result<(), Fault> {
        talk.incoming.has_read(bytes.len());
        talk.heard = Instant::now();
        let ended = self.turns.now();
        let (under_way, mut calls, mut unasked) = (&mut talk.under_way, Vec::new(), false);
        let cut = talk.messages.cut(bytes, |message| match under_way.pop_front() {
            Some((due, sent)) => calls.push((Call { due, sent, ended }, 1, answers::read(Kind::Check, 1, message))),
            None => unasked = true,
        });
        self.meter.ended(calls);
        cut?;
        if unasked {
            return Err(Fault::new(Code::Internal, "an answer that nobody asked for"));
        }
        if talk.out.is_some()
            && talk.under_way.len() < self.window
            && let Some(due) = self.turns.next_now()
        {
            self.ask(talk, due);
        }
        Ok(())
    }
}

/// Says that nothing more will be asked.
fn close(talk: &mut Talk) {
    if let Some(mut out) = talk.out.take() {
        let _ = out.send_data(Bytes::new(), true);
    }
}

/// The service has ended the stream, and says that all went well.
fn end_of(talk: &Talk) -> Result<(), Fault> {
    if talk.under_way.is_empty() { Ok(()) } else { Err(Fault::unavailable("the stream ended before its answers")) }
}
