//! What happens to a client's lease, and what it does: the traces that clients in other languages replay
//! (`clients/traces/holder.jsonl`). `WEIR_WRITE=1` writes them anew.

use std::{collections::VecDeque, fmt::Write as _};

use super::{
    store::{Limits, Store},
    table::bucket,
};
use crate::{
    domain::Micros,
    hold::{Balance, ClientLease, HoldId, LeaseAnswer, LeaseRequest, Offer, OnCheck, Renewal, Spend, Terms},
    testing::Random,
};

const TRACES: &str = include_str!("../../../../../clients/traces/holder.jsonl");
const EVENTS: usize = 250;
const TTL: Micros = 250_000;

/// What a trace is about.
#[derive(Clone, Copy)]
struct Story {
    name: &'static str,
    /// Units a second, and at once.
    limit: (u64, u64),
    /// Times between two events, one of these.
    pauses: &'static [Micros],
    /// One answer of so many is lost.
    lose: u32,
    /// One event of so many is another policy.
    change: u32,
    /// One request of another client of so many events.
    others: u32,
}

const STORIES: [Story; 7] = [
    Story { name: "a cold key", limit: (1_000, 1_000), pauses: &[40_000, 90_000], lose: 0, change: 0, others: 0 },
    Story {
        name: "an ample limit",
        limit: (50_000, 50_000),
        pauses: &[100, 500, 3_000],
        lose: 0,
        change: 0,
        others: 0,
    },
    Story { name: "at its limit", limit: (300, 30), pauses: &[100, 700, 3_000], lose: 0, change: 0, others: 4 },
    Story { name: "lost answers", limit: (2_000, 400), pauses: &[200, 1_000, 9_000], lose: 3, change: 0, others: 0 },
    Story {
        name: "a pause",
        limit: (5_000, 900),
        pauses: &[200, 200, 500, 500, 400_000],
        lose: 0,
        change: 0,
        others: 0,
    },
    Story { name: "policies change", limit: (5_000, 900), pauses: &[200, 900, 4_000], lose: 0, change: 12, others: 9 },
    Story { name: "all of it", limit: (900, 90), pauses: &[100, 900, 9_000, 300_000], lose: 6, change: 25, others: 5 },
];

struct Scene {
    random: Random,
    story: Story,
    lease: ClientLease,
    balance: Balance,
    store: Store,
    limits: Limits,
    /// `None`: the policy does not lease.
    offer: Option<Offer>,
    generation: u64,
    now: Micros,
    sent: VecDeque<(LeaseRequest, Micros)>,
    checks: VecDeque<(i64, Micros)>,
    sequence_of_others: u64,
    out: String,
}

impl Scene {
    fn new(story: Story, seed: u64) -> Self {
        let (rate, most) = story.limit;
        let mut scene = Self {
            random: Random::new(seed),
            story,
            lease: ClientLease::default(),
            balance: Balance::default(),
            store: Store::new(false),
            limits: Limits::new(&[]),
            offer: None,
            generation: 0,
            now: 1_000_000,
            sent: VecDeque::new(),
            checks: VecDeque::new(),
            sequence_of_others: 0,
            out: format!("{{\"trace\":\"{}\"}}\n", story.name),
        };
        scene.enforce(rate, most);
        scene
    }

    /// A policy with this limit, which is leased.
    fn enforce(&mut self, rate: u64, most: u64) {
        let (params, _) = bucket(rate, most);
        self.generation += 1;
        self.offer = Some(Offer { generation: self.generation, terms: Terms::of([&params], TTL) });
        self.limits = Limits::new(&[params]);
    }

    fn run(mut self) -> String {
        for _ in 0..EVENTS {
            self.now += self.random.pick(self.story.pauses);
            if self.chance(self.story.change) {
                match self.random.below(4) {
                    0 => self.offer = None,
                    1 => self.enforce(self.story.limit.0 / 2, self.story.limit.1 / 2),
                    _ => self.enforce(self.story.limit.0, self.story.limit.1),
                }
            }
            if self.chance(self.story.others) {
                self.others_ask();
            }
            match self.random.below(12) {
                0 => self.tick(),
                1 if self.random.once_in(16) => self.close(),
                2..=5 if !self.sent.is_empty() => self.answer(),
                2..=7 if !self.checks.is_empty() => self.answer_check(),
                _ => self.check(),
            }
        }
        self.close();
        self.out
    }

    fn chance(&mut self, times: u32) -> bool {
        times > 0 && self.random.once_in(times)
    }

    /// Another client takes units, and keeps some.
    fn others_ask(&mut self) {
        self.sequence_of_others += 1;
        let (sequence, spent, kept) = (self.sequence_of_others, 0, 0);
        let renewal = Renewal { id: HoldId { owner: 9, number: 9 }, sequence, spent, kept, want: 40, ttl: TTL };
        let cost = self.random.pick(&[0, 1, 10]);
        self.store.serve(&self.limits, self.now, cost, Some(&renewal));
    }

