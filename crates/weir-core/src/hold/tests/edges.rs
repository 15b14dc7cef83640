//! Traces at the edges of each rule: one microsecond or unit on either side of where a client changes its behavior.

use super::recorder::Recorder;
use crate::{
    domain::{Micros, request::MAX_COST},
    hold::{Grant, LeaseAnswer, LeaseRequest, Offer, RenewalTotals},
};

/// Start of a counting interval.
const START: Micros = 1_000_000;
const TTL: Micros = 250_002;
const HOLD_OFF: Micros = 4_000;
/// The usable time of a lease under these terms, by a client's clock. It and its half are both rounded.
const USABLE: Micros = 247_501;
const SCARCE: u64 = 5;
const ENOUGH: Grant = Grant {
    sequence: 0,
    units: 0,
    free: 1_000,
    is_kept: true,
    is_recalled: false,
    refused_for: 0,
    settled: RenewalTotals { granted: 0, spent: 0, returned: 0, burnt: 0 },
};
const REFUSED: Grant = Grant { free: 0, ..ENOUGH };

/// Terms whose horizon and usable time are fractions before rounding.
fn offer(generation: u64) -> Offer {
    Offer::new(generation, TTL, HOLD_OFF, SCARCE)
}

/// A client, with times relative to the start.
struct Edge {
    client: Recorder,
    /// The last request.
    sent: LeaseRequest,
}

impl Edge {
    /// Creates a client of a key without terms.
    fn cold(name: &str) -> Self {
        let client = Recorder::new(name, START);
        let sent = LeaseRequest { lease: 0, sequence: 0, spent: 0, kept: 0, want: 0, generation: 0, cost: 0 };
        Self { client, sent }
    }

    /// Creates a client of a key under these terms, without a request so far.
    fn under(name: &str, offer: Offer) -> Self {
        let mut edge = Self::cold(name);
        edge.checks(0, &[1, 1, 1]);
        edge.answer(0, false, None, Some(offer));
        edge
    }

    fn leased(name: &str) -> Self {
        Self::under(name, offer(7))
    }

    /// Creates a client that was granted this many of the ten units that a check costs.
    fn granted(name: &str, units: u64) -> Self {
        let mut edge = Self::leased(name);
        edge.checks(0, &[10]);
        edge.grant(0, Grant { units, ..ENOUGH });
        edge
    }

    fn sent(&mut self, send: Option<LeaseRequest>) {
        self.sent = send.unwrap_or(self.sent);
    }

    fn checks(&mut self, at: Micros, costs: &[i64]) {
        self.client.now = START + at;
        for cost in costs {
            let (_, send) = self.client.check(*cost);
            self.sent(send);
        }
    }

    fn ticks(&mut self, times: &[Micros]) {
        for at in times {
            self.client.now = START + at;
            let send = self.client.tick();
            self.sent(send);
        }
    }

    fn close(&mut self, at: Micros) {
        self.client.now = START + at;
        let send = self.client.close();
        self.sent(send);
    }

    /// Answers the last request.
    fn answer(&mut self, at: Micros, is_refused: bool, grant: Option<Grant>, offer: Option<Offer>) {
        self.client.now = START + at;
        let LeaseRequest { lease, sequence, .. } = self.sent;
        let grant = grant.map(|grant| Grant { sequence, ..grant });
        let send = self.client.answer(&LeaseAnswer { lease, sequence, is_refused, grant, offer });
        self.sent(send);
    }

    fn grant(&mut self, at: Micros, grant: Grant) {
        self.answer(at, false, Some(grant), Some(offer(7)));
    }

    fn refuse(&mut self, at: Micros, refused_for: Micros) {
        self.answer(at, true, Some(Grant { refused_for, ..REFUSED }), Some(offer(7)));
    }

    /// Answers an ordinary check with a refusal.
    fn refused(&mut self, at: Micros, cost: i64, sent: Micros) {
        self.client.now = START + at;
        self.client.checked(cost, true, START + sent);
    }

    /// Loses the last request.
    fn lose(&mut self, at: Micros) {
        let LeaseRequest { lease, sequence, .. } = self.sent;
        self.lost(at, lease, sequence);
    }

