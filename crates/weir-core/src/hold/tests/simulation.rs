//! Holders with one authority in virtual time: delays, losses, duplicates, crashes, pauses, and clock skew.

use std::collections::BTreeMap;

use super::{
    event::{Event, Message},
    mutations::Mutation,
    store::{Limits, Store},
};
use crate::{
    algorithm::Params,
    domain::{Micros, StepInput},
    hold::{Balance, HoldId, Holder, LeaseTerms, OnShortage, Renewal, Spend},
    testing::Random,
};

/// Start of a simulation, from which virtual time counts.
pub(super) const START: Micros = 1_790_000_000_000_000;

/// Faults of holders and messages, each once in this many times or microseconds; 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) lose: u32,
    pub(super) duplicate: u32,
    pub(super) delay: u32,
    pub(super) crash_every: Micros,
    pub(super) pause_every: Micros,
    pub(super) reset_every: Micros,
    /// Interval at which a holder is cut off from the authority.
    pub(super) partition_every: Micros,
    pub(super) drift: bool,
}

/// Units a second requested from a holder.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// By the time since the start.
    Planned(fn(holder: usize, at: Micros) -> u64),
    /// A random rate, changed from time to time.
    Wild,
}

pub(super) struct Case {
    pub(super) params: Vec<Params>,
    pub(super) holders: usize,
    pub(super) load: Load,
    pub(super) length: Micros,
    pub(super) faults: Faults,
    pub(super) mutation: Option<Mutation>,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// The times of the admitted units, by the authority's clock; `resets` has the times of the resets.
    pub(super) admitted: Vec<Micros>,
    pub(super) resets: Vec<Micros>,
    pub(super) checks: u64,
    pub(super) calls: u64,
    /// Number of the same checks that one exact limiter would have admitted.
    pub(super) exact: u64,
}

pub(super) struct Replica {
    pub(super) balance: Balance,
    holder: Holder,
    life: u64,
    /// The offset of its clock, and its drift in millionths.
    lead: Micros,
    drift: i64,
    paused_until: Micros,
    partitioned_until: Micros,
    wild_rate: u64,
}

pub(super) struct Simulation<'a> {
    pub(super) case: &'a Case,
    random: Random,
    pub(super) limits: Limits,
    pub(super) store: Store,
    pub(super) replicas: Vec<Replica>,
    terms: LeaseTerms,
    /// By time, and at equal times in the order of scheduling.
    events: BTreeMap<(Micros, u64), Event>,
    number: u64,
    pub(super) now: Micros,
    exact: Vec<Option<crate::algorithm::State>>,
    pub(super) outcome: Outcome,
}

const LATENCY: Micros = 300;
const GIVE_UP: Micros = 300_000;

impl<'a> Simulation<'a> {
    pub(super) fn new(case: &'a Case, random: &Random) -> Self {
        let mut random = random.clone();
        let terms = LeaseTerms::of(&case.params, 250_000);
        let replicas = (0..case.holders).map(|_| Replica {
            balance: Balance::default(),
            holder: Holder::new(HoldId { owner: 0, number: 0 }, terms, 0),
            life: 0,
            lead: random.within(-5_000_000, 5_000_000),
            drift: if case.faults.drift { random.within(-9_900, 9_900) } else { 0 },
            paused_until: 0,
            partitioned_until: 0,
            wild_rate: 0,
        });
        let store = Store::new(case.mutation == Some(Mutation::DrainOutstanding));
        let mut simulation = Self {
            replicas: replicas.collect(),
            terms,
            limits: Limits::new(&case.params),
            exact: vec![None; case.params.len()],
            case,
            random,
            store,
            events: BTreeMap::new(),
            number: 0,
            now: START,
            outcome: Outcome::default(),
        };
        for index in 0..case.holders {
            simulation.start(index);
            let first = simulation.random.within(0, 1_000);
            simulation.after(first, Event::Check(index));
            simulation.after(first, Event::Tick(index));
        }
        let Faults { crash_every, pause_every, partition_every, reset_every, .. } = case.faults;
        for (every, event) in [
            (crash_every, Event::Crash),
            (pause_every, Event::Pause),
            (partition_every, Event::Partition),
            (reset_every, Event::Reset),
        ] {
            if every > 0 {
                simulation.after(every, event);
            }
        }
        simulation
    }

