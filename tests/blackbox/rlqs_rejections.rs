//! Reports of Envoys that have no effect: each is counted and logged, and those behind it are answered.

use std::time::Duration;

use tonic::Code;

use crate::{
    rlqs::{POLICY, open, runtime, setup},
    support::{
        Server, eventually_async,
        quotas::{Assignment, QuotaStream, bucket},
    },
};

/// Returns the number of reports without effect for this reason.
fn rejected(server: &Server, reason: &str) -> f64 {
    server.metric(&format!("weir_rlqs_rejected_total{{reason=\"{reason}\"}}"))
}

#[test]
fn the_service_is_off_until_a_domain_is_named() {
    runtime().block_on(async {
        let server = Server::with_policy(POLICY);
        for _ in 0..2 {
            let refused = QuotaStream::open(server.channel().await, "api").await.err().expect("refused");
            assert_eq!(refused.code(), Code::Unimplemented);
        }
        assert_eq!(rejected(&server, "domain"), 2.0);
        let line = "an Envoy gets no quotas: rlqs.domains is empty";
        server.wait_for_log(line);
        assert_eq!(server.log_lines(line).len(), 1, "one a minute");

        let server = setup().start();
        let long = "shop\n".repeat(100);
        for (domain, code) in [(&*long, Code::NotFound), ("shop", Code::NotFound), ("", Code::InvalidArgument)] {
            let mut stream = QuotaStream::open(server.channel().await, domain).await.expect("a stream");
            stream.report(bucket("alex"), 1, 0, 0).await;
            let end = stream.hear(Duration::from_secs(60)).await.expect_err("ended");
            assert_eq!(end.code(), code, "{domain:?}");
        }
        assert_eq!(rejected(&server, "domain"), 2.0);
        let line = "an Envoy gets no quotas: its domain is not in rlqs.domains";
        server.wait_for_log(line);
        let lines = server.log_lines(line);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let name = line["domain"].as_str().expect("a name");
        assert!(name.starts_with(r"shop\nshop\n") && name.len() < 80, "{line}");
        assert!(line["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{line}");
    });
}

#[test]
fn reports_that_have_no_room_do_not_hold_up_those_behind_them() {
    runtime().block_on(async {
        let server = setup().env("WEIR_RLQS__MAX_BUCKETS", "1").start();
        let (mut first, mut second) = (open(&server).await, open(&server).await);
        first.report(bucket("one"), 1, 0, 0).await;
        first.until("one", |assignment| assignment.rate() > 0.0).await;
        let long = "long".repeat(1_100);
        for user in ["other", &long] {
            second.report(bucket(user), 1, 0, 0).await;
        }
        second.report(bucket("one"), 1, 0, 0).await;
        second.until("one", |assignment| assignment.rate() > 0.0).await;
        assert_eq!((second.assignments.get("other"), second.assignments[&long]), (None, (Assignment::DenyAll, 15)));
        for reason in ["full", "large"] {
            assert_eq!(rejected(&server, reason), 1.0, "{reason}");
        }
        for user in ["other", &long] {
            second.report(bucket(user), 0, 0, 5).await;
        }
        second.until(&long, |assignment| assignment == Assignment::Abandon).await;
        assert_eq!(second.assignments.get("other"), None);
        assert_eq!(server.metric("weir_rlqs_buckets"), 1.0);
        let line = server.wait_for_log("buckets are denied: their ids have more than 64 entries or 4 KiB");
        assert_eq!(line["domain"], "api");
    });
}

#[test]
fn the_values_that_clients_send_end_no_stream() {
    runtime().block_on(async {
        let server = setup().start();
        let mut stream = open(&server).await;
        // One message of more than grpc.max_message_bytes, whose reports are large, too large, and usual.
        let long: Vec<_> = (0..30).map(|number| format!("{number:050000}")).collect();
        let users = long.iter().cloned().chain(["x".repeat(100_000), "alex".to_owned()]);
        stream.report_all(users.map(|user| bucket(&user)), 1, 0, 0).await;
        stream.until("alex", |assignment| assignment.rate() > 0.0).await;
        for user in &long {
            assert_eq!(stream.until(user, |_| true).await.0, Assignment::DenyAll);
        }
        assert_eq!(rejected(&server, "large"), 31.0);
        // Many usual ones.
        let many: Vec<_> = (0..40_000).map(|number| format!("user {number:020}")).collect();
        stream.report_all(many.iter().map(|user| bucket(user)), 1, 0, 0).await;
        eventually_async("they are kept", async || {
            stream.listen(Duration::from_millis(50)).await;
            (server.metric("weir_rlqs_buckets") == 40_001.0).then_some(())
        })
        .await;
    });
}
