//! Envoy's quotas on a shared store: the Envoys of all replicas together never get more than the limit. The tests of
//! `transport::rlqs` cover, in virtual time, the time until assignments expire.

use std::time::{Duration, Instant};

use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    service::{patient, runtime},
    support::{
        Server, TIMEOUT,
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

/// Reports both demands twice a second until `is_so` holds for the two rates. Their sum never exceeds the limit.
async fn until(streams: &mut [QuotaStream; 2], demands: [u64; 2], is_so: impl Fn(f64, f64) -> bool) {
    let since = Instant::now();
    loop {
        for (stream, demand) in streams.iter_mut().zip(demands) {
            stream.report(bucket("alex"), demand / 2, 0, 1).await;
        }
        // A smaller share is sent half a second before a larger one.
        for _ in 0..2 {
            let [one, other] = &mut *streams;
            let quarter = Duration::from_millis(250);
            tokio::join!(one.listen(quarter), other.listen(quarter));
        }
        let [one, other] = streams.each_ref().map(|stream| stream.rate("alex"));
        assert!(one + other <= 1_000.0, "{one} and {other}");
        if is_so(one, other) {
            return;
        }
        assert!(since.elapsed() < TIMEOUT, "{one} and {other} of demands {demands:?}");
    }
}

/// Starts two replicas on the store at this URL, whose Envoys' demands shift.
async fn divided_by_demand(url: &str) -> ([Server; 2], [QuotaStream; 2]) {
    let replicas = [replica(url), replica(url)];
    let mut streams = [open(&replicas[0]).await, open(&replicas[1]).await];
    until(&mut streams, [5_000, 5_000], |one, other| one >= 450.0 && other >= 450.0).await;
    until(&mut streams, [900, 50], |one, other| one >= 850.0 && other >= 40.0).await;
    (replicas, streams)
}

#[test]
fn replicas_over_a_cluster_divide_a_limit_by_demand() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(async {
        let (_replicas, mut streams) = divided_by_demand(&cluster.url()).await;
        until(&mut streams, [50, 900], |one, other| one >= 40.0 && other >= 850.0).await;
    });
}

#[test]
fn replicas_over_a_redis_divide_a_limit_by_demand_also_when_it_was_away() {
    let mut redis = Redis::start(Options::port());
    runtime().block_on(async {
        let (_replicas, mut streams) = divided_by_demand(&redis.url()).await;
        redis.kill();
        let away = Instant::now();
        while away.elapsed() < Duration::from_secs(2) {
            until(&mut streams, [900, 50], |one, other| one >= 850.0 && other >= 40.0).await;
        }
        // The store restarts empty.
        redis.restart();
        until(&mut streams, [50, 900], |one, other| one >= 40.0 && other >= 850.0).await;
    });
}
