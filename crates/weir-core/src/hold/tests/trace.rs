//! Events of a client's lease and the client's actions: the traces that clients in other languages replay
//! (`clients/traces/holder.jsonl`). `WEIR_WRITE=1` rewrites the file.

use std::collections::VecDeque;

use super::{
    edges,
    recorder::Recorder,
    store::{Limits, Store},
    table::bucket,
};
use crate::{
    domain::Micros,
    hold::{HoldId, LeaseAnswer, LeaseRequest, Offer, Renewal, Terms},
    testing::Random,
};

const TRACES: &str = include_str!("../../../../../clients/traces/holder.jsonl");
const EVENTS: usize = 250;
const TTL: Micros = 250_000;

/// The parameters of a trace.
#[derive(Clone, Copy)]
struct Story {
    name: &'static str,
    /// Units a second, and units at once.
    limit: (u64, u64),
    /// Possible times between two events.
    pauses: &'static [Micros],
    /// One answer in this many is lost.
    lose: u32,
    /// One event in this many changes the policy.
    change: u32,
    /// One event in this many is a request of another client.
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
    client: Recorder,
    store: Store,
    limits: Limits,
    /// The offer; `None` if the policy has no lease.
    offer: Option<Offer>,
    generation: u64,
    sent: VecDeque<LeaseRequest>,
    checks: VecDeque<(i64, Micros)>,
    sequence_of_others: u64,
}

impl Scene {
    fn new(story: Story, seed: u64) -> Self {
        let (rate, most) = story.limit;
        let mut scene = Self {
            random: Random::new(seed),
            story,
            client: Recorder::new(story.name, 1_000_000),
            store: Store::new(false),
            limits: Limits::new(&[]),
            offer: None,
            generation: 0,
            sent: VecDeque::new(),
            checks: VecDeque::new(),
            sequence_of_others: 0,
        };
        scene.enforce(rate, most);
        scene
    }

    /// Enforces a leased policy with this limit.
    fn enforce(&mut self, rate: u64, most: u64) {
        let (params, _) = bucket(rate, most);
        self.generation += 1;
        self.offer = Some(Offer { generation: self.generation, terms: Terms::of([&params], TTL) });
        self.limits = Limits::new(&[params]);
    }

    fn run(mut self) -> String {
        for _ in 0..EVENTS {
            self.client.now += self.random.pick(self.story.pauses);
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
                0 => {
                    let send = self.client.tick();
                    self.sent.extend(send);
                }
                1 if self.random.once_in(16) => {
                    let send = self.client.close();
                    self.sent.extend(send);
                }
                2..=5 if !self.sent.is_empty() => self.answer(),
                2..=7 if !self.checks.is_empty() => self.answer_check(),
                _ => self.check(),
            }
        }
        self.client.end()
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
        self.store.serve(&self.limits, self.client.now, cost, Some(&renewal));
    }

    fn check(&mut self) {
        let cost = self.random.pick(&[1, 1, 1, 1, 2, 7]);
        let (is_ordinary, send) = self.client.check(cost);
        self.sent.extend(send);
        if is_ordinary {
            self.checks.push_back((cost, self.client.now));
        }
    }

    /// Serves the oldest request, and answers it unless the answer is lost.
    fn answer(&mut self) {
        let Some(request) = self.sent.pop_front() else { return };
        let LeaseRequest { lease, sequence, spent, kept, want, generation, cost } = request;
        let renewal = Renewal { id: HoldId { owner: 0, number: lease }, sequence, spent, kept, want, ttl: TTL };
        let served = self.offer.filter(|offer| offer.serves(generation, kept, want)).map(|_| renewal);
        let (allowed, grant) = self.store.serve(&self.limits, self.client.now, cost, served.as_ref());
        if self.chance(self.story.lose) {
            return self.client.lost(lease, sequence);
        }
        let is_refused = cost > 0 && !allowed;
        let send = self.client.answer(&LeaseAnswer { lease, sequence, is_refused, grant, offer: self.offer });
        self.sent.extend(send);
    }

    fn answer_check(&mut self) {
        let Some((cost, sent)) = self.checks.pop_front() else { return };
        let (allowed, _) = self.store.serve(&self.limits, self.client.now, cost, None);
        self.client.checked(cost, !allowed, sent);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it writes the traces where it is told to")]
fn clients_replay_what_this_machine_does() {
    let stories = STORIES.iter().enumerate().map(|(seed, story)| Scene::new(*story, seed as u64).run());
    let made: String = stories.chain(edges::traces()).collect();
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
