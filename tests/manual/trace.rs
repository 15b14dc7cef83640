//! The trace of all pictures, replayed by the program itself: `weir simulate`.

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
};

use weir_core::{
    algorithm::Entry,
    domain::{Micros, time::SECOND},
};

use serde_json::{Value, json};

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
    let params: serde_json::Map<_, _> =
        entry.examples[0].iter().map(|(field, text)| ((*field).to_owned(), json!(text))).collect();
    let line = |(at, cost): &(Micros, i64)| json!({ "at_us": at, "key": ["trace"], "cost": cost, "max_wait_us": MAX_WAIT, "limits": [{ entry.name: params }] });
    let answers = simulate(&moments.iter().map(|moment| format!("{}\n", line(moment))).collect::<String>());
    let mut replay = Replay { requests: Vec::new(), remaining: Vec::new(), limit: 0 };
    for (answer, (at, cost)) in answers.iter().zip(moments) {
        let number = |field: &str| answer[field].as_u64().unwrap_or_else(|| panic!("{field} in {answer}"));
        if cost > 0 {
            let start = answer["allowed"].as_bool().expect("a decision").then(|| at + number("wait_us") as Micros);
            replay.requests.push(Request { at, start });
        }
        replay.limit = replay.limit.max(number("limit"));
        let remaining = number("remaining");
        if replay.remaining.last().is_none_or(|(_, last)| *last != remaining) {
            replay.remaining.push((at, remaining));
        }
    }
    replay
}

/// Returns the answer to each line of a trace.
fn simulate(trace: &str) -> Vec<Value> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("simulate")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("its input");
    let output = thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(trace.as_bytes()).expect("it reads the trace"));
        child.wait_with_output().expect("its output")
    });
    assert!(output.status.success(), "weir simulate: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("it prints UTF-8");
    let answers: Vec<_> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.len(), trace.lines().count());
    answers
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