    fn lost(&mut self, at: Micros, lease: u64, sequence: u64) {
        self.client.now = START + at;
        self.client.lost(lease, sequence);
    }
}

pub(super) fn traces() -> impl Iterator<Item = String> {
    cold().into_iter().chain(held()).chain(refused()).chain(answered()).chain(unsettled()).map(|edge| edge.client.end())
}

/// Traces of when terms are requested.
fn cold() -> Vec<Edge> {
    let mut hot = Edge::cold("three checks within a slot");
    hot.checks(0, &[1]);
    hot.checks(99_999, &[1, 1]);
    hot.lost(100_000, 9, 1);
    hot.checks(100_000, &[1]);
    hot.lost(100_000, 1, 1);
    hot.checks(109_999, &[1, 1, 1]);
    hot.checks(110_000, &[1]);
    let mut slots = Edge::cold("three checks in two slots");
    slots.checks(0, &[1, 1]);
    slots.checks(100_000, &[1]);
    slots.checks(199_999, &[1, 1]);
    let mut again = Edge::cold("terms are asked for again");
    again.checks(150_000, &[1, 1, 1]);
    let late = again.sent;
    again.checks(1_149_999, &[1]);
    again.checks(1_150_000, &[1, 1, 1]);
    let newest = std::mem::replace(&mut again.sent, late);
    again.answer(1_150_000, false, None, Some(offer(7)));
    again.sent = newest;
    again.checks(1_150_000, &[1]);
    again.answer(1_150_000, false, None, None);
    again.checks(2_149_999, &[1, 1, 1]);
    again.checks(2_150_000, &[1]);
    again.close(2_150_000);
    again.checks(2_150_000, &[1, 1, 1]);
    vec![hot, slots, again]
}

/// Traces of units kept, wanted and returned.
fn held() -> Vec<Edge> {
    let mut all = Vec::new();
    let mut two = Edge::leased("two units are worth a hold");
    two.checks(0, &[1, 1, 1]);
    two.lost(100, two.sent.lease, 9);
    two.lost(100, 9, two.sent.sequence);
    two.grant(500, Grant { units: 2, ..ENOUGH });
    two.grant(500, Grant { units: 50, ..ENOUGH });
    two.checks(600, &[1, 1]);
    all.push(two);
    let mut rounded = Edge::under("a horizon in whole numbers", Offer::new(7, 14, HOLD_OFF, SCARCE));
    rounded.checks(0, &[200_000]);
    all.push(rounded);
    let long = Offer::new(7, 60_000_000, HOLD_OFF, SCARCE);
    let mut largest = Edge::under("no more than the largest cost is wanted", long);
    largest.checks(0, &[MAX_COST]);
    largest.answer(500, false, Some(Grant { units: MAX_COST.unsigned_abs(), ..ENOUGH }), Some(long));
    largest.checks(600, &[1, MAX_COST - 2]);
    all.push(largest);
    for units in [3, 8, 9] {
        let mut edge = Edge::granted("four are needed", units);
        edge.ticks(&[USABLE / 2 - 1, USABLE / 2]);
        all.push(edge);
    }
    for at in [150_000, 150_001] {
        let mut edge = Edge::leased("few are needed");
        edge.checks(0, &[5]);
        edge.grant(0, Grant { units: 5, ..ENOUGH });
        edge.ticks(&[at]);
        all.push(edge);
    }
    for at in [USABLE - 1, USABLE] {
        let mut edge = Edge::granted("a deadline, and a tick", 10);
        edge.ticks(&[at]);
        all.push(edge);
        let mut edge = Edge::granted("a deadline, and a check", 10);
        edge.checks(at, &[1]);
        all.push(edge);
    }
    let mut renewed = Edge::granted("a check when a renewal is due", 10);
    renewed.checks(USABLE / 2 - 1, &[1]);
    renewed.checks(USABLE / 2, &[1]);
    all.push(renewed);
    let mut short = Edge::granted("too little is held", 10);
    short.checks(100, &[1, 20]);
    short.grant(200, Grant { units: 12, ..ENOUGH });
    short.checks(1_000_000, &[1]);
    all.push(short);
    let mut nothing = Edge::leased("nothing is needed");
    nothing.checks(0, &[2]);
    nothing.lose(0);
    nothing.ticks(&[200_000, 300_000]);
    nothing.checks(400_000, &[5]);
    all.push(nothing);
    all
}

