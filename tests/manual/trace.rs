//! The trace of all pictures, replayed by the service's own limiter.

use weir::limiter::{self, Simulation};
use weir_core::{
    algorithm::Entry,
    domain::{Micros, time::SECOND},
};
use weir_policy::Rules;

/// The end of the trace.
pub const END: Micros = 40 * SECOND;
/// The longest wait that the requests accept.
pub const MAX_WAIT: Micros = 2 * SECOND;
/// Interval between previews of the remaining units.
const PEEK_EVERY: Micros = SECOND / 25;

/// The answers of an algorithm.
pub struct Replay {
    pub requests: Vec<Request>,
    /// The remaining units, and the times of their changes.
    pub remaining: Vec<(Micros, u64)>,
    /// The maximum of the remaining units.
    pub limit: u64,
}

/// One request of one unit.
pub struct Request {
    pub at: Micros,
    /// The time at which it may start; `None`: refused.
    pub start: Option<Micros>,
}

/// Returns the times of the requests: 25 within two seconds; two a second until 20 s; none; and 25 more within two
/// seconds, around 30 s, where a window of ten seconds without requests ends.
fn arrivals() -> impl Iterator<Item = Micros> {
    let burst = |from: Micros| (0..25).map(move |number| from + number * 2 * SECOND / 25);
    let steady = (5..40).map(|number| number * SECOND / 2);
    burst(0).chain(steady).chain(burst(29 * SECOND))
}

/// Replays the trace with the algorithm's first example.
pub fn replay(entry: &Entry) -> Replay {
    let peeks = (0..=END / PEEK_EVERY).map(|number| (number * PEEK_EVERY, 0));
    let mut moments: Vec<(Micros, i64)> = arrivals().map(|at| (at, 1)).chain(peeks).collect();
    // At equal times the preview precedes the requests.
    moments.sort_unstable();
    let fields: Vec<_> = entry.examples[0].iter().map(|(field, text)| format!("{field}: {text}")).collect();
    let text = format!("schema: {{ trace: {{ limits: [{{ {}: {{ {} }} }}] }} }}", entry.name, fields.join(", "));
    let policy = weir_policy::parse(&text, &Rules::default()).expect("a policy");
    let (simulation, mut request) = (Simulation::default(), limiter::Request::new("", &["trace"]).expect("a key"));
    let mut replay = Replay { requests: Vec::new(), remaining: Vec::new(), limit: 0 };
    for (at, cost) in moments {
        request.set_terms(cost, Some(MAX_WAIT), 1.0).expect("valid terms");
        let decision = simulation.check(at, &policy, &request).expect("a decision").summary.decision;
        if cost > 0 {
            replay.requests.push(Request { at, start: decision.allowed.then(|| at + decision.wait) });
        }
        replay.limit = replay.limit.max(decision.limit);
        if replay.remaining.last().is_none_or(|(_, last)| *last != decision.remaining) {
            replay.remaining.push((at, decision.remaining));
        }
    }
    replay
}

impl Replay {
    /// Returns the start times of requests, in order.
    pub fn starts(&self) -> Vec<Micros> {
        let mut starts: Vec<_> = self.requests.iter().filter_map(|request| request.start).collect();
        starts.sort_unstable();
        starts
    }

    /// Whether any request must wait.
    pub fn has_waits(&self) -> bool {
        self.requests.iter().any(|request| request.start.is_some_and(|start| start > request.at))
    }

    /// Returns the most requests that start within any window of this length.
    pub fn most_within(&self, window: Micros) -> usize {
        let starts = self.starts();
        let within = |from: usize| starts[from..].iter().take_while(|start| **start < starts[from] + window).count();
        (0..starts.len()).map(within).max().unwrap_or_default()
    }
}
