//! The published table of two nested limits, row by row, through `weir simulate`.

use serde_json::{Value, json};

use crate::support::{Folder, run_with};

const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/nested/limits.yaml");
const TABLE: &str = include_str!("../data/nested/table.txt");

/// Microseconds between calls. All calls are within half a second, as in the table.
const BETWEEN_CALLS_US: u64 = 4_000;

/// `[limited, limit, remaining, retry or -1, reset]` in whole seconds, truncated.
type Tuple = [i64; 5];

#[derive(Debug, PartialEq)]
struct Row {
    levels: Vec<Tuple>,
    aggregated: Tuple,
}

fn tuple(of: &Value) -> Tuple {
    let seconds = |field: &str| of[field].as_i64().map_or(-1, |micros| micros / 1_000_000);
    let number = |field: &str| of[field].as_i64().expect("a number");
    let limited = i64::from(!of["allowed"].as_bool().expect("a verdict"));
    [limited, number("limit"), number("remaining"), seconds("retry_after_us"), seconds("reset_after_us")]
}

/// Returns the rows of calls 2 to 101, and the row of the first call, which the table omits.
fn published() -> Vec<Row> {
    let first = Row { levels: vec![[0, 16, 15, -1, 2], [0, 6, 5, -1, 1]], aggregated: [0, 6, 5, -1, 2] };
    let lines: Vec<_> = TABLE.lines().collect();
    let rows = lines.chunks(2).map(|pair| Row {
        levels: serde_json::from_str(pair[0]).expect("the levels"),
        aggregated: serde_json::from_str(pair[1]).expect("the aggregate"),
    });
    std::iter::once(first).chain(rows).collect()
}

fn simulated(limits: &str, charge: Option<&str>) -> Vec<Row> {
    let mut trace = String::new();
    for call in 0..101 {
        let mut line = json!({ "at_us": call * BETWEEN_CALLS_US, "key": ["user", "alex", "trade"] });
        if let Some(charge) = charge {
            line["charge"] = json!(charge);
        }
        trace.push_str(&format!("{line}\n"));
    }
    let run = run_with(&["simulate", "--limits", limits, "--trace", "-"], &trace);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let row = |line: &Value| {
        let levels = line["levels"].as_array().expect("levels").iter().map(tuple).collect();
        Row { levels, aggregated: tuple(line) }
    };
    run.json_lines().iter().map(row).collect()
}

fn assert_same(ours: &[Row], theirs: &[Row]) {
    assert_eq!(ours.len(), theirs.len());
    for (call, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "call {}", call + 1);
    }
}

#[test]
fn independent_charging_reproduces_the_published_table() {
    assert_same(&simulated(LIMITS, Some("independent")), &published());
}

#[test]
fn charge_independent_in_the_policy_reproduces_the_table() {
    let dir = Folder::new();
    let verbatim = std::fs::read_to_string(LIMITS).expect("the policy");
    let path = dir.write("limits.yaml", format!("charge: independent\n{verbatim}"));
    assert_same(&simulated(&path, None), &published());
}

#[test]
fn by_default_a_refusal_charges_no_level() {
    let rows = simulated(LIMITS, None);
    assert_same(&rows[..6], &published()[..6]);
    for row in &rows[6..] {
        assert_eq!(row.levels, [[0, 16, 10, -1, 11], [1, 6, 0, 1, 8]]);
        assert_eq!(row.aggregated, [1, 6, 0, 1, 11]);
    }
}
