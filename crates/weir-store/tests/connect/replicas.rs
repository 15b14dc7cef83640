//! Charges that replicas acknowledge late, or together.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use smallvec::smallvec;
use tokio::{task::unconstrained, time::sleep};
use weir_core::{
    domain::{Charge, Key},
    plan::{Level, Limit, Origin, Plan},
    testing::parse,
};
use weir_settings::Time;
use weir_store::redis::{RedisStore, settings::RedisSettings};
use weir_test_redis::{HARNESS, Options, Server as Redis, eventually};

use super::server::{Server, TIMEOUT, patient, redis};

const CHECKS: u64 = 8;
/// Calls of which two pipelines cannot both have at most 128, after which tokio makes a task yield.
const PIPELINED: usize = 300;

/// An idle server ends a `WAIT` only at a tick of its timer: at `hz 1` up to a second late.
#[tokio::test]
async fn checks_are_answered_in_time_by_a_server_that_is_late_to_end_its_wait() {
    let server = Server::unix(&["hz 1"]);
    let settings = RedisSettings { command_timeout: Time::seconds(1), wait_replicas: 1, ..patient() };
    let store = RedisStore::start(&redis(&server.url("")), &settings, None, Arc::default()).expect("a thread");
    let params = parse("fixed_window", &[("count", "100"), ("period", "1h")]);
    let (key, limit) = (Key::new("", &["a"]).expect("a key"), Limit::new(Origin::Policy, None, "*", 0, false, params));
    store.reach(TIMEOUT).await.expect("it answers");
    let mut undecided = 0;
    for _ in 0..CHECKS {
        // Each check starts at another time between two ticks.
        sleep(Duration::from_millis(125)).await;
        let plan = Plan::new(smallvec![Level::new(&key, 1, 1, &limit, 1)], Charge::AllOrNothing, None);
        undecided += u64::from(store.verdict(&plan).await.is_err());
    }
    // A busy machine may delay an answer too.
    assert!(undecided < 2, "{undecided} of {CHECKS}");
}

/// Starts `MONITOR`, and returns the commands that the server receives from now on.
fn monitor(server: &Redis) -> impl Iterator<Item = String> + use<> {
    let mut stream = UnixStream::connect(server.socket()).expect("connected");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    write!(stream, "AUTH {HARNESS} x\r\nMONITOR\r\n").expect("written");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line in time"));
    assert_eq!([lines.next(), lines.next()], [(); 2].map(|()| Some("+OK".to_owned())));
    // The script's own commands are not received, and new connections are probed.
    lines.filter(|line| !line.contains(" lua] ") && !line.contains("weir:probe"))
}

#[tokio::test]
async fn a_long_pipeline_is_sent_in_order_and_then_its_wait() {
    let master = Redis::start(Options::port());
    let replica = Redis::start(Options::socket().set("replicaof", &format!("127.0.0.1 {}", master.port())));
    eventually("the replica follows", || match replica.info("master_link_status")? {
        state if state == "up" => Ok(()),
        state => Err(state),
    });
    let timeout = Time::seconds(60);
    let settings =
        RedisSettings { command_timeout: timeout, max_batch: 1, pool_size: 1, wait_replicas: 1, ..patient() };
    let store = RedisStore::start(&redis(&master.url()), &settings, None, Arc::default()).expect("a thread");
    store.reach(TIMEOUT).await.expect("it answers");
    let params = parse("fixed_window", &[("count", "100"), ("period", "1h")]);
    let limit = Limit::new(Origin::Policy, None, "*", 0, false, params);
    let keys: Vec<_> =
        (0..PIPELINED).map(|number| Key::new("", &[format!("key{number:03}")]).expect("a key")).collect();
    let plan = |key| Plan::new(smallvec![Level::new(key, 1, 1, &limit, 1)], Charge::AllOrNothing, None);
    let plans: Vec<_> = keys.iter().map(plan).collect();
    let commands = monitor(&master);
    // All checks wait for a server that is paused, so they go in two pipelines at most.
    master.pause();
    let mut verdicts = Box::pin(unconstrained(join_all(plans.iter().map(|plan| store.verdict(plan)))));
    assert!((&mut verdicts).now_or_never().is_none());
    master.resume();
    for verdict in tokio::time::timeout(TIMEOUT, verdicts).await.expect("in time") {
        assert!(!verdict.expect("an answer").degraded);
    }
    master.cli(&["ECHO", "end"]);
    let (mut sent, mut pipeline, mut longest) = (0, 0, 0);
    for command in commands.take_while(|command| !command.contains("\"ECHO\" \"end\"")) {
        if command.contains("\"EVALSHA\"") {
            assert!(command.contains(&format!("key{sent:03}")), "{command} instead of {sent}");
            (sent, pipeline) = (sent + 1, pipeline + 1);
        } else if command.contains("\"WAIT\"") {
            (longest, pipeline) = (pipeline.max(longest), 0);
        }
    }
    assert_eq!((sent, pipeline), (PIPELINED, 0), "calls, and those without a WAIT behind them");
    assert!(longest >= PIPELINED / 2, "{longest} calls before a WAIT");
}
