//! Counts in memory after a restart of the service.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::process::Signal;
use tempfile::TempDir;
use weir::proto::CheckRequest;

use crate::support::{
    Run, Server, eventually, finish,
    requests::{check, limit, peek, with_limits},
    server::Setup,
    weir,
};

const POLICIES: [(&str, &str); 3] = [
    (
        "default.yaml",
        "schema: { user: { children: { '*': { limits: [{ gcra: { burst: 9, count: 7, period: 3d } }, { fixed_window: { \
         count: 10, period: 31d, per_key_phase: true } }], children: { trade: { limits: [[4, 1, 86400]] } } } } } }",
    ),
    ("api.yaml", "domain: api\nanchor: 1\nschema: { a: { children: { '*': { limits: [[9, 1, 86400]] } } } }"),
    (
        "long.yaml",
        "domain: a domain whose name has more than sixty-four bytes is named by a hash\nanchor: 3\nschema: { a: { \
         children: { '*': { limits: [[9, 1, 86400]] } } } }",
    ),
];
const LONG: &str = "a domain whose name has more than sixty-four bytes is named by a hash";

/// The directory of the policies and the snapshot, which outlives the services.
struct SnapshotDir {
    dir: TempDir,
}

impl SnapshotDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("limits")).expect("a directory");
        for (name, text) in POLICIES {
            fs::write(dir.path().join("limits").join(name), text).expect("a policy");
        }
        Self { dir }
    }

    fn snapshot(&self) -> PathBuf {
        self.dir.path().join("weir.snapshot")
    }

    fn aside(&self) -> PathBuf {
        self.dir.path().join("weir.snapshot.rejected")
    }

    fn setup(&self) -> Setup {
        Setup::new().limits(self.dir.path().join("limits")).snapshot(self.snapshot())
    }

    /// Starts a service that writes its snapshot only at shutdown.
    fn start(&self) -> Server {
        self.setup().env("WEIR_STORE__SNAPSHOT__EVERY", "1d").start()
    }

    /// Tries to serve, which must fail.
    fn refused(&self) -> Run {
        let mut serve = weir();
        serve.args(["serve", "--allow-all"]).env("WEIR_STORE__SNAPSHOT__PATH", self.snapshot());
        for port in ["WEIR_GRPC__LISTEN", "WEIR_HTTP__LISTEN"] {
            serve.env(port, "127.0.0.1:0");
        }
        finish(&mut serve)
    }
}

fn stop(server: Server) {
    stop_with(server, 0);
}

/// Stops a service and asserts its exit code.
fn stop_with(mut server: Server, code: i32) {
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_end(), code);
    server.wait_for_log("stopped");
}

/// Returns the remaining units at each level of a key.
async fn left(server: &Server, request: CheckRequest) -> Vec<u64> {
    server.check(request).await.levels.iter().map(|level| level.remaining).collect()
}

fn within(domain: &str, request: CheckRequest) -> CheckRequest {
    CheckRequest { domain: domain.to_owned(), ..request }
}

/// Adds a limit to a request, in a domain that no policy defines.
fn with_own_limit(request: CheckRequest) -> CheckRequest {
    let window = weir::proto::FixedWindow {
        count: 5,
        period: Some(prost_types::Duration { seconds: 31 * 86_400, nanos: 0 }),
        per_key_phase: true,
        ..Default::default()
    };
    let own = limit(weir::proto::limit::Algorithm::FixedWindow(window));
    with_limits(within("nowhere", request), vec![own])
}

