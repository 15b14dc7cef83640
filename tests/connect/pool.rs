//! Connections taken from a pool and given back.

use std::time::{Duration, Instant};

use weir::store::{
    Failure,
    redis::{
        connection::{Connection, Reply},
        manager::{Manager, Pool, Target},
    },
};

use crate::server::{PATIENCE, Server, ask, dialer, patient};

fn pool_of(server: &Server, size: usize, wait: Duration) -> Pool {
    let (dialer, address) = dialer(&server.url(""), &patient());
    Pool::new(Manager::new(Target::Fixed(address), dialer), size, wait)
}

async fn id(connection: &mut Connection) -> i64 {
    match ask(connection, "CLIENT ID").await {
        Ok(Reply::Integer(id)) => id,
        other => panic!("{other:?}"),
    }
}

/// Waits until the connection has noticed its end.
async fn ended(connection: &mut Connection) {
    let begun = Instant::now();
    while connection.is_usable() {
        assert!(begun.elapsed() < PATIENCE, "the end is never noticed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn taking_a_connection_sends_nothing() {
    let server = Server::unix(&[]);
    let pool = pool_of(&server, 1, PATIENCE);
    let first = id(&mut pool.get().await.expect("a connection")).await;
    for _ in 0..10 {
        drop(pool.get().await.expect("a connection"));
    }
    assert_eq!(id(&mut pool.get().await.expect("a connection")).await, first);
    let Reply::BulkString(stats) = server.run("INFO commandstats").await else { panic!("no statistics") };
    let stats = String::from_utf8(stats).expect("a text");
    let commands = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
    let mut commands: Vec<_> = commands.map(|(name, _)| name).collect();
    commands.sort_unstable();
    assert_eq!(commands, ["client|id", "hello", "script|load"]);
}

#[tokio::test]
async fn a_killed_connection_is_noticed_before_anything_is_sent() {
    let server = Server::unix(&[]);
    let pool = pool_of(&server, 1, PATIENCE);
    let mut connection = pool.get().await.expect("a connection");
    let first = id(&mut connection).await;
    assert!(connection.is_usable());
    server.run("CLIENT KILL TYPE normal").await;
    ended(&mut connection).await;
    drop(connection);
    let mut connection = pool.get().await.expect("another connection");
    assert_ne!(id(&mut connection).await, first);
}

#[tokio::test]
async fn a_connection_on_which_a_reply_was_given_up_is_not_used_again() {
    let server = Server::unix(&[]);
    let pool = pool_of(&server, 1, PATIENCE);
    let mut connection = pool.get().await.expect("a connection");
    let first = id(&mut connection).await;
    let blocked = ask(&mut connection, "BLPOP nothing 0");
    assert!(tokio::time::timeout(Duration::from_millis(20), blocked).await.is_err());
    assert!(!connection.is_usable());
    drop(connection);
    assert_ne!(id(&mut pool.get().await.expect("another connection")).await, first);
}

#[tokio::test]
async fn a_lost_reply_is_not_called_unsent() {
    let server = Server::unix(&[]);
    let pool = pool_of(&server, 1, PATIENCE);
    let mut connection = pool.get().await.expect("a connection");
    let own = id(&mut connection).await;
    let waiting = tokio::spawn(async move { ask(&mut connection, "BLPOP nothing 0").await });
    let begun = Instant::now();
    let mut admin = server.admin().await;
    // It can be killed while it waits only once it does.
    while ask(&mut admin, &format!("CLIENT UNBLOCK {own} TIMEOUT")).await != Ok(Reply::Integer(1)) {
        assert!(begun.elapsed() < PATIENCE, "never blocked");
    }
    assert_eq!(waiting.await.expect("no panic"), Ok(Reply::Null));

    let mut connection = pool.get().await.expect("a connection");
    let own = id(&mut connection).await;
    let waiting = tokio::spawn(async move { ask(&mut connection, "BLPOP nothing 0").await });
    let blocked = "blocked_clients:1";
    while !matches!(ask(&mut admin, "INFO clients").await, Ok(Reply::BulkString(info)) if String::from_utf8_lossy(&info).contains(blocked))
    {
        assert!(begun.elapsed() < PATIENCE, "never blocked");
    }
    ask(&mut admin, &format!("CLIENT KILL ID {own}")).await.expect("killed");
    let failure = waiting.await.expect("no panic").expect_err("no reply");
    assert!(matches!(failure, Failure::Lost(_)) && !failure.may_be_sent_again(), "{failure}");
}

#[tokio::test]
async fn a_pool_has_an_end_and_a_failure_is_the_dialers() {
    let server = Server::unix(&[]);
    let one = pool_of(&server, 1, Duration::from_millis(1));
    let _taken = one.get().await.expect("a connection");
    let Err(late) = one.get().await else { panic!("more than there are") };
    assert_eq!(late, Failure::Late);

    let other = pool_of(&server, 1, PATIENCE);
    drop(server);
    let Err(failure) = other.get().await else { panic!("connected to nobody") };
    assert_eq!(failure.kind(), "connect", "{failure}");
}
