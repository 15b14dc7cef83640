//! Buckets without an algorithm's name, as older definitions have them.

use serde_json::{Value, json};

use crate::support::{Run, run, run_with};

/// `weir limits explain` of a node with these limits.
fn explained(limits: &str) -> Run {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("limits.yaml");
    std::fs::write(&path, format!("schema:\n  note:\n    limits:\n{limits}")).expect("written");
    run(&["limits", "explain", path.to_str().expect("a path"), "note"])
}

#[test]
fn policies_accept_legacy_buckets() {
    let output = explained(
        "      - { max: 10, duration: 10000 }\n      - { size: 60, dripRate: 250, dripSize: 2 }\n      - max: 300\n        \
         duration: 3600000\n        minInterval: 1500\n        name: posts\n      - { min_interval: 250, shadow: true }\n",
    );
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    for line in [
        "note#leaky_bucket0: leaky_bucket { size: 10 }; counted as `pleaky_bucket1000000#0`",
        "note#leaky_bucket1: leaky_bucket { size: 60, drip_size: 2, drip_rate: 250ms }; counted as",
        "posts: leaky_bucket { size: 300, drip_rate: 12s }; counted as `pleaky_bucket12000000=posts`",
        "note#leaky_bucket3: leaky_bucket { size: 1, drip_rate: 250ms }, shadow; counted as",
        "posts-interval: gcra { burst: 0, count: 1, period: 1500ms }; counted as `pgcra=posts-interval`",
    ] {
        assert!(output.out.contains(line), "{line}\n{}", output.out);
    }
}

#[test]
fn errors_in_legacy_buckets_have_file_line_and_column() {
    let output = explained("      - max: 10\n        duration: 10s\n");
    assert_eq!(output.code, 2);
    assert!(
        output.err.contains("limits.yaml:5:19: duration is a number of milliseconds here, not `10s`"),
        "{}",
        output.err
    );
}

#[test]
fn traces_accept_legacy_buckets() {
    let ask = |at_us: i64, limit: Value| json!({ "at_us": at_us, "key": ["a", "b"], "limits": [limit] });
    let bucket = || json!({ "max": 3, "duration": 3000, "minInterval": 0.5, "depth": 1 });
    let trace = [ask(0, bucket()), ask(499, bucket()), ask(500, bucket()), ask(9, json!({ "max": 3 }))];
    let trace: String = trace.iter().map(|line| format!("{line}\n")).collect();
    let output = run_with(&["simulate"], &trace);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    let output: Vec<Value> = output.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let output = |line: usize| {
        let levels = output[line]["levels"].as_array().cloned().unwrap_or_default();
        let allowed = levels.iter().map(|level| level["allowed"].as_bool());
        (allowed.flatten().collect::<Vec<_>>(), output[line]["retry_after_us"].clone(), output[line]["field"].clone())
    };
    assert_eq!(output(0), (vec![true, true], Value::Null, Value::Null));
    assert_eq!(output(1), (vec![true, false], json!(1), Value::Null));
    assert_eq!(output(2), (vec![true, true], Value::Null, Value::Null));
    assert_eq!(output(3), (vec![], Value::Null, json!("limits[0].duration")));
}
