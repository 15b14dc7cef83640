//! Discovery of the current master through Sentinels.

use weir_settings::Time;
use weir_store::{
    Failure,
    failure::ErrorCode,
    redis::settings::{RedisSettings, SentinelSettings},
};

use deadpool_redis::redis::Value;

use crate::server::{Server, ask, free_port, patient, pool, refused, text};

/// Returns the port of the master that Sentinels name.
async fn through(url: &str, settings: &RedisSettings) -> Result<u16, Failure> {
    let connection = pool(url, settings, 1).get().await?;
    match ask(&connection, "CONFIG GET port").await {
        Ok(Value::Map(mut pairs)) => Ok(text(pairs.remove(0).1).parse().expect("a port")),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn unusable_sentinels_are_skipped() {
    let (master, other) = (Server::tcp(&[]), Server::tcp(&[]));
    let replica = Server::tcp(&[&format!("replicaof 127.0.0.1 {}", master.port)]);
    let good = Server::sentinel(master.port, &[]);
    // This Sentinel still takes a demoted server for the master.
    let stale = Server::sentinel(replica.port, &[]);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address").port();
    // The master that this Sentinel names does not answer.
    let astray = Server::sentinel(silent, &[]);
    let sentinels = [free_port(), silent, other.port, stale.port, astray.port, good.port];
    let hosts: Vec<_> = sentinels.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let url = format!("redis-sentinel://{}/mymaster", hosts.join(","));
    let settings = RedisSettings { connect_timeout: Time::seconds(5), ..RedisSettings::default() };
    assert_eq!(through(&url, &settings).await, Ok(master.port));
}

#[tokio::test]
async fn unknown_masters_and_wrong_servers_are_reported() {
    let master = Server::tcp(&[]);
    let sentinel = Server::sentinel(master.port, &[]);
    let failed = async |url: String| through(&url, &patient()).await.expect_err("no master");
    let unknown = failed(format!("redis-sentinel://127.0.0.1:{}/another", sentinel.port)).await;
    assert!(unknown.to_string().ends_with("knows no master `another`"), "{unknown}");
    let no_sentinel = failed(format!("redis-sentinel://127.0.0.1:{}/mymaster", master.port)).await;
    assert!(no_sentinel.to_string().contains("is not a Sentinel"), "{no_sentinel}");
    let failure = refused(&format!("redis://127.0.0.1:{}", sentinel.port), &patient()).await.to_string();
    assert!(failure.contains("is a Sentinel; use redis-sentinel://"), "{failure}");
}

/// The error, and so the log line, is always the same, although each attempt starts with another Sentinel.
#[tokio::test]
async fn sentinels_that_are_all_away_have_one_cause() {
    let ports = [free_port(), free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let pool = pool(&format!("redis-sentinel://{}/mymaster", ports.join(",")), &patient(), 1);
    for _ in 0..4 {
        let failure = pool.get().await.err().expect("no Sentinel").to_string();
        assert!(failure.contains(&ports[0]), "{failure}");
    }
}

#[tokio::test]
async fn sentinels_have_their_own_credentials() {
    let master = Server::tcp(&["requirepass servers"]);
    let sentinel = Server::sentinel(
        master.port,
        &[
            "sentinel auth-pass mymaster servers",
            "user default off",
            "user app on >sentinels +sentinel|get-master-addr-by-name",
        ],
    );
    let url = format!("redis-sentinel://:servers@127.0.0.1:{}/mymaster", sentinel.port);
    let own = SentinelSettings {
        username: "app".to_owned(),
        password: "sentinels".to_owned().into(),
        ..SentinelSettings::default()
    };
    assert_eq!(through(&url, &RedisSettings { sentinel: own, ..patient() }).await, Ok(master.port));
    let rejection = through(&url, &patient()).await.expect_err("no right to ask");
    assert_eq!(rejection.error_code(), Some(ErrorCode::NoAuth), "{rejection}");
    let named = format!("the Sentinel 127.0.0.1:{}: NOAUTH", sentinel.port);
    assert!(rejection.to_string().contains(&named), "{rejection}");
}
