//! One stream: reports in, assignments out, never more at a time than what is read.

use std::{net::SocketAddr, sync::Arc, task::Waker};

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use tonic::Status;
use weir_core::domain::{Micros, time::SECOND};
use weir_store::Store;

use super::{
    quotas::{FAREWELL_SECONDS, Quotas},
    wire::{self, Report, Reports},
};

/// Most buckets that one message answers, so that other streams have their turn.
const MAX_ANSWERED_TOGETHER: usize = 256;

/// A stream of reports.
pub struct Session<S: Store> {
    quotas: Arc<Quotas<S>>,
    number: u64,
    waker: Arc<AtomicWaker>,
    domain: Option<usize>,
    /// Those that are not answered yet.
    reports: Option<Reports>,
    is_ending: bool,
}

impl<S: Store> Session<S> {
    /// A stream that has begun, of an Envoy at this address.
    pub fn new(quotas: Arc<Quotas<S>>, peer: Option<SocketAddr>) -> Self {
        let waker = Arc::<AtomicWaker>::default();
        let number = quotas.book().open(Arc::clone(&waker), peer);
        Self { quotas, number, waker, domain: None, reports: None, is_ending: false }
    }

    /// Wakes this when there is something to tell.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// A message has come, once what came before is answered.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an invalid report or one of another domain, NOT_FOUND for a domain that is not divided.
    pub fn receive(&mut self, message: Bytes) -> Result<(), Status> {
        let Some((domain, reports)) = wire::read(message) else {
            self.quotas.unreadable();
            return Err(Status::invalid_argument("the message cannot be read"));
        };
        let named = match &*domain {
            "" => None,
            name => Some(
                self.quotas
                    .domain(name)
                    .ok_or_else(|| Status::not_found("the domain is not in the setting rlqs.domains"))?,
            ),
        };
        match (self.domain, named) {
            (None, None) => return Err(Status::invalid_argument("domain: the first report names it")),
            (Some(known), Some(other)) if known != other => {
                return Err(Status::invalid_argument("domain: a stream has one"));
            }
            (known, named) => self.domain = known.or(named),
        }
        self.reports = Some(reports);
        Ok(())
    }

    /// Whether everything that came is answered.
    pub fn is_answered(&self) -> bool {
        self.reports.is_none()
    }

    /// The next message, if there is something to tell.
    pub fn answer(&mut self) -> Result<Option<BytesMut>, Status> {
        let mut out = BytesMut::new();
        for _ in 0..MAX_ANSWERED_TOGETHER {
            let (Some(reports), Some(domain)) = (&mut self.reports, self.domain) else { break };
            let Some(report) = reports.next() else {
                self.reports = None;
                break;
            };
            let Some(report) = Report::read(&report) else {
                self.quotas.unreadable();
                return Err(Status::invalid_argument("bucket_quota_usages: one cannot be read"));
            };
            self.quotas.report(self.number, domain, &report, &mut out);
        }
        self.pushed(self.quotas.ttl_seconds(), &mut out);
        Ok((!out.is_empty()).then_some(out))
    }

    /// The stream is about to end, and its Envoy to go to another replica: what it has lasts until then.
    pub fn farewell(&mut self) -> Option<BytesMut> {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.quotas.book().tell_all(self.number);
        }
        let mut out = BytesMut::new();
        self.pushed(FAREWELL_SECONDS, &mut out);
        (!out.is_empty()).then_some(out)
    }

    fn pushed(&self, ttl_seconds: u64, out: &mut BytesMut) {
        let now = self.quotas.now();
        let mut book = self.quotas.book();
        for _ in 0..MAX_ANSWERED_TOGETHER {
            let Some((id, action)) = book.next_pending(self.number, now) else { break };
            wire::put_action(id, action, ttl_seconds, out);
        }
    }
}

impl<S: Store> Drop for Session<S> {
    fn drop(&mut self) {
        let at_most = if self.is_ending { FAREWELL_SECONDS as Micros * SECOND } else { Micros::MAX };
        self.quotas.book().close(self.number, at_most, self.quotas.now());
    }
}