// Connections need a separate thread to close, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_graceful_shutdown_keeps_all_counts() {
    let dir = SnapshotDir::new();
    let long = "x".repeat(500);
    let trade = ["user", "alex", "trade"];
    let mut before = Vec::new();
    let server = dir.start();
    for _ in 0..3 {
        before.push(server.check(check(&trade)).await);
        server.check(within("api", check(&["a", &long]))).await;
        server.check(within(LONG, check(&["a", "b"]))).await;
        server.check(with_own_limit(check(&["x", "y", &long]))).await;
    }
    assert_eq!(server.metric("weir_keys"), 6.0);
    stop(server);
    for restart in 0..2 {
        let server = dir.start();
        assert_eq!(server.log_lines("snapshot loaded")[0]["states"], 6);
        assert_eq!(server.metric("weir_keys"), 6.0);
        assert_eq!(left(&server, peek(&trade)).await, [7, 7, 2], "after restart {restart}");
        assert_eq!(left(&server, within("api", peek(&["a", &long]))).await, [7]);
        assert_eq!(left(&server, within(LONG, peek(&["a", "b"]))).await, [7]);
        assert_eq!(left(&server, with_own_limit(peek(&["x", "y", &long]))).await, [2]);
        // The reset times are the same, although the clock has advanced.
        let now = server.check(peek(&trade)).await;
        for (before, now) in before[2].levels.iter().zip(now.levels) {
            let reset = |level: &weir::proto::LevelResult| level.reset_after.map_or(0, |reset| reset.seconds);
            assert!((reset(before) - 600..=reset(before)).contains(&reset(&now)), "{before:?} {now:?}");
        }
        stop(server);
    }
    // Loaded states are stored under the anchors of their domains, so resets find them.
    let server = dir.start();
    assert_eq!(server.run(&["reset", "user", "--subtree"]).code, 0);
    assert_eq!(server.run(&["reset", "a", "b", "--domain", LONG]).code, 0);
    assert_eq!(server.metric("weir_keys"), 2.0);
    stop(server);
}

// Connections need a separate thread to close, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_kill_loses_only_charges_since_the_last_snapshot() {
    let dir = SnapshotDir::new();
    let mut server = dir.setup().env("WEIR_STORE__SNAPSHOT__EVERY", "1s").start();
    for _ in 0..3 {
        server.check(check(&["user", "alex"])).await;
    }
    let charged = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_secs_f64();
    eventually("a snapshot started after the charges", || {
        let ended = server.metric("weir_snapshot_last_success_timestamp_seconds");
        (ended - server.metric("weir_snapshot_duration_seconds") > charged).then_some(())
    });
    assert!(server.metric("weir_snapshot_bytes") > 0.0);
    server.check(check(&["user", "alex"])).await;
    server.signal(Signal::KILL);
    eventually("it is gone", || (!server.lives()).then_some(()));
    let server = dir.start();
    let left = left(&server, peek(&["user", "alex"])).await[0];
    assert!(left == 7 || left == 6, "{left} of 10 are left, 3 were charged before the snapshot and 1 after");
}

// Connections need a separate thread to close, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_invalid_snapshot_fails_the_start_or_is_set_aside_on_request() {
    let dir = SnapshotDir::new();
    let server = dir.start();
    server.check(check(&["user", "alex"])).await;
    stop(server);
    let whole = fs::read(dir.snapshot()).expect("a snapshot");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    let mut newer = whole.clone();
    newer[8] = 99;
    for (content, expected) in [
        (damaged, "is damaged or was cut short"),
        (whole[..whole.len() - 1].to_vec(), "is damaged or was cut short"),
        (Vec::new(), "is damaged or was cut short"),
        (newer, "has the format 99, of a later version"),
        (b"limits: weir.yaml, perhaps".to_vec(), "is not a snapshot"),
    ] {
        fs::write(dir.snapshot(), &content).expect("written");
        let run = dir.refused();
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{run:?}");
        let path = dir.snapshot().display().to_string();
        let sentence = run.err.lines().last().expect("a line");
        for expected in [&path, expected, "`weir serve --start-empty`"] {
            assert!(sentence.contains(expected), "{expected} is missing: {}", run.err);
        }
        assert_eq!(fs::read(dir.snapshot()).expect("left alone"), content);

        let server = dir.setup().arg("--start-empty").start();
        assert_eq!(server.metric("weir_keys"), 0.0);
        assert_eq!(server.log_lines("starting empty: the snapshot was renamed").len(), 1);
        assert_eq!(fs::read(dir.aside()).expect("set aside"), content);
        stop(server);
    }
}

// Connections need a separate thread to close, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn start_empty_sets_aside_a_valid_snapshot() {
    let dir = SnapshotDir::new();
    let server = dir.start();
    server.wait_for_log("there is no snapshot yet: starting empty");
    server.check(check(&["user", "alex"])).await;
    stop(server);
    let whole = fs::read(dir.snapshot()).expect("a snapshot");
    let server = dir.setup().arg("--start-empty").start();
    assert_eq!(left(&server, peek(&["user", "alex"])).await, [10, 10]);
    assert_eq!(fs::read(dir.aside()).expect("set aside"), whole);
    stop(server);
    fs::rename(dir.aside(), dir.snapshot()).expect("put back");
    assert_eq!(left(&dir.start(), peek(&["user", "alex"])).await, [9, 9]);
}

