//! Invalid requests: the error describes the problem, and the service keeps running.

use tonic::Code;
use weir::proto::{
    CheckBatchRequest, CheckRequest, FixedWindow, Gcra, Limit, LimitSpec, ResetRequest, SlidingLog, TokenBucket,
    limit::Algorithm,
};

use crate::{
    http_story::{assert_same_error, written},
    support::{
        Server,
        http::Client,
        requests::{check, gcra, limit, refusal, seconds_long, short, with_limits},
        server::Setup,
    },
};

pub const POLICY: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";

fn key(segments: usize) -> CheckRequest {
    check(&vec!["a"; segments])
}

fn own(limits: Vec<Limit>) -> CheckRequest {
    with_limits(check(&["a", "b"]), limits)
}

fn wait(seconds: i64, nanos: i32) -> CheckRequest {
    CheckRequest { max_wait: Some(prost_types::Duration { seconds, nanos }), ..key(1) }
}

fn factor(factor: f64) -> CheckRequest {
    CheckRequest { factor: Some(factor), ..key(1) }
}

/// Returns invalid requests, each with its invalid field.
pub fn invalid() -> Vec<(CheckRequest, &'static str)> {
    let day = 86_400;
    let one = || gcra(1, 1, 1);
    let period = || Some(seconds_long(1));
    let big = 1 << 32;
    vec![
        (key(0), "key"),
        (key(33), "key"),
        (check(&["a", ""]), "key[1]"),
        (check(&["a".to_owned(), "b".repeat(2_048)]), "key[1]"),
        (CheckRequest { domain: "d".repeat(1_025), ..key(1) }, "domain"),
        (CheckRequest { cost: Some(big + 1), ..key(1) }, "cost"),
        (CheckRequest { cost: Some(-big - 1), ..key(1) }, "cost"),
        (CheckRequest { cost: Some(i64::MIN), ..key(1) }, "cost"),
        (factor(-1.0), "factor"),
        (factor(f64::NAN), "factor"),
        (factor(f64::INFINITY), "factor"),
        (CheckRequest { factor: Some(1e-9), ..own(vec![gcra(15, 30, 60)]) }, "factor"),
        (wait(-1, 0), "max_wait"),
        (wait(0, -1_000), "max_wait"),
        (wait(0, 1), "max_wait"),
        (wait(0, 1_000_000_000), "max_wait"),
        (wait(day, 1_000), "max_wait"),
        (wait(i64::MAX, 0), "max_wait"),
        (own(vec![gcra(1, 0, 1)]), "limit_spec.limits[0].gcra.count"),
        (own(vec![gcra(1, big as u64 + 1, 1)]), "limit_spec.limits[0].gcra.count"),
        (own(vec![one(), gcra(1, 1, 0)]), "limit_spec.limits[1].gcra.period"),
        (own(vec![gcra(1, 1, 32 * day)]), "limit_spec.limits[0].gcra.period"),
        (own(vec![gcra(u64::MAX, 1, 1)]), "limit_spec.limits[0].gcra.burst"),
        (own(vec![gcra(big as u64, 1, 60)]), "limit_spec.limits[0].gcra.burst"),
        (
            own(vec![limit(Algorithm::Gcra(Gcra { burst: 1, count: 1, period: None }))]),
            "limit_spec.limits[0].gcra.period",
        ),
        (
            own(vec![limit(Algorithm::TokenBucket(TokenBucket { capacity: 0, count: 1, period: period() }))]),
            "limit_spec.limits[0].token_bucket.capacity",
        ),
        (
            own(vec![limit(Algorithm::FixedWindow(FixedWindow { count: 0, period: period(), ..Default::default() }))]),
            "limit_spec.limits[0].fixed_window.count",
        ),
        (
            own(vec![limit(Algorithm::SlidingLog(SlidingLog {
                count: 10_001,
                period: period(),
                ..Default::default()
            }))]),
            "limit_spec.limits[0].sliding_log.count",
        ),
        (own(vec![Limit::default()]), "limit_spec.limits[0].algorithm"),
        (own(vec![Limit { depth: 3, ..one() }]), "limit_spec.limits[0].depth"),
        (own(vec![Limit { name: "\n".to_owned(), ..one() }]), "limit_spec.limits[0].name"),
        (own(vec![Limit { name: "n".repeat(257), ..one() }]), "limit_spec.limits[0].name"),
        (
            own(vec![Limit { name: "n".into(), ..one() }, Limit { name: "n".into(), ..gcra(2, 1, 1) }]),
            "limit_spec.limits[1].name",
        ),
        (own(vec![one(); 17]), "limit_spec.limits"),
        (
            CheckRequest { limit_spec: Some(LimitSpec { limits: vec![one()], charge: 7 }), ..key(1) },
            "limit_spec.charge",
        ),
    ]
}

