//! One stream, with backpressure: reports in, assignments out, no more at a time than the client reads.

use std::{net::SocketAddr, sync::Arc, task::Waker};

use bytes::{Bytes, BytesMut};
use futures_util::task::AtomicWaker;
use prost::Message;
use tonic::Status;
use tracing::warn;
use weir_core::domain::{Micros, time::SECOND};
use weir_store::Store;

use super::{
    quotas::{FINAL_TTL_SECONDS, Quotas},
    wire::{self, Report, Reports},
};

/// Maximum number of buckets in one answer, so that other streams are not delayed.
const MAX_ANSWERED_TOGETHER: usize = 256;
const MALFORMED: &str = "the message is malformed";
const MALFORMED_USAGE: &str = "bucket_quota_usages: one cannot be read";
/// Maximum number of characters of a client's domain in the log.
const MAX_LOGGED_CHARS: usize = 64;

/// A stream of reports.
pub struct Session<S: Store> {
    quotas: Arc<Quotas<S>>,
    number: u64,
    waker: Arc<AtomicWaker>,
    peer: Option<SocketAddr>,
    domain: Option<usize>,
    /// Reports that are not answered yet.
    reports: Option<Reports>,
    is_ending: bool,
}

impl<S: Store> Session<S> {
    /// Opens a stream of an Envoy at this address.
    pub fn new(quotas: Arc<Quotas<S>>, peer: Option<SocketAddr>) -> Self {
        let waker = Arc::<AtomicWaker>::default();
        let number = quotas.lock().open(Arc::clone(&waker), peer);
        Self { quotas, number, waker, peer, domain: None, reports: None, is_ending: false }
    }

    /// Registers the waker for new assignments.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Accepts a message, after the reports of the previous one were answered.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an invalid report or one of another domain, NOT_FOUND for a domain that is not divided.
    pub fn receive(&mut self, message: Bytes) -> Result<(), Status> {
        let Some((domain, reports)) = wire::read(message) else {
            self.quotas.unreadable(MALFORMED);
            return Err(Status::invalid_argument(MALFORMED));
        };
        let named = match &*domain {
            "" => None,
            name => Some(self.quotas.domain(name).ok_or_else(|| self.unknown(name))?),
        };
        match (self.domain, named) {
            (None, None) => return Err(Status::invalid_argument("domain: required in the first report")),
            (Some(known), Some(other)) if known != other => {
                return Err(Status::invalid_argument("domain: cannot change within a stream"));
            }
            (known, named) => self.domain = known.or(named),
        }
        self.reports = Some(reports);
        Ok(())
    }

    /// Counts a stream of a domain whose limits are not divided, and returns the error.
    fn unknown(&self, domain: &str) -> Status {
        if self.quotas.rejections().domain.count() {
            let domain: String = domain.chars().take(MAX_LOGGED_CHARS).collect();
            warn!(
                domain = %domain.escape_debug(),
                peer = self.peer.map(display),
                "an Envoy gets no quotas: its domain is not in rlqs.domains"
            );
        }
        Status::not_found("the domain is not in the setting rlqs.domains")
    }

    /// Whether all reports were answered.
    pub fn is_answered(&self) -> bool {
        self.reports.is_none()
    }

    /// Returns the next answer, if there is one.
    pub fn answer(&mut self) -> Result<Option<BytesMut>, Status> {
        let mut out = BytesMut::new();
        for _ in 0..MAX_ANSWERED_TOGETHER {
            let (Some(reports), Some(domain)) = (&mut self.reports, self.domain) else { break };
            let Some(report) = reports.next() else {
                self.reports = None;
                break;
            };
            let Ok(report) = Report::decode(report) else {
                self.quotas.unreadable(MALFORMED_USAGE);
                return Err(Status::invalid_argument(MALFORMED_USAGE));
            };
            self.quotas.report(self.number, domain, &report, &mut out);
        }
        self.pushed(self.quotas.ttl_seconds(), &mut out);
        Ok((!out.is_empty()).then_some(out))
    }

    /// Returns an answer of a stream that is about to end: assignments that last until its Envoy reports to another
    /// replica.
    pub fn final_assignments(&mut self) -> Option<BytesMut> {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.quotas.lock().mark_all_pending(self.number, self.quotas.now());
        }
        let mut out = BytesMut::new();
        self.pushed(FINAL_TTL_SECONDS, &mut out);
        (!out.is_empty()).then_some(out)
    }

    fn pushed(&self, ttl_seconds: u64, out: &mut BytesMut) {
        let now = self.quotas.now();
        let mut state = self.quotas.lock();
        for _ in 0..MAX_ANSWERED_TOGETHER {
            let Some((id, action)) = state.next_pending(self.number, now) else { break };
            wire::put_action(id, action, ttl_seconds, out);
        }
    }
}

impl<S: Store> Drop for Session<S> {
    fn drop(&mut self) {
        let at_most = if self.is_ending { FINAL_TTL_SECONDS as Micros * SECOND } else { Micros::MAX };
        self.quotas.lock().close(self.number, at_most, self.quotas.now());
    }
}
