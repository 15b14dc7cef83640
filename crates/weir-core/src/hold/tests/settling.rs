//! Units that a holder owes the authority when demand ends are returned, and not left to burn.

use super::store::{Limits, Store};
use crate::{
    domain::{Micros, time::SECOND},
    hold::{Balance, Grant, HoldId, Holder, LeaseTerms, Ledgers as _, OnShortage, Renewal, Spend},
    testing::bucket,
};

const TTL: Micros = 250_000;
const TICK: Micros = 20_000;
const ID: HoldId = HoldId { owner: 1, number: 1 };

/// A holder of a bucket that hardly refills, and the authority.
struct Key {
    now: Micros,
    limits: Limits,
    store: Store,
    balance: Balance,
    holder: Holder,
}

impl Key {
    fn new() -> Self {
        let (params, _) = bucket(1, 100);
        let holder = Holder::new(ID, LeaseTerms::of([&params], TTL), 0);
        Self { now: 0, limits: Limits::new(&[params]), store: Store::new(false), balance: Balance::default(), holder }
    }

    /// Returns the renewal sent with a check that the balance cannot pay for.
    fn ask(&mut self, cost: i64) -> Renewal {
        let asked = self.holder.short(&self.balance, cost, self.now);
        let OnShortage::Store(Some(renewal)) = asked else { panic!("{asked:?}") };
        renewal
    }

    fn serve(&mut self, cost: i64, renewal: &Renewal) -> Grant {
        self.store.renew(&self.limits, self.now, cost, renewal).1
    }

    fn answer(&mut self, grant: &Grant) -> u64 {
        self.holder.answered(&self.balance, grant, false, self.now)
    }

    /// Holds as many units as a check of this cost makes it want.
    fn hold(&mut self, cost: i64) {
        let renewal = self.ask(cost);
        let grant = self.serve(cost, &renewal);
        self.answer(&grant);
        assert_eq!(self.balance.units(), cost.unsigned_abs());
    }

    /// Lets time pass without demand, and returns each renewal that is sent with its time. `answers`: whether they are
    /// answered, or lost on their way.
    fn idle(&mut self, time: Micros, answers: bool) -> Vec<(Micros, Renewal)> {
        let (end, mut sent) = (self.now + time, Vec::new());
        while self.now < end {
            self.now += TICK;
            let Some(renewal) = self.holder.due(&self.balance, self.now) else { continue };
            sent.push((self.now, renewal));
            if answers {
                let grant = self.serve(0, &renewal);
                self.answer(&grant);
            } else {
                self.holder.lost(&self.balance, renewal.sequence);
            }
        }
        sent
    }

    /// Returns the units that the authority will burn.
    fn outstanding(&mut self) -> u64 {
        let ledger = self.store.take_ledger(0);
        let units = ledger.outstanding().units;
        self.store.put_ledger(0, ledger);
        units
    }

    /// Asserts that one renewal returns the units before the authority's deadline, and that the holder can be
    /// forgotten then.
    fn assert_settles(&mut self, deadline: Micros) {
        assert!(self.outstanding() > 0);
        let sent = self.idle(SECOND, true);
        let [(at, Renewal { kept: 0, want: 0, .. })] = sent[..] else { panic!("{sent:?}") };
        assert!(at < deadline, "sent at {at}");
        assert_eq!(self.outstanding(), 0);
        assert!(self.holder.is_idle(&self.balance, self.now));
    }
}

#[test]
fn units_of_a_recalled_lease_are_returned() {
    let mut key = Key::new();
    key.hold(8);
    assert_eq!(key.balance.spend(2, 1), Spend::Spent);
    key.store.charge_granted(&key.limits, 200);
    let [(at, Renewal { kept: 6, .. })] = key.idle(7 * TICK, true)[..] else { panic!("not renewed") };
    assert_eq!((key.balance.units(), key.outstanding()), (0, 6));
    key.assert_settles(at + TTL);
}

#[test]
fn a_grant_whose_answer_was_lost_is_returned() {
    let mut key = Key::new();
    let renewal = key.ask(2);
    key.serve(2, &renewal);
    key.holder.lost(&key.balance, renewal.sequence);
    key.assert_settles(TTL);
}

#[test]
fn a_grant_that_was_not_answered_in_time_is_returned() {
    let mut key = Key::new();
    let renewal = key.ask(4);
    key.now = TTL - TICK;
    key.serve(4, &renewal);
    key.now = TTL;
    assert!(!key.holder.is_idle(&key.balance, key.now));
    key.assert_settles(2 * TTL - TICK);
}

#[test]
fn units_that_burnt_in_a_pause_are_counted() {
    let mut key = Key::new();
    key.hold(4);
    assert_eq!(key.balance.spend(1, 1), Spend::Spent);
    key.now = 3 * SECOND;
    let renewal = key.holder.due(&key.balance, key.now).expect("a renewal");
    let grant = key.serve(0, &renewal);
    assert_eq!(key.answer(&grant), 3);
    assert_eq!(key.idle(SECOND, true), []);
}

#[test]
fn the_renewals_of_a_key_without_demand_end() {
    let cases: [fn(&mut Key); 2] = [
        |key| {
            let renewal = key.ask(2);
            key.holder.lost(&key.balance, renewal.sequence);
        },
        |key| key.hold(4),
    ];
    for start in cases {
        let mut key = Key::new();
        start(&mut key);
        let sent = key.idle(2 * SECOND, false);
        assert!((2..=8).contains(&sent.len()), "{sent:?}");
        assert!(key.holder.is_idle(&key.balance, key.now));
    }
}
