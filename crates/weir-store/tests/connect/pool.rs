//! The connection pool.

use std::time::Duration;

use weir_settings::Time;
use weir_store::{
    Failure,
    redis::{pool::Pooled, settings::RedisSettings},
};

use deadpool_redis::redis::{Value, aio::MultiplexedConnection};

use crate::server::{Server, ask, eventually, patient, pool, text};

async fn id(connection: &MultiplexedConnection) -> i64 {
    match ask(connection, "CLIENT ID").await {
        Ok(Value::Int(id)) => id,
        other => panic!("{other:?}"),
    }
}

/// Waits until the connection has noticed that it was closed.
async fn ended(connection: &Pooled) {
    eventually("the end is noticed", async || !connection.is_usable()).await;
}

/// Returns the number of calls of each command, without the calls of the script and of this test.
fn commands(server: &Server) -> Vec<(String, usize)> {
    const OF_THE_SCRIPT: [&str; 7] = ["time", "hmget", "hset", "pttl", "pexpire", "hrandfield", "hdel"];
    const OF_THE_TEST: [&str; 4] = ["auth", "client|id", "client|setinfo", "config|resetstat"];
    let mut calls = server.calls();
    calls.retain(|name, _| !OF_THE_SCRIPT.contains(&&**name) && !OF_THE_TEST.contains(&&**name));
    calls.into_iter().collect()
}

#[tokio::test]
async fn only_reused_connections_are_pinged() {
    let server = Server::unix(&[]);
    server.run("CONFIG RESETSTAT");
    let pool = pool(&server.url(""), &patient(), 1);
    let held = pool.get().await.expect("a connection");
    let first = id(&held).await;
    let made =
        [("evalsha", 1), ("hello", 2), ("info", 1), ("script|load", 1)].map(|(name, calls)| (name.to_owned(), calls));
    assert_eq!(commands(&server), [&made[..], &[]].concat());
    drop(held);
    for _ in 0..10 {
        assert_eq!(id(&pool.get().await.expect("a connection")).await, first);
    }
    let commands_run = commands(&server);
    let new: Vec<_> =
        commands_run.iter().filter(|command| !made.contains(command)).map(|(name, calls)| (&**name, *calls)).collect();
    assert_eq!(new, [("info", 2), ("ping", 10), ("unwatch", 10)]);
}

#[tokio::test]
async fn a_killed_connection_is_replaced_before_use() {
    let server = Server::unix(&[]);
    let pool = pool(&server.url(""), &patient(), 1);
    let connection = pool.get().await.expect("a connection");
    let first = id(&connection).await;
    assert!(connection.is_usable());
    server.run("CLIENT KILL TYPE normal SKIPME yes");
    ended(&connection).await;
    drop(connection);
    let connection = pool.get().await.expect("another connection");
    assert_ne!(id(&connection).await, first);
    assert!(connection.is_usable());
}

/// Redis does not report which connection of a pool it closed; the open ones are reused.
#[tokio::test]
async fn a_killed_connection_does_not_affect_the_others() {
    let server = Server::unix(&[]);
    let pool = pool(&server.url(""), &patient(), 2);
    let (killed, other) = (pool.get().await.expect("one"), pool.get().await.expect("another"));
    let (first, second) = (id(&killed).await, id(&other).await);
    server.run(&format!("CLIENT KILL ID {first}"));
    ended(&other).await;
    ended(&killed).await;
    drop((killed, other));
    let again = [pool.get().await.expect("one"), pool.get().await.expect("another")];
    let ids = [id(&again[0]).await, id(&again[1]).await];
    assert!(ids.contains(&second) && !ids.contains(&first), "{ids:?}");
    assert_eq!(pool.sizes(), (2, 0));
}

#[tokio::test]
async fn a_connection_with_an_abandoned_reply_is_closed() {
    let server = Server::unix(&[]);
    let pool = pool(&server.url(""), &patient(), 1);
    let connection = pool.get().await.expect("a connection");
    let first = id(&connection).await;
    assert!(tokio::time::timeout(Duration::from_millis(20), ask(&connection, "BLPOP nothing 0")).await.is_err());
    connection.discard();
    assert_eq!(pool.sizes(), (0, 0));
    assert_ne!(id(&pool.get().await.expect("another connection")).await, first);
    eventually("it is closed", async || !server.run("CLIENT LIST").contains(&format!("id={first} "))).await;
}

#[tokio::test]
async fn a_lost_reply_is_not_reported_as_unsent() {
    let server = Server::unix(&[]);
    let connection = pool(&server.url(""), &patient(), 1).get().await.expect("a connection");
    let own = id(&connection).await;
    let waiting = tokio::spawn(async move { ask(&connection, "BLPOP nothing 0").await });
    let admin = server.admin().await;
    // The command must be blocked before its connection is killed.
    let clients = async || text(ask(&admin, "INFO clients").await.expect("an answer"));
    eventually("it is blocked", async || clients().await.contains("blocked_clients:1")).await;
    ask(&admin, &format!("CLIENT KILL ID {own}")).await.expect("killed");
    let failure = waiting.await.expect("no panic").expect_err("no reply");
    assert!(matches!(failure, Failure::Lost(_)) && !failure.may_be_sent_again(), "{failure}");
}

#[tokio::test]
async fn an_exhausted_pool_times_out_and_passes_on_connect_errors() {
    let server = Server::unix(&[]);
    let settings = RedisSettings { connect_timeout: Time::seconds(2), ..RedisSettings::default() };
    let one = pool(&server.url(""), &settings, 1);
    let _taken = one.get().await.expect("a connection");
    let Err(late) = one.get().await else { panic!("more than there are") };
    assert_eq!(late, Failure::Late);

    let other = pool(&server.url(""), &patient(), 1);
    drop(server);
    let Err(failure) = other.get().await else { panic!("connected to no server") };
    assert_eq!(failure.kind(), "connect", "{failure}");
}