    pub(super) fn run(mut self) -> Outcome {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at - START > self.case.length {
                break;
            }
            self.now = at;
            self.handle(event);
        }
        self.outcome
    }

    fn after(&mut self, delay: Micros, event: Event) {
        self.number += 1;
        self.events.insert((self.now + delay, self.number), event);
    }

    pub(super) fn is(&self, mutation: Mutation) -> bool {
        self.case.mutation == Some(mutation)
    }

    /// Whether a message from or to a holder is lost.
    fn loses(&mut self, holder: usize) -> bool {
        self.replicas[holder].partitioned_until > self.now || self.chance(self.case.faults.lose)
    }

    fn chance(&mut self, times: u32) -> bool {
        times > 0 && self.random.once_in(times)
    }

    /// Returns the time of a holder's clock.
    pub(super) fn local(&self, index: usize) -> Micros {
        let Replica { lead, drift, .. } = self.replicas[index];
        let since = self.now - START;
        since + since * drift / 1_000_000 + lead
    }

    fn start(&mut self, index: usize) {
        self.number += 1;
        let (life, now, terms) = (self.number, self.local(index), self.terms);
        let replica = &mut self.replicas[index];
        replica.life = life;
        replica.balance = Balance::default();
        replica.holder = Holder::new(HoldId { owner: life, number: 1 }, terms, now);
    }

    fn handle(&mut self, event: Event) {
        match &event {
            Event::Check(index) | Event::Tick(index) | Event::GiveUp(index, ..)
                if self.replicas[*index].paused_until > self.now =>
            {
                let wait = self.replicas[*index].paused_until - self.now;
                return self.after(wait, event);
            }
            Event::Reply(message) if self.replicas[message.holder].paused_until > self.now => {
                let wait = self.replicas[message.holder].paused_until - self.now;
                return self.after(wait, event);
            }
            _ => {}
        }
        let faults = self.case.faults;
        match event {
            Event::Check(index) => self.check(index),
            Event::Tick(index) => {
                self.after(10_000, Event::Tick(index));
                if self.random.once_in(8) {
                    self.replicas[index].wild_rate = self.random.pick(&[0, 0, 50, 400, 3_000]);
                }
                let local = self.local(index);
                if self.spends_on(index) {
                    return;
                }
                let replica = &mut self.replicas[index];
                if let Some(renewal) = replica.holder.due(&replica.balance, local) {
                    self.send(index, 0, Some(renewal));
                }
            }
            Event::Serve(message) => self.serve(*message),
            Event::Reply(message) => self.reply(&message),
            Event::GiveUp(index, life, sequence) => {
                let replica = &mut self.replicas[index];
                if replica.life == life {
                    replica.holder.lost(&replica.balance, sequence);
                }
            }
            Event::Crash => {
                let index = self.random.below(self.case.holders);
                self.start(index);
                self.after(faults.crash_every, Event::Crash);
            }
            Event::Pause => {
                let index = self.random.below(self.case.holders);
                self.replicas[index].paused_until = self.now + self.random.within(1_000, 600_000);
                self.after(faults.pause_every, Event::Pause);
            }
            Event::Partition => {
                let index = self.random.below(self.case.holders);
                self.replicas[index].partitioned_until = self.now + self.random.within(1_000, 600_000);
                self.after(faults.partition_every, Event::Partition);
            }
            Event::Reset => {
                self.store.reset(self.now);
                if self.is(Mutation::ResetDropsHolds) {
                    self.store.ledgers = Default::default();
                }
                self.exact.fill(None);
                self.outcome.resets.push(self.now);
                self.after(faults.reset_every, Event::Reset);
            }
        }
    }

    /// Makes a check of one unit, and schedules the next.
    fn check(&mut self, index: usize) {
        let rate = match self.case.load {
            Load::Planned(load) => load(index, self.now - START),
            Load::Wild => self.replicas[index].wild_rate,
        };
        if rate == 0 {
            return self.after(5_000, Event::Check(index));
        }
        let gap = 2_000_000 / rate as Micros;
        let gap = self.random.within(0, gap);
        self.after(gap, Event::Check(index));
        self.outcome.checks += 1;
        self.judge_exactly();
        let local = self.local(index);
        let spends_on = self.spends_on(index);
        let read = if spends_on { Micros::MIN + 1 } else { local };
        let replica = &mut self.replicas[index];
        match replica.balance.spend(1, read) {
            Spend::Spent => self.outcome.admitted.push(self.now),
            Spend::Low if spends_on => self.outcome.admitted.push(self.now),
            Spend::Low => {
                self.outcome.admitted.push(self.now);
                if let Some(mut renewal) = replica.holder.low(&replica.balance, local) {
                    if self.case.mutation == Some(Mutation::KeepReturnedUnits) {
                        renewal.kept /= 2;
                    }
                    self.send(index, 0, Some(renewal));
                }
            }
            Spend::Short => match replica.holder.short(&replica.balance, 1, local) {
                OnShortage::Refuse { .. } => {}
                OnShortage::Store(renewal) => self.send(index, 1, renewal),
            },
        }
    }

    fn send(&mut self, holder: usize, cost: i64, renewal: Option<Renewal>) {
        self.outcome.calls += 1;
        let life = self.replicas[holder].life;
        if let Some(renewal) = renewal {
            self.after(GIVE_UP, Event::GiveUp(holder, life, renewal.sequence));
        }
        let sent = self.local(holder);
        let message = Message { holder, life, cost, sent, renewal, grant: None, refused: false, is_copy: false };
        if self.chance(self.case.faults.duplicate) {
            let delay = self.delay() + self.random.within(0, 30_000);
            self.after(delay, Event::Serve(Box::new(Message { is_copy: true, ..message.clone() })));
        }
        if !self.loses(holder) {
            let delay = self.delay();
            self.after(delay, Event::Serve(Box::new(message)));
        }
    }

    fn delay(&mut self) -> Micros {
        let long = self.chance(self.case.faults.delay);
        if long { self.random.within(LATENCY, 400_000) } else { LATENCY + self.random.within(0, 50) }
    }

    fn serve(&mut self, mut message: Message) {
        let (before, now) = (self.store.clone(), self.now);
        let mut renewal = message.renewal;
        let mut cost = message.cost;
        if message.is_copy {
            cost = 0;
        }
        self.mutate_expiry();
        if let Some(renewal) = &mut renewal {
            self.mutate_before(renewal);
        }
        let (allowed, grant) = self.store.serve(&self.limits, now, cost, renewal.as_ref());
        if let (Some(grant), Some(renewal)) = (&grant, &renewal) {
            self.mutate_after(&before, grant, renewal);
        }
        if allowed && cost > 0 {
            self.outcome.admitted.push(now);
        }
        message.refused = !allowed;
        message.grant = grant.map(|grant| (grant, now));
        if (message.grant.is_some() || message.refused) && !self.loses(message.holder) {
            let delay = self.delay();
            self.after(delay, Event::Reply(Box::new(message)));
        }
    }

    fn reply(&mut self, message: &Message) {
        let local = self.local(message.holder);
        let (late, after_reply, walls, burnt) = (
            self.is(Mutation::AcceptLateReply),
            self.is(Mutation::StartTtlAtReply),
            self.is(Mutation::CompareWallClocks),
            self.is(Mutation::KeepBurntUnits),
        );
        let replica = &mut self.replicas[message.holder];
        if replica.life != message.life {
            return;
        }
        let Some((mut grant, served)) = message.grant else {
            return replica.holder.refused(message.cost, message.sent, local);
        };
        if late && let Some(pending) = &replica.holder.pending {
            grant.sequence = pending.renewal.sequence;
        }
        grant.is_kept |= burnt;
        let Some(pending) = replica.holder.pending.map(|pending| pending.renewal.sequence) else { return };
        replica.holder.answered(&replica.balance, &grant, message.refused, local);
        if pending != grant.sequence {
            return;
        }
        let ttl = self.terms.ttl;
        if after_reply {
            replica.balance.fill(0, local + ttl);
            replica.balance.watch(replica.balance.units() / 2, local + ttl / 2);
        } else if walls {
            let deadline = served - START + ttl;
            replica.balance.fill(0, deadline);
            replica.balance.watch(replica.balance.units() / 2, deadline - ttl / 2);
        }
    }

    /// Decides the check by one exact limiter without delay.
    fn judge_exactly(&mut self) {
        let input = StepInput { now: self.now, cost: 1, max_wait: None, phase: 0 };
        let decided: Vec<_> = self
            .case
            .params
            .iter()
            .zip(&self.exact)
            .map(|(params, state)| params.step(state.as_ref(), &input))
            .collect();
        if decided.iter().all(|(decision, _)| decision.allowed) {
            self.outcome.exact += 1;
            for (state, (_, next)) in self.exact.iter_mut().zip(decided) {
                *state = next.or(state.take());
            }
        }
    }
}
