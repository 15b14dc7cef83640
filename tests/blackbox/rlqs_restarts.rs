//! Envoy's quotas while services start and end: no units are used twice, and assignments elsewhere stay.

use std::time::Duration;

use rustix::process::Signal;
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::{
    rlqs::{open, runtime, setup},
    support::{
        Folder, Server, in_time,
        quotas::{QuotaStream, bucket},
        server::Setup,
    },
};

#[test]
fn a_stream_that_is_ended_keeps_its_share_until_it_has_found_another_replica() {
    runtime().block_on(async {
        let mut server = setup().start();
        let mut stream = open(&server).await;
        stream.report(bucket("alex"), 1, 0, 0).await;
        let (assignment, _) = stream.until("alex", |assignment| assignment.rate() >= 1_000.0).await;
        server.signal(Signal::TERM);
        let end = loop {
            match stream.hear(Duration::from_secs(60)).await {
                Ok(_) => {}
                Err(end) => break end,
            }
        };
        assert_eq!((end.code(), stream.assignments["alex"]), (Code::Unavailable, (assignment, 7)));
        assert_eq!(tokio::task::spawn_blocking(move || server.wait_for_end()).await.expect("its end"), 0);
    });
}

#[test]
fn a_stream_does_not_end_at_the_age_of_its_connection() {
    runtime().block_on(async {
        let age = setup().env("WEIR_GRPC__MAX_CONNECTION_AGE", "1s");
        let server = age.env("WEIR_GRPC__MAX_CONNECTION_AGE_GRACE", "0s").start();
        let mut stream = open(&server).await;
        stream.report(bucket("alex"), 1, 0, 0).await;
        stream.until("alex", |assignment| assignment.rate() >= 1_000.0).await;
        // One age may be a fifth longer than another.
        for _ in 0..2 {
            let watched = HealthClient::new(server.channel().await).watch(HealthCheckRequest::default()).await;
            let mut watched = watched.expect("a stream").into_inner();
            in_time("the end of the watch", async { while let Ok(Some(_)) = watched.message().await {} }).await;
        }
        stream.report(bucket("slow"), 1, 0, 0).await;
        stream.until("slow", |assignment| assignment.rate() > 0.0).await;
        assert_eq!(stream.assignments["alex"].1, 15, "it has no final assignment");
    });
}

/// Restarts a service whose Envoy may still use its assignment. Returns it with a stream that has reported.
async fn restarted(dir: &Folder) -> (Server, QuotaStream) {
    let mut server = setup().snapshot(dir.path("snapshot")).start();
    let mut stream = open(&server).await;
    stream.report(bucket("alex"), 1, 0, 0).await;
    stream.until("alex", |assignment| assignment.rate() >= 1_000.0).await;
    server.signal(Signal::TERM);
    while stream.hear(Duration::from_secs(60)).await.is_ok() {}
    tokio::task::spawn_blocking(move || server.wait_for_end()).await.expect("its end");
    let server = setup().snapshot(dir.path("snapshot")).start();
    let mut newcomer = open(&server).await;
    newcomer.report(bucket("alex"), 1, 0, 0).await;
    (server, newcomer)
}

#[test]
fn a_restarted_service_divides_nothing_that_may_still_be_in_use() {
    runtime().block_on(async {
        let dir = Folder::new();
        let (_server, mut newcomer) = restarted(&dir).await;
        newcomer.listen(Duration::from_secs(3)).await;
        assert!(newcomer.assignments.is_empty(), "{:?}", newcomer.assignments);
        newcomer.until("alex", |assignment| assignment.rate() >= 1_000.0).await;
    });
}

/// The Envoy may use another replica's assignment.
#[test]
fn a_bucket_that_was_not_answered_yet_is_not_denied_at_the_end() {
    runtime().block_on(async {
        let dir = Folder::new();
        let (server, mut newcomer) = restarted(&dir).await;
        in_time("the bucket", async {
            while server.metric("weir_rlqs_buckets") < 1.0 {
                newcomer.listen(Duration::from_millis(50)).await;
            }
        })
        .await;
        server.signal(Signal::TERM);
        while newcomer.hear(Duration::from_secs(60)).await.is_ok() {}
        assert!(newcomer.assignments.is_empty(), "{:?}", newcomer.assignments);
    });
}

#[test]
fn without_a_policy_nothing_is_assigned() {
    runtime().block_on(async {
        // Nothing listens on this port.
        let setup = Setup::new().limits("xds://127.0.0.1:1".into()).env("WEIR_XDS__START", "ready");
        let server = setup.env("WEIR_RLQS__DOMAINS", "api=user").start();
        let mut stream = open(&server).await;
        stream.report(bucket("alex"), 1, 0, 0).await;
        stream.listen(Duration::from_secs(1)).await;
        assert!(stream.assignments.is_empty(), "{:?}", stream.assignments);
    });
}
