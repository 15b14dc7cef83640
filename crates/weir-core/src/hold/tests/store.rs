//! A store of one key: the states and ledgers of the authority.

use smallvec::SmallVec;

use crate::{
    algorithm::{Params, Spent, State},
    domain::{Charge, Decision, Key, Micros},
    hold::{Grant, Ledger, Ledgers, Outstanding, Record, Renewal, Reservations, expire, renew},
    plan::{Decisions, Level, Limit, Origin, Plan, States, decide},
};

/// The limits on one key, root first.
pub(super) struct Limits {
    key: Key,
    limits: Vec<Limit>,
}

impl Limits {
    pub(super) fn new(params: &[Params]) -> Self {
        let segments: Vec<_> = (0..params.len().max(1)).map(|depth| format!("s{depth}")).collect();
        let key = Key::new("", &segments).unwrap();
        let limit = |params: &Params| Limit::new(Origin::Policy, None, "p", 0, false, params.clone());
        Self { key, limits: params.iter().map(limit).collect() }
    }

    pub(super) fn plan(&self, cost: i64) -> Plan<'_> {
        let levels: SmallVec<_> = self
            .limits
            .iter()
            .enumerate()
            .map(|(depth, limit)| Level::new(&self.key, depth as u8 + 1, 2, limit, cost))
            .collect();
        Plan::new(levels, Charge::AllOrNothing, None)
    }
}

/// The states of that key.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    states: [Option<(State, Micros)>; 2],
    pub(super) ledgers: [Ledger; 2],
    records: Vec<(Vec<u8>, Record)>,
    now: Micros,
    /// A mutation of the protocol: held units drain like spent ones.
    drains_outstanding: bool,
}

impl Store {
    pub(super) fn new(drains_outstanding: bool) -> Self {
        Self { drains_outstanding, ..Self::default() }
    }

    pub(super) fn at(&mut self, now: Micros) {
        self.now = now;
    }

    /// Decides, and serves the renewal sent with the request.
    pub(super) fn serve(
        &mut self,
        limits: &Limits,
        now: Micros,
        cost: i64,
        renewal: Option<&Renewal>,
    ) -> (bool, Option<Grant>) {
        let (decisions, grant) = match renewal {
            Some(renewal) => {
                let (decisions, grant) = self.renew(limits, now, cost, renewal);
                (decisions, Some(grant))
            }
            None => {
                self.now = now;
                let plan = limits.plan(cost);
                expire(&plan, self, now);
                (decide(&plan, self, now), None)
            }
        };
        (decisions.iter().all(|decision: &Decision| decision.allowed), grant)
    }

    pub(super) fn renew(&mut self, limits: &Limits, now: Micros, cost: i64, renewal: &Renewal) -> (Decisions, Grant) {
        self.now = now;
        let plan = limits.plan(cost);
        assert!(plan.is_holdable());
        renew(&plan, self, now, renewal)
    }

    /// Charges granted units as if they were spent.
    pub(super) fn charge_granted(&mut self, limits: &Limits, units: u64) {
        for (index, level) in limits.plan(0).levels().iter().enumerate() {
            if let Some(state) = level.params().charge(self.get(index), Spent::held(units), self.now, 0) {
                self.put(index, state, 1 << 40);
            }
        }
    }

    /// Forgets the states, but not the holds that have not expired.
    pub(super) fn reset(&mut self, now: Micros) {
        self.states = Default::default();
        for ledger in &mut self.ledgers {
            ledger.forget_expired(now);
        }
    }
}

impl States for Store {
    fn get(&self, index: usize) -> Option<&State> {
        self.states[index].as_ref().filter(|(_, expires)| *expires > self.now).map(|(state, _)| state)
    }

    fn outstanding(&self, index: usize) -> Outstanding {
        if self.drains_outstanding { Outstanding::default() } else { self.ledgers[index].outstanding() }
    }

    fn has_entry(&self, index: usize) -> bool {
        self.states[index].is_some()
    }

    fn reserve(&mut self, _: usize) -> bool {
        true
    }

    fn put(&mut self, index: usize, state: State, reset_after: Micros) {
        self.states[index] = Some((state, self.now + reset_after));
    }
}

impl Ledgers for Store {
    fn take_ledger(&mut self, index: usize) -> Ledger {
        std::mem::take(&mut self.ledgers[index])
    }

    fn put_ledger(&mut self, index: usize, ledger: Ledger) {
        self.ledgers[index] = ledger;
    }
}

impl Reservations for Store {
    fn record(&self, name: &[u8]) -> Option<Record> {
        self.records.iter().find(|(own, _)| own == name).map(|(_, record)| record.clone())
    }

    fn reserve_record(&mut self, _: Option<&[usize]>) -> bool {
        true
    }

    fn put_record(&mut self, name: &[u8], record: Record) {
        self.records.retain(|(own, _)| own != name);
        self.records.push((name.to_vec(), record));
    }
}
