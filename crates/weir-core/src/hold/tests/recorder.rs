//! A client's lease whose events are recorded as lines of a trace (`clients/traces/README.md`).

use std::fmt::Write as _;

use crate::{
    domain::Micros,
    hold::{Balance, CheckAction, ClientLease, LeaseAnswer, LeaseRequest, LeaseTerms, Offer, Spend},
};

pub(super) struct Recorder {
    pub(super) now: Micros,
    lease: ClientLease,
    balance: Balance,
    lines: String,
}

impl Recorder {
    pub(super) fn new(name: &str, now: Micros) -> Self {
        let lines = format!("{{\"trace\":\"{name}\"}}\n");
        Self { now, lease: ClientLease::default(), balance: Balance::default(), lines }
    }

    pub(super) fn end(mut self) -> String {
        self.close();
        self.lines
    }

    /// Handles a check. Returns whether it is an ordinary check, and the request to send.
    pub(super) fn check(&mut self, cost: i64) -> (bool, Option<LeaseRequest>) {
        let spent = self.balance.spend(cost, self.now);
        let (done, is_ordinary, send) = match spent {
            Spend::Spent => ("\"spend\"".to_owned(), false, None),
            Spend::Low => ("\"spend\"".to_owned(), false, self.lease.low(&self.balance, self.now)),
            Spend::Short => match self.lease.short(&self.balance, cost, self.now) {
                CheckAction::Refuse { retry_after } => {
                    (format!("\"refuse\",\"retry_after\":{retry_after}"), false, None)
                }
                CheckAction::Check => ("\"check\"".to_owned(), true, None),
                CheckAction::Request(request) => ("\"ask\"".to_owned(), false, Some(request)),
            },
        };
        self.write(&format!("\"check\":{cost},\"do\":{done}"), send);
        (is_ordinary, send)
    }

    pub(super) fn tick(&mut self) -> Option<LeaseRequest> {
        let send = self.lease.due(&self.balance, self.now);
        self.write("\"tick\":true", send);
        send
    }

    pub(super) fn close(&mut self) -> Option<LeaseRequest> {
        let send = self.lease.close(&self.balance, self.now);
        self.write("\"close\":true", send);
        send
    }

    pub(super) fn lost(&mut self, lease: u64, sequence: u64) {
        self.lease.lost(&self.balance, lease, sequence, self.now);
        self.write(&format!("\"lost\":{{\"lease\":{lease},\"sequence\":{sequence}}}"), None);
    }

    pub(super) fn checked(&mut self, cost: i64, is_refused: bool, sent: Micros) {
        self.lease.checked(cost, is_refused, sent, self.now);
        self.write(&format!("\"checked\":{{\"cost\":{cost},\"refused\":{is_refused},\"sent\":{sent}}}"), None);
    }

    pub(super) fn answer(&mut self, answer: &LeaseAnswer) -> Option<LeaseRequest> {
        let LeaseAnswer { lease, sequence, is_refused, grant, offer } = answer;
        let mut event = format!("\"answer\":{{\"lease\":{lease},\"sequence\":{sequence},\"refused\":{is_refused}");
        if let Some(grant) = grant {
            let _ = write!(
                event,
                ",\"grant\":{{\"units\":{},\"free\":{},\"is_kept\":{},\"is_recalled\":{},\"refused_for\":{}}}",
                grant.units, grant.free, grant.is_kept, grant.is_recalled, grant.refused_for
            );
        }
        if let Some(Offer { generation, terms: LeaseTerms { ttl, hold_off, scarce, .. } }) = offer {
            let _ = write!(
                event,
                ",\"terms\":{{\"generation\":{generation},\"ttl\":{ttl},\"hold_off\":{hold_off},\"scarce\":{scarce}}}"
            );
        }
        let send = self.lease.answered(&self.balance, answer, self.now);
        self.write(&format!("{event}}}"), send);
        send
    }

    fn write(&mut self, event: &str, send: Option<LeaseRequest>) {
        let _ = write!(self.lines, "{{\"at\":{},{event}", self.now);
        if let Some(LeaseRequest { lease, sequence, spent, kept, want, generation, cost }) = send {
            let _ = write!(
                self.lines,
                ",\"send\":{{\"lease\":{lease},\"sequence\":{sequence},\"spent\":{spent},\"kept\":{kept},\"want\":{want},\
                 \"generation\":{generation},\"cost\":{cost}}}"
            );
        }
        let _ = writeln!(self.lines, ",\"held\":{}}}", self.balance.units());
    }
}