/// Traces of how long the client refuses on its own.
fn refused() -> Vec<Edge> {
    let mut all = Vec::new();
    for (answered, ends) in [(1_000, 1_000 + HOLD_OFF), (15_000, 4 * HOLD_OFF)] {
        let mut edge = Edge::cold("refused with the terms");
        edge.checks(0, &[1, 1, 2]);
        edge.answer(answered, true, None, Some(offer(7)));
        edge.checks(answered, &[2, 1]);
        edge.checks(ends - 1, &[2]);
        edge.checks(ends, &[2]);
        all.push(edge);
    }
    let mut request = Edge::leased("a refused request");
    request.checks(0, &[10]);
    request.refuse(1_000, 50_000);
    request.checks(1_000, &[10, 9]);
    request.refuse(20_000, 0);
    request.checks(20_000, &[10]);
    request.refuse(20_500, 100);
    request.checks(24_499, &[10]);
    request.checks(24_500, &[10, 10]);
    request.checks(24_500 + HOLD_OFF - 1, &[10]);
    request.checks(24_500 + HOLD_OFF, &[10]);
    all.push(request);
    let mut ordinary = Edge::leased("refused ordinary checks");
    ordinary.checks(0, &[1]);
    ordinary.refused(100, 3, 0);
    ordinary.refused(100, 1, 0);
    ordinary.checks(100, &[1]);
    ordinary.refused(101, 1, 0);
    ordinary.refused(101, 3, 0);
    ordinary.checks(101, &[1]);
    ordinary.refused(90_000, 1, 0);
    ordinary.checks(90_000, &[1]);
    all.push(ordinary);
    for (units, free, checks) in [(3, 2, 4), (3, 3, 3), (9, 0, 6), (10, 0, 6)] {
        let mut edge = Edge::leased("less than was wanted");
        edge.checks(0, &[10]);
        edge.grant(1_000, Grant { units, free, ..ENOUGH });
        edge.checks(1_000, &[1, 1, 1, 1, 1, 1][..checks]);
        edge.ticks(&[USABLE / 2]);
        all.push(edge);
    }
    all
}