#[tokio::test]
async fn errors_name_the_field_and_values_at_the_bounds_are_valid() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    for (request, field) in invalid() {
        let status = client.check(request.clone()).await.expect_err(field);
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some(field.to_owned())), "{status:?} for {request:?}");
        assert!(!status.message().is_empty());
    }
    let answer = client.check(check(&["user", "alex"])).await.expect("an answer").into_inner();
    assert_eq!(short(&answer), (true, 10, 9));

    for (key, field) in [(vec![], "key"), (vec![String::new()], "key[0]"), (vec!["x".repeat(2_048)], "key[0]")] {
        let status = client.reset(ResetRequest { key, ..Default::default() }).await.expect_err(field);
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some(field.to_owned())));
    }

    let elsewhere = CheckRequest { domain: "nowhere".to_owned(), ..check(&["user", "alex"]) };
    let status = client.check(elsewhere.clone()).await.expect_err("unknown");
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no policy defines the domain `nowhere`"));
    let answer = client.check(with_limits(elsewhere, vec![gcra(2, 1, 60)])).await.expect("an answer").into_inner();
    assert_eq!(short(&answer), (true, 3, 2));

    let widest = CheckRequest { domain: "d".repeat(1_024), ..with_limits(key(32), vec![gcra(1, 1, 1); 1]) };
    let several = (1..=16).map(|depth| Limit { depth, ..gcra(depth.into(), 1, 31 * 86_400) }).collect();
    for request in [
        check(&vec!["s".repeat(1_024); 32]),
        CheckRequest { cost: Some(1 << 32), ..key(1) },
        CheckRequest { cost: Some(-(1 << 32)), ..key(1) },
        wait(86_400, 0),
        wait(0, 1_000),
        factor(0.0),
        widest,
        with_limits(key(16), several),
        with_limits(key(1), Vec::new()),
    ] {
        client.check(request.clone()).await.unwrap_or_else(|status| panic!("{status:?} for {request:?}"));
    }
}

#[tokio::test]
async fn a_batch_answers_invalid_checks_in_place_and_has_at_most_a_thousand() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let (bad, fields): (Vec<_>, Vec<_>) = invalid().into_iter().unzip();
    let good = check(&["user", "alex"]);
    let checks: Vec<_> = bad.into_iter().flat_map(|bad| [good.clone(), bad]).collect();
    let results = client.check_batch(CheckBatchRequest { checks }).await.expect("answers").into_inner().results;
    assert_eq!(results.len(), 2 * fields.len());
    for (index, (pair, field)) in results.chunks(2).zip(&fields).enumerate() {
        let left = 9_u64.saturating_sub(index as u64);
        assert_eq!(short(&pair[0]), (index < 10, 10, left));
        let error = pair[1].error.as_ref().expect("an error in its place");
        assert_eq!((error.code, error.field.as_str()), (Code::InvalidArgument as i32, *field));
        assert_eq!((pair[1].allowed, pair[1].levels.len(), pair[1].binding), (false, 0, None));
    }

    let batch = |count| CheckBatchRequest { checks: vec![check(&["free"]); count] };
    let status = client.check_batch(batch(1_001)).await.expect_err("too many");
    assert_eq!(refusal(&status), (Code::InvalidArgument, Some("checks".to_owned())));
    let results = client.check_batch(batch(1_000)).await.expect("answers").into_inner().results;
    assert_eq!((results.len(), results.iter().all(|answer| answer.allowed)), (1_000, true));
    assert_eq!(client.check_batch(batch(0)).await.expect("an answer").into_inner().results.len(), 0);
}

/// A check from a client that does not validate its messages.
#[derive(Clone, PartialEq, prost::Message)]
struct Careless {
    #[prost(bytes = "vec", repeated, tag = "2")]
    key: Vec<Vec<u8>>,
}