    fn check(&mut self) {
        let (cost, now) = (self.random.pick(&[1, 1, 1, 1, 2, 7]), self.now);
        let mut send = None;
        let done = match self.balance.spend(cost, now) {
            Spend::Spent => "\"spend\"".to_owned(),
            Spend::Low => {
                send = self.lease.low(&self.balance, now);
                "\"spend\"".to_owned()
            }
            Spend::Short => match self.lease.short(&self.balance, cost, now) {
                OnCheck::Refuse { retry_after } => format!("\"refuse\",\"retry_after\":{retry_after}"),
                OnCheck::Check => {
                    self.checks.push_back((cost, now));
                    "\"check\"".to_owned()
                }
                OnCheck::Ask(request) => {
                    send = Some(request);
                    "\"ask\"".to_owned()
                }
            },
        };
        self.tell(&format!("\"check\":{cost},\"do\":{done}"), send);
    }

    fn tick(&mut self) {
        let send = self.lease.due(&self.balance, self.now);
        self.tell("\"tick\":true", send);
    }

    fn close(&mut self) {
        let send = self.lease.close(&self.balance, self.now);
        self.tell("\"close\":true", send);
    }

    /// The oldest request is served, and answered; or either is lost.
    fn answer(&mut self) {
        let Some((request, _)) = self.sent.pop_front() else { return };
        let LeaseRequest { lease, sequence, spent, kept, want, generation, cost } = request;
        let renewal = Renewal { id: HoldId { owner: 0, number: lease }, sequence, spent, kept, want, ttl: TTL };
        let served = self.offer.filter(|offer| offer.serves(generation, kept, want)).map(|_| renewal);
        let (allowed, grant) = self.store.serve(&self.limits, self.now, cost, served.as_ref());
        if self.chance(self.story.lose) {
            self.lease.lost(&self.balance, lease, sequence, self.now);
            return self.tell(&format!("\"lost\":{{\"lease\":{lease},\"sequence\":{sequence}}}"), None);
        }
        let (is_refused, offer) = (cost > 0 && !allowed, self.offer);
        let mut event = format!("\"answer\":{{\"lease\":{lease},\"sequence\":{sequence},\"refused\":{is_refused}");
        if let Some(grant) = grant {
            let _ = write!(
                event,
                ",\"grant\":{{\"units\":{},\"free\":{},\"is_kept\":{},\"is_recalled\":{},\"refused_for\":{}}}",
                grant.units, grant.free, grant.is_kept, grant.is_recalled, grant.refused_for
            );
        }
        if let Some(Offer { generation, terms: Terms { ttl, hold_off, scarce, .. } }) = offer {
            let _ = write!(
                event,
                ",\"terms\":{{\"generation\":{generation},\"ttl\":{ttl},\"hold_off\":{hold_off},\"scarce\":{scarce}}}"
            );
        }
        let answer = LeaseAnswer { lease, sequence, is_refused, grant, offer };
        let send = self.lease.answered(&self.balance, &answer, self.now);
        self.tell(&format!("{event}}}"), send);
    }

    fn answer_check(&mut self) {
        let Some((cost, sent)) = self.checks.pop_front() else { return };
        let (allowed, _) = self.store.serve(&self.limits, self.now, cost, None);
        self.lease.checked(cost, !allowed, sent, self.now);
        self.tell(&format!("\"checked\":{{\"cost\":{cost},\"refused\":{},\"sent\":{sent}}}", !allowed), None);
    }

    fn tell(&mut self, event: &str, send: Option<LeaseRequest>) {
        let _ = write!(self.out, "{{\"at\":{},{event}", self.now);
        if let Some(LeaseRequest { lease, sequence, spent, kept, want, generation, cost }) = send {
            let _ = write!(
                self.out,
                ",\"send\":{{\"lease\":{lease},\"sequence\":{sequence},\"spent\":{spent},\"kept\":{kept},\"want\":{want},\
                 \"generation\":{generation},\"cost\":{cost}}}"
            );
            self.sent.extend(send.map(|request| (request, self.now)));
        }
        let _ = writeln!(self.out, ",\"held\":{}}}", self.balance.units());
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it writes the traces where it is told to")]
fn clients_replay_what_this_machine_does() {
    let made: String = STORIES.iter().enumerate().map(|(seed, story)| Scene::new(*story, seed as u64).run()).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/traces/holder.jsonl");
    if std::env::var_os("WEIR_WRITE").is_some() {
        return std::fs::write(path, made).unwrap();
    }
    for (number, (ours, theirs)) in made.lines().zip(TRACES.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {} of clients/traces/holder.jsonl; WEIR_WRITE=1 writes it anew", number + 1);
    }
    assert_eq!(made.len(), TRACES.len());
    for done in ["spend", "refuse", "check", "ask"] {
        assert!(made.contains(&format!("\"do\":\"{done}\"")), "{done} is in no trace");
    }
}