/// Traces of the effects of an answer, or of its loss.
fn answered() -> Vec<Edge> {
    let mut never = Edge::leased("a request that is not answered");
    never.checks(0, &[10]);
    never.checks(250_001, &[7]);
    never.checks(250_002, &[7]);
    let mut unseen = Edge::leased("a request that is not answered, and a refusal");
    unseen.checks(0, &[10]);
    unseen.refused(250_000, 1, 250_000);
    unseen.checks(250_002, &[1]);
    unseen.ticks(&[250_003]);
    let mut burnt = Edge::granted("what was kept is burnt", 10);
    burnt.checks(1_000, &[6, 3]);
    burnt.checks(2_000, &[5]);
    burnt.grant(3_000, Grant { units: 8, is_kept: false, ..ENOUGH });
    burnt.checks(3_000, &[2, 3]);
    let mut recalled = Edge::granted("what was kept is recalled", 10);
    recalled.checks(1_000, &[6]);
    recalled.grant(3_000, Grant { units: 2, is_recalled: true, ..ENOUGH });
    recalled.checks(3_000, &[2]);
    let mut lost = Edge::leased("lost requests");
    lost.checks(0, &[10]);
    lost.lose(500);
    lost.ticks(&[HOLD_OFF - 1, HOLD_OFF]);
    lost.answer(5_000, false, None, Some(offer(7)));
    lost.ticks(&[2 * HOLD_OFF - 1, 2 * HOLD_OFF]);
    lost.lost(9_000, lost.sent.lease, 9);
    lost.ticks(&[3 * HOLD_OFF]);
    lost.grant(12_000, Grant { units: 4, ..ENOUGH });
    lost.checks(12_000, &[3]);
    lost.lose(12_000);
    lost.checks(12_000, &[1, 1]);
    let mut others = Edge::granted("other terms", 10);
    others.checks(1_000, &[6]);
    others.answer(3_000, true, None, Some(offer(8)));
    others.checks(3_000, &[1, 4]);
    others.answer(3_000, false, Some(ENOUGH), Some(offer(9)));
    others.sent = LeaseRequest { lease: 4, ..others.sent };
    others.answer(3_000, false, None, Some(offer(10)));
    others.checks(3_000, &[3]);
    let mut none = Edge::granted("no terms", 10);
    none.checks(1_000, &[6]);
    none.answer(3_000, false, None, None);
    none.checks(3_000, &[1, 1, 1]);
    none.checks(1_002_999, &[1, 1, 1]);
    none.checks(1_003_000, &[1]);
    let mut closed = Edge::leased("it is closed");
    closed.close(0);
    closed.checks(0, &[1, 1, 1]);
    closed.answer(0, false, None, Some(offer(7)));
    closed.checks(0, &[10]);
    closed.close(0);
    closed.checks(0, &[1, 1, 1]);
    let mut full = Edge::leased("nothing is granted although units are free");
    full.checks(0, &[10]);
    full.grant(1_000, Grant { free: 5, ..ENOUGH });
    full.checks(1_000, &[10]);
    full.ticks(&[USABLE / 2]);
    full.checks(1_000 + TTL - 1, &[10]);
    full.checks(1_000 + TTL, &[10]);
    full.grant(1_000 + TTL, Grant { units: 8, ..ENOUGH });
    full.checks(1_000 + TTL, &[9]);
    let mut unsettled = Edge::leased("it is closed after a lost request");
    unsettled.checks(0, &[10]);
    unsettled.lose(500);
    unsettled.close(600);
    let mut settled = Edge::leased("it is closed after a lost request and one that was answered");
    settled.checks(0, &[10]);
    settled.lose(500);
    settled.ticks(&[HOLD_OFF]);
    settled.grant(5_000, ENOUGH);
    settled.close(5_000);
    vec![never, unseen, burnt, recalled, lost, others, none, closed, full, unsettled, settled]
}

/// Traces of what is returned although nothing is held or needed.
fn unsettled() -> Vec<Edge> {
    let mut all = Vec::new();
    for last in [2 * TTL - 1, 2 * TTL] {
        let mut granted = Edge::leased("what a lost request may have been granted is returned");
        granted.checks(0, &[2]);
        granted.lose(0);
        granted.ticks(&[HOLD_OFF]);
        granted.lose(HOLD_OFF);
        granted.ticks(&[HOLD_OFF + TTL / 4 - 1, HOLD_OFF + TTL / 4]);
        granted.lose(100_000);
        granted.ticks(&[last]);
        all.push(granted);
        let mut closed = Edge::leased("it is closed long after a lost request");
        closed.checks(0, &[2]);
        closed.lose(0);
        closed.close(last);
        all.push(closed);
    }
    let returned = 150_001;
    for last in [returned + TTL - 1, returned + TTL] {
        let mut edge = Edge::leased("a request that returns units is lost");
        edge.checks(0, &[5]);
        edge.grant(0, Grant { units: 5, ..ENOUGH });
        edge.ticks(&[returned]);
        edge.lose(returned);
        edge.ticks(&[last]);
        all.push(edge);
    }
    let mut unanswered = Edge::leased("a request that is not answered, and no need");
    unanswered.checks(0, &[2]);
    unanswered.checks(TTL, &[1]);
    unanswered.ticks(&[TTL + 1]);
    all.push(unanswered);
    for closes in [true, false] {
        let mut recalled = Edge::leased("what was recalled is returned");
        recalled.checks(0, &[8]);
        recalled.grant(0, Grant { units: 8, ..ENOUGH });
        recalled.checks(0, &[2]);
        recalled.ticks(&[USABLE / 2]);
        recalled.grant(USABLE / 2, Grant { is_recalled: true, ..REFUSED });
        if closes {
            recalled.close(USABLE / 2);
        }
        recalled.ticks(&[2 * (USABLE / 2)]);
        recalled.grant(2 * (USABLE / 2), ENOUGH);
        recalled.ticks(&[3 * (USABLE / 2)]);
        all.push(recalled);
    }
    all
}
