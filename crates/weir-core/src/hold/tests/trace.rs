//! Events of a client's lease and the client's actions: the traces that clients in other languages replay
//! (`clients/traces/holder.jsonl`). `WEIR_WRITE=1` rewrites the file.

use std::collections::VecDeque;

use super::{
    edges,
    recorder::Recorder,
    store::{Limits, Store},
};
use crate::{
    domain::Micros,
    hold::{HoldId, LeaseAnswer, LeaseRequest, LeaseTerms, Offer, Renewal},
    testing::{Random, bucket},
};

const TRACES: &str = include_str!("../../../../../clients/traces/holder.jsonl");
const EVENTS: usize = 250;
const TTL: Micros = 250_000;

/// The parameters of a trace.
#[derive(Clone, Copy)]
struct TraceParams {
    name: &'static str,
    /// Units a second, and units in a burst.
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

/// Nothing is lost, and neither policies nor other clients interfere.
const QUIET: TraceParams = TraceParams { name: "", limit: (0, 0), pauses: &[], lose: 0, change: 0, others: 0 };

const TRACE_PARAMS: [TraceParams; 7] = [
    TraceParams { name: "a cold key", limit: (1_000, 1_000), pauses: &[40_000, 90_000], ..QUIET },
    TraceParams { name: "an ample limit", limit: (50_000, 50_000), pauses: &[100, 500, 3_000], ..QUIET },
    TraceParams { name: "at its limit", limit: (300, 30), pauses: &[100, 700, 3_000], others: 4, ..QUIET },
    TraceParams { name: "lost answers", limit: (2_000, 400), pauses: &[200, 1_000, 9_000], lose: 3, ..QUIET },
    TraceParams { name: "a pause", limit: (5_000, 900), pauses: &[200, 200, 500, 500, 400_000], ..QUIET },
    TraceParams {
        name: "policies change",
        limit: (5_000, 900),
        pauses: &[200, 900, 4_000],
        change: 12,
        others: 9,
        ..QUIET
    },
    TraceParams {
        name: "all of it",
        limit: (900, 90),
        pauses: &[100, 900, 9_000, 300_000],
        lose: 6,
        change: 25,
        others: 5,
    },
];

struct Trace {
    random: Random,
    params: TraceParams,
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

impl Trace {
    fn new(params: TraceParams, seed: u64) -> Self {
        let (rate, capacity) = params.limit;
        let mut trace = Self {
            random: Random::new(seed),
            params,
            client: Recorder::new(params.name, 1_000_000),
            store: Store::new(false),
            limits: Limits::new(&[]),
            offer: None,
            generation: 0,
            sent: VecDeque::new(),
            checks: VecDeque::new(),
            sequence_of_others: 0,
        };
        trace.enforce(rate, capacity);
        trace
    }

    /// Enforces a leased policy with this limit.
    fn enforce(&mut self, rate: u64, capacity: u64) {
        let (params, _) = bucket(rate, capacity);
        self.generation += 1;
        self.offer = Some(Offer { generation: self.generation, terms: LeaseTerms::of([&params], TTL) });
        self.limits = Limits::new(&[params]);
    }

    fn run(mut self) -> String {
        for _ in 0..EVENTS {
            self.client.now += self.random.pick(self.params.pauses);
            if self.chance(self.params.change) {
                match self.random.below(4) {
                    0 => self.offer = None,
                    1 => self.enforce(self.params.limit.0 / 2, self.params.limit.1 / 2),
                    _ => self.enforce(self.params.limit.0, self.params.limit.1),
                }
            }
            if self.chance(self.params.others) {
                self.serve_other_client();
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
    fn serve_other_client(&mut self) {
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
        if self.chance(self.params.lose) {
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
#[expect(clippy::disallowed_methods, reason = "it writes the traces to the given path")]
fn clients_replay_the_traces_of_this_state_machine() {
    let traces = TRACE_PARAMS.iter().enumerate().map(|(seed, params)| Trace::new(*params, seed as u64).run());
    let made: String = traces.chain(edges::traces()).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/traces/holder.jsonl");
    if std::env::var_os("WEIR_WRITE").is_some() {
        return std::fs::write(path, made).unwrap();
    }
    for (number, (ours, theirs)) in made.lines().zip(TRACES.lines()).enumerate() {
        assert_eq!(ours, theirs, "line {} of clients/traces/holder.jsonl; WEIR_WRITE=1 rewrites it", number + 1);
    }
    assert_eq!(made.len(), TRACES.len());
    for done in ["spend", "refuse", "check", "ask"] {
        assert!(made.contains(&format!("\"do\":\"{done}\"")), "{done} is in no trace");
    }
}