// Connections need a separate thread to close, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn snapshot_states_above_max_keys_are_dropped_and_logged() {
    let dir = SnapshotDir::new();
    let server = dir.start();
    for user in 0..10 {
        server.check(check(&["user", &user.to_string()])).await;
    }
    stop(server);
    let server = dir.setup().env("WEIR_STORE__MAX_KEYS", "15").start();
    assert_eq!(server.metric("weir_keys"), 15.0);
    assert_eq!(server.metric("weir_evictions_total{reason=\"snapshot\"}"), 5.0);
    let lines = server.log_lines("the snapshot holds more than store.max_keys: the rest is dropped");
    assert_eq!((lines.len(), &lines[0]["left_out"]), (1, &5.into()));
}

#[test]
fn a_second_server_with_the_same_snapshot_does_not_start() {
    let dir = SnapshotDir::new();
    // A link to a file that does not exist yet, and a link to that link.
    let links = ["link", "second"].map(|name| dir.dir.path().join(name));
    symlink("weir.snapshot", &links[0]).expect("linked");
    symlink(&links[0], &links[1]).expect("linked");
    let first = dir.setup().snapshot(&links[1]).env("WEIR_STORE__SNAPSHOT__EVERY", "1d").start();
    for (argument, named) in [(None, &dir.snapshot()), (Some("--start-empty"), &dir.snapshot()), (None, &links[0])] {
        let mut serve = weir();
        serve.args(["serve", "--allow-all"]).env("WEIR_STORE__SNAPSHOT__PATH", named).args(argument);
        let run = finish(&mut serve);
        let path = dir.snapshot().display().to_string();
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.err.contains(&format!("the snapshot {path} is in use by another process")), "{}", run.err);
    }
    stop(first);
    assert!(links.iter().all(|link| link.is_symlink()), "links stay");
    assert!(dir.snapshot().is_file());
    // A killed process releases it too.
    dir.start().signal(Signal::KILL);
    stop(dir.start());
}

// Connections need a separate thread to close, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failing_snapshot_write_does_not_stop_the_server() {
    let dir = SnapshotDir::new();
    let folder = dir.dir.path().join("nowhere");
    fs::create_dir(&folder).expect("a directory");
    let nowhere = folder.join("weir.snapshot");
    let server = dir.setup().snapshot(&nowhere).env("WEIR_STORE__SNAPSHOT__EVERY", "1s").start();
    fs::rename(&folder, dir.dir.path().join("elsewhere")).expect("renamed");
    eventually("a failure", || (server.metric("weir_snapshot_failures_total") > 0.0).then_some(()));
    assert!(server.check(check(&["user", "alex"])).await.allowed);
    server.wait_for_log("the snapshot cannot be written; the previous one remains");
    stop_with(server, 3);
    assert!(!nowhere.exists() && !Path::new(&dir.snapshot()).exists());
}

// Connections need a separate thread to close, since this one blocks until the service ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_snapshot_above_the_limit_of_a_files_size_does_not_stop_the_server() {
    let dir = SnapshotDir::new();
    let server = dir.setup().env("WEIR_STORE__SNAPSHOT__EVERY", "1s").start();
    server.limit_file_size(Some(0));
    eventually("a failure", || (server.metric("weir_snapshot_failures_total") > 0.0).then_some(()));
    server.wait_for_log("the snapshot cannot be written; the previous one remains");
    assert!(server.check(check(&["user", "alex"])).await.allowed);
    server.limit_file_size(None);
    stop(server);
    assert_eq!(left(&dir.start(), peek(&["user", "alex"])).await, [9, 9]);
}

#[test]
fn a_path_that_cannot_be_written_stops_the_start() {
    let dir = SnapshotDir::new();
    let file = dir.dir.path().join("file");
    fs::write(&file, "").expect("a file is written");
    for path in
        [dir.dir.path().join("nowhere").join("weir.snapshot"), file.join("weir.snapshot"), dir.dir.path().to_owned()]
    {
        for command in [&["serve", "--allow-all"][..], &["config", "check", "--allow-all"]] {
            let run = finish(weir().args(command).env("WEIR_STORE__SNAPSHOT__PATH", &path));
            assert_eq!((run.code, run.out.as_str()), (2, ""), "{run:?}");
            assert!(run.err.contains(&format!("the snapshot {} cannot be written: ", path.display())), "{}", run.err);
        }
    }
    assert_eq!(fs::read_dir(dir.dir.path()).expect("a directory").count(), 2, "it leaves nothing behind");
}
