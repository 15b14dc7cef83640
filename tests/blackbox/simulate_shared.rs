//! `weir simulate` on shared servers: the same answers as in memory, and no keys left behind.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdout, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::support::{Folder, Killed, Run, TIMEOUT, eventually, run_with, weir};

const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/nested/limits.yaml");
const LINE: &str = r#"{"at_us":0,"key":["user","alex","trade"]}"#;

/// The calls of the published table, then resets and a step back in time.
fn story() -> String {
    let call = |at: u64| json!({ "at_us": at, "key": ["user", "alex", "trade"], "charge": "independent" });
    let mut story: Vec<_> = (0..101).map(|number| call(number * 4_000)).collect();
    story.push(json!({ "at_us": 500_000, "reset": ["user"], "subtree": true }));
    story.push(call(400_000));
    story.push(json!({ "at_us": 500_000, "reset": ["user", "alex"] }));
    story.push(json!({ "at_us": 500_000, "key": ["user", ""] }));
    story.push(call(500_000));
    story.iter().map(|line| format!("{line}\n")).collect()
}

fn simulated(store: &str, more: &[&str], story: &str) -> Run {
    run_with(&[&["simulate", "--limits", LIMITS, "--store", store], more].concat(), story)
}

/// Asserts that a trace on this store has the same answers as in memory.
fn same_as_in_memory(store: &str) {
    for more in [&[][..], &["--summary"], &["--summary", "--json"]] {
        let (there, here) = (simulated(store, more, &story()), simulated("memory", more, &story()));
        assert_eq!((there.code, there.err.as_str()), (0, ""));
        assert_eq!(there.out, here.out);
    }
}

fn key_count(redis: &Redis) -> String {
    redis.cli(&["DBSIZE"])
}

#[test]
fn the_published_table_is_the_same_on_redis_and_leaves_no_keys() {
    let redis = Redis::start(Options::port());
    redis.cli(&["SET", "weir:other", "kept"]);
    for store in [redis.url(), format!("redis+unix://{}", redis.socket().display())] {
        same_as_in_memory(&store);
        assert_eq!((key_count(&redis), redis.cli(&["GET", "weir:other"])), ("1".to_owned(), "kept".to_owned()));
    }
}

#[test]
fn the_published_table_is_the_same_on_a_cluster() {
    let cluster = Cluster::start(&ClusterOptions::default());
    same_as_in_memory(&cluster.url());
    let left: Vec<_> = cluster.nodes.iter().map(key_count).collect();
    assert_eq!(left, ["0", "0", "0"]);
}

#[test]
fn store_settings_come_from_file_and_environment() {
    let redis = Redis::start(Options::socket().set("requirepass", "0123"));
    let dir = Folder::of(&[("password", "0123\n")]);
    let text = "store: { url: 'redis://nowhere', redis: { password_file: password } }\nlimits: /nowhere\n";
    let by_file = simulated(&redis.url(), &["--config", &dir.write("weir.yaml", text)], &story());
    assert_eq!((by_file.code, by_file.err.as_str()), (0, ""));
    let mut command = weir();
    command.args(["simulate", "--store", &redis.url()]).env("WEIR_STORE__REDIS__PASSWORD", "0123");
    assert_eq!(crate::support::finish(&mut command).code, 0);
    let without = simulated(&redis.url(), &[], &story());
    assert_eq!((without.code, without.out.as_str()), (2, ""));
    assert!(without.err.contains("NOAUTH"), "{}", without.err);
}

#[test]
fn an_unreachable_store_fails_before_the_first_line() {
    for store in ["redis+unix:///nowhere/redis.sock", "redis://:secret@127.0.0.1:1", "redis-cluster://127.0.0.1:1"] {
        let run = simulated(store, &[], LINE);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{store}");
        let scheme = store.split(':').next().expect("a scheme");
        assert!(run.err.starts_with(&format!("weir: cannot use {scheme}://")), "{}", run.err);
        assert!(!run.err.contains("secret") && run.err.lines().count() == 1, "{}", run.err);
    }
}

#[test]
fn an_unparseable_line_leaves_no_keys() {
    let redis = Redis::start(Options::socket());
    let run = simulated(&redis.url(), &[], &format!("{LINE}\nrubbish\n{LINE}\n"));
    assert_eq!((run.code, run.out.lines().count()), (2, 1));
    assert!(run.err.contains("line 2"), "{}", run.err);
    assert_eq!(key_count(&redis), "0");
}

/// A running simulation whose trace is written line by line.
struct Telling {
    child: Killed,
    answers: BufReader<ChildStdout>,
}

impl Telling {
    fn start(redis: &Redis) -> Self {
        let mut command = weir();
        // A timeout that a busy machine meets.
        command.env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "10s");
        command.args(["simulate", "--limits", LIMITS, "--store", &redis.url()]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let answers = BufReader::new(child.stdout.take().expect("captured"));
        Self { child: Killed(child), answers }
    }

    fn tell(&mut self, line: &str) -> Value {
        writeln!(self.child.0.stdin.as_mut().expect("captured"), "{line}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Waits for the exit code, while the input stays open.
    fn code(&mut self) -> Option<i32> {
        eventually(&format!("its end in {TIMEOUT:?}"), || self.child.0.try_wait().expect("its state")).code()
    }
}

#[test]
fn a_signal_ends_a_waiting_run_and_removes_its_keys() {
    let redis = Redis::start(Options::socket());
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut story = Telling::start(&redis);
        assert_eq!(story.tell(LINE)["remaining"], 5);
        assert_ne!(key_count(&redis), "0");
        kill_process(Pid::from_child(&story.child.0), signal).expect("it lives");
        assert_eq!(story.code(), Some(code));
        assert_eq!(key_count(&redis), "0");
    }
}

#[test]
fn a_store_failure_ends_the_run() {
    let mut redis = Redis::start(Options::socket());
    let mut story = Telling::start(&redis);
    assert_eq!(story.tell(LINE)["remaining"], 5);
    redis.kill();
    assert_eq!(story.tell(LINE), json!({ "at_us": 0, "error": "the store does not answer", "field": "" }));
    assert_eq!(story.code(), Some(2));
    let mut stderr = String::new();
    std::io::Read::read_to_string(story.child.0.stderr.as_mut().expect("captured"), &mut stderr).expect("a text");
    assert!(stderr.starts_with("weir: line 2: the store does not answer: "), "{stderr}");
    assert!(stderr.contains("may be left in redis+unix://"), "{stderr}");
}
