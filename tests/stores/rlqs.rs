//! Envoy's quotas over a shared store: what all replicas' Envoys may use together is never more than the limit.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    service::{patient, runtime},
    support::{
        PATIENCE, Server,
        quotas::{QuotaStream, bucket},
    },
};

const POLICY: &str = "
domain: api
schema:
  user:
    limits: [{ token_bucket: { capacity: 1500, count: 1500, period: 1s } }]
    children: { alex: { limits: [{ token_bucket: { capacity: 1000, count: 1000, period: 1s } }] } }
";

fn replica(url: &str) -> Server {
    let setup = patient(url).policy(POLICY).env("WEIR_RLQS__DOMAINS", "api=user");
    setup.env("WEIR_RLQS__ASSIGNMENT_TTL", "10s").start()
}

async fn open(server: &Server) -> QuotaStream {
    let mut stream = QuotaStream::open(server.channel().await, "api").await.expect("a stream");
    stream.report(bucket("alex"), 1, 0, 0).await;
    stream
}

/// Reports both demands once a second until this is so of the two rates; they are never more than the limit together.
async fn until(streams: &mut [QuotaStream; 2], demands: [u64; 2], is_so: impl Fn(f64, f64) -> bool) {
    let since = Instant::now();
    loop {
        for (stream, demand) in streams.iter_mut().zip(demands) {
            stream.report(bucket("alex"), demand, 0, 1).await;
        }
        // What shrinks was told half a second before what grows.
        for _ in 0..2 {
            for stream in &mut *streams {
                stream.listen(Duration::from_millis(250)).await;
            }
        }
        let [one, other] = streams.each_ref().map(|stream| stream.rate("alex"));
        assert!(one + other <= 1_000.0, "{one} and {other}");
        if is_so(one, other) {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{one} and {other} of demands {demands:?}");
    }
}

fn divided_by_demand(url: &str) {
    runtime().block_on(async {
        let replicas = [replica(url), replica(url)];
        let mut streams = [open(&replicas[0]).await, open(&replicas[1]).await];
        until(&mut streams, [5_000, 5_000], |one, other| one >= 450.0 && other >= 450.0).await;
        until(&mut streams, [900, 50], |one, other| one >= 850.0 && other >= 40.0).await;
        until(&mut streams, [50, 900], |one, other| one >= 40.0 && other >= 850.0).await;

        // What a killed replica's Envoys may still use is nobody else's.
        let [one, other] = replicas;
        other.signal(Signal::KILL);
        let killed = Instant::now();
        let [mut stream, gone] = streams;
        while killed.elapsed() < Duration::from_secs(8) {
            stream.report(bucket("alex"), 100, 900, 1).await;
            stream.listen(Duration::from_secs(1)).await;
            assert!(stream.rate("alex") + gone.rate("alex") <= 1_000.0, "{:?} {:?}", stream.told, gone.told);
        }
        while stream.rate("alex") < 990.0 {
            assert!(killed.elapsed() < PATIENCE, "{:?}", stream.told);
            stream.report(bucket("alex"), 100, 900, 1).await;
            stream.listen(Duration::from_secs(1)).await;
        }
        drop(one);
    });
}

#[test]
fn replicas_over_a_redis_divide_a_limit_by_demand() {
    divided_by_demand(&Redis::start(Options::socket()).url());
}

#[test]
fn replicas_over_a_cluster_divide_a_limit_by_demand() {
    divided_by_demand(&Cluster::start(&ClusterOptions::default()).url());
}

#[test]
fn shares_stay_while_the_store_is_away() {
    let mut redis = Redis::start(Options::port());
    let replicas = [replica(&redis.url()), replica(&redis.url())];
    runtime().block_on(async {
        let mut streams = [open(&replicas[0]).await, open(&replicas[1]).await];
        until(&mut streams, [900, 50], |one, other| one >= 850.0 && other >= 40.0).await;
        redis.kill();
        let away = Instant::now();
        // Longer than anything is held.
        while away.elapsed() < Duration::from_secs(20) {
            until(&mut streams, [900, 50], |one, other| one >= 850.0 && other >= 40.0).await;
        }
        // It comes back empty.
        redis.restart();
        let back = Instant::now();
        while back.elapsed() < Duration::from_secs(6) {
            until(&mut streams, [900, 50], |one, _| one >= 400.0).await;
        }
        until(&mut streams, [50, 900], |one, other| one >= 40.0 && other >= 850.0).await;
    });
}