#[tokio::test]
async fn invalid_checks_in_a_stream_do_not_end_it() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let (bad, fields): (Vec<_>, Vec<_>) = invalid().into_iter().unzip();
    let checks: Vec<_> = bad.into_iter().flat_map(|bad| [bad, check(&["user", "alex"])]).collect();
    let mut answers = client.check_stream(futures_util::stream::iter(checks)).await.expect("a stream").into_inner();
    for (index, field) in fields.into_iter().enumerate() {
        let bad = answers.message().await.expect("the stream goes on").expect("an answer");
        assert_eq!(bad.error.expect("an error").field, field);
        let good = answers.message().await.expect("the stream goes on").expect("an answer");
        assert_eq!(short(&good), (index < 10, 10, 9_u64.saturating_sub(index as u64)));
    }
    assert!(answers.message().await.expect("a clean end").is_none());

    // Checks that cannot be decoded are answered in their place too.
    let mut client = tonic::client::Grpc::new(server.channel().await);
    let good = Careless { key: vec![b"user".to_vec(), b"berta".to_vec()] };
    let not_utf8 = Careless { key: vec![b"user".to_vec(), vec![0xff]] };
    let endless = Careless { key: vec![b"a".to_vec(); 100_000] };
    let checks = futures_util::stream::iter([good.clone(), not_utf8, good.clone(), endless, good]);
    client.ready().await.expect("a connection");
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/weir.v1.RateLimiter/CheckStream");
    let codec = tonic_prost::ProstCodec::<Careless, weir::proto::CheckResponse>::default();
    let mut answers = client.streaming(tonic::Request::new(checks), path, codec).await.expect("a stream").into_inner();
    for expected in [Some((true, 10, 9)), None, Some((true, 10, 8)), None, Some((true, 10, 7))] {
        let answer = answers.message().await.expect("the stream goes on").expect("an answer");
        match expected {
            Some(expected) => assert_eq!(short(&answer), expected),
            None => assert!(answer.error.expect("an error").message.starts_with("the message is malformed")),
        }
    }
    assert!(answers.message().await.expect("a clean end").is_none());
}

#[tokio::test]
async fn a_policy_can_deny_limits_in_requests() {
    let server = Server::with_policy(&format!("limit_spec: deny\n{POLICY}"));
    let mut client = server.client().await;
    let denied = own(vec![gcra(2, 1, 60)]);
    let status = client.check(denied.clone()).await.expect_err("forbidden");
    assert_eq!(status.code(), Code::PermissionDenied);
    let body = written(&denied).expect("JSON");
    let answer = Client::connect(&server.http).expect("a connection").post("/v1/check", &body);
    assert_same_error(&status, &answer, "a limit of the request");
    let other = CheckRequest { domain: "other".to_owned(), ..own(vec![gcra(2, 1, 60)]) };
    assert!(client.check(other).await.expect("only that domain forbids").into_inner().allowed);
}

/// The setting applies to all domains, except those whose policy overrides it.
#[tokio::test]
async fn limits_in_requests_can_be_denied_for_all_domains() {
    let limits = || vec![gcra(2, 1, 60)];
    let deny = || Setup::new().env("WEIR_LIMIT_SPEC", "deny");
    let of = |domain: &str| CheckRequest { domain: domain.to_owned(), ..own(limits()) };
    let with_policies = deny().policy(POLICY).start();
    let (without, allowed) = (deny().start(), deny().policy(&format!("limit_spec: allow\n{POLICY}")).start());
    for (server, domain, passes) in [
        (&with_policies, "", false),
        (&with_policies, "other", false),
        (&without, "", false),
        (&without, "other", false),
        (&allowed, "", true),
        (&allowed, "other", false),
    ] {
        let answer = server.client().await.check(of(domain)).await;
        match answer {
            Ok(answer) => assert!(passes && answer.into_inner().allowed, "`{domain}`"),
            Err(status) => {
                assert_eq!((passes, status.code()), (false, Code::PermissionDenied), "`{domain}`: {status}");
                let name = if domain.is_empty() { "default domain" } else { "domain `other`" };
                let expected = format!("limit_spec is denied in the {name}: the limits of the policy apply");
                assert_eq!(status.message(), expected);
            }
        }
    }
}
