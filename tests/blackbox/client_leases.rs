//! The `Lease` call: terms, grants, checks without a lease, and ownership of leases.

use std::time::Duration;

use tokio::time::sleep;
use tonic::Code;
use weir::proto::{CheckRequest, LeaseGrant, LeaseRequest, LeaseResponse, r#override::Change};

use crate::{
    support::{
        Server,
        overrides::{end, over, set},
        requests::{check, peek},
        server::Setup,
    },
    tokens::{by, caller, token},
};

const POLICY: &str = "lease: { ttl: 1m }\nschema: { user: { children: { '*': { limits: [ \
                      { fixed_window: { count: 1000, period: 31d } } ] } } }, \
                      plain: { limits: [ { fixed_window: { count: 10, period: 31d }, lease: false } ] }, \
                      queue: { limits: [ { leaky_queue: { count: 10, period: 1s } } ] } }";
const OF_ALEX: LeaseRequest =
    LeaseRequest { check: None, holder: Vec::new(), lease: 1, sequence: 1, spent: 0, kept: 0, want: 0, generation: 0 };

fn alex(request: LeaseRequest) -> LeaseRequest {
    let check = CheckRequest { cost: Some(0), ..check(&["user", "alex"]) };
    LeaseRequest { check: Some(check), holder: vec![7; 16], ..request }
}

async fn ask(server: &Server, token: Option<&str>, requests: Vec<LeaseRequest>) -> Vec<LeaseResponse> {
    let count = requests.len();
    let stream = server.client().await.lease(by(token, futures_util::stream::iter(requests))).await;
    let (mut stream, mut answers) = (stream.expect("a stream").into_inner(), Vec::new());
    while let Some(answer) = stream.message().await.expect("an answer") {
        answers.push(answer);
    }
    assert_eq!(answers.len(), count);
    answers
}

async fn generation(server: &Server, token: Option<&str>) -> u64 {
    let answer = ask(server, token, vec![alex(OF_ALEX)]).await.remove(0);
    answer.terms.expect("terms").generation
}

fn grant(answer: &LeaseResponse) -> &LeaseGrant {
    answer.grant.as_ref().unwrap_or_else(|| panic!("{answer:?}"))
}

#[tokio::test]
async fn a_client_gets_terms_and_is_granted_units() {
    let server = Server::with_policy(POLICY);
    let answers =
        ask(&server, None, vec![alex(OF_ALEX), alex(LeaseRequest { sequence: 2, want: 50, ..OF_ALEX })]).await;
    let terms = answers[0].terms.as_ref().expect("terms");
    assert_eq!(terms.ttl.map(|ttl| (ttl.seconds, ttl.nanos)), Some((60, 0)));
    assert_eq!(grant(&answers[0]).units, 0, "it wanted none");
    assert!(answers[1].grant.is_none(), "not under another generation: {:?}", answers[1]);
    let generation = terms.generation;
    let renewal = alex(LeaseRequest { sequence: 3, want: 50, generation, ..OF_ALEX });
    let spends = LeaseRequest { sequence: 4, spent: 20, kept: 10, generation, ..OF_ALEX };
    let checks = LeaseRequest { check: Some(check(&["user", "alex"])), ..alex(spends.clone()) };
    let answers = ask(&server, None, vec![renewal.clone(), renewal, checks.clone(), alex(spends)]).await;
    assert_eq!(grant(&answers[0]).units, 50);
    assert_eq!(grant(&answers[1]).units, 50, "asked again, and granted once");
    let decision = answers[2].decision.as_ref().expect("a decision");
    assert!(decision.allowed && grant(&answers[2]).is_kept, "{:?}", answers[2]);
    assert_eq!(decision.remaining, 1_000 - 20 - 10 - 1);
    assert_eq!(
        answers[3].decision.as_ref().map(|decision| decision.remaining),
        Some(969),
        "a repeated one settles nothing"
    );
    let repeated = ask(&server, None, vec![checks]).await.remove(0).decision.map(|decision| decision.remaining);
    assert_eq!(repeated, Some(968), "the check of a repeated request is charged again, what it settles is not");
    let foreign = LeaseRequest { holder: vec![8; 16], ..alex(LeaseRequest { sequence: 9, generation, ..OF_ALEX }) };
    let kept = alex(LeaseRequest { sequence: 5, spent: 20, kept: 10, generation, ..OF_ALEX });
    let answers = ask(&server, None, vec![foreign, kept]).await;
    assert!(grant(&answers[1]).is_kept, "another holder gave it back");
    let back = ask(&server, None, vec![alex(LeaseRequest { sequence: 6, spent: 25, ..OF_ALEX })]).await.remove(0);
    assert_eq!(back.decision.map(|decision| decision.remaining), Some(1_000 - 25 - 2), "under any generation");
    let ended = alex(LeaseRequest { lease: 2, spent: 3, kept: 7, generation, ..OF_ALEX });
    assert!(!grant(&ask(&server, None, vec![ended]).await[0]).is_kept, "of a lease that is not there");
    let of = |kind| server.metric(&format!("weir_client_leases_{kind}_units_total{{domain=\"default\"}}"));
    assert_eq!(["granted", "spent", "returned", "burnt"].map(of), [50.0, 25.0, 25.0, 7.0]);
    let series = "weir_client_leases_renewals_total{domain=\"default\",result=\"changed\"}";
    assert_eq!(server.metric(series), 1.0);
    let checks = "weir_checks_total{domain=\"default\",transport=\"grpc_lease\",outcome=\"allowed\"}";
    assert_eq!(server.metric(checks), 2.0, "renewals alone do not count as checks");
}

#[tokio::test]
async fn invalid_and_unleasable_requests_do_not_end_the_stream() {
    let server = Server::with_policy(POLICY);
    let with = |change: fn(&mut CheckRequest)| {
        let mut request = alex(OF_ALEX);
        request.check.iter_mut().for_each(change);
        request
    };
    for (request, field) in [
        (LeaseRequest { holder: vec![1; 15], ..alex(OF_ALEX) }, "holder"),
        (alex(LeaseRequest { sequence: 0, ..OF_ALEX }), "sequence"),
        (alex(LeaseRequest { spent: 1 << 54, ..OF_ALEX }), "spent"),
        (alex(LeaseRequest { kept: 1 << 33, ..OF_ALEX }), "kept"),
        (alex(LeaseRequest { want: 1 << 33, ..OF_ALEX }), "want"),
        (with(|check| check.dry_run = true), "check.dry_run"),
        (with(|check| check.cost = Some(-1)), "check.cost"),
        (with(|check| check.factor = Some(2.0)), "check.factor"),
        (with(|check| check.request_id = "one".to_owned()), "check.request_id"),
        (with(|check| check.limit_spec = Some(Default::default())), "check.limit_spec"),
        (with(|check| check.key.clear()), "check.key"),
    ] {
        let answers = ask(&server, None, vec![request, alex(OF_ALEX)]).await;
        let error = answers[0].decision.as_ref().and_then(|decision| decision.error.as_ref());
        let error = error.unwrap_or_else(|| panic!("{field}: {answers:?}"));
        assert_eq!((error.code, &*error.field), (Code::InvalidArgument as i32, field), "{error:?}");
        assert!(answers[1].terms.is_some());
    }
    let unknown =
        LeaseRequest { check: Some(CheckRequest { domain: "nowhere".to_owned(), ..check(&["a"]) }), ..alex(OF_ALEX) };
    let answer = ask(&server, None, vec![unknown]).await.remove(0);
    assert_eq!(
        answer.decision.and_then(|decision| decision.error).map(|error| error.code),
        Some(Code::NotFound as i32)
    );

    // A check that cannot be leased is decided, and the answer gives the reason.
    for key in ["plain", "queue", "unlimited"] {
        let request = |cost| LeaseRequest {
            check: Some(CheckRequest { cost, ..check(&[key]) }),
            ..alex(LeaseRequest { want: 5, ..OF_ALEX })
        };
        let answers = ask(&server, None, vec![request(None), request(Some(0))]).await;
        assert!(answers.iter().all(|answer| !answer.not_leasable.is_empty() && answer.terms.is_none()), "{answers:?}");
        assert!(answers[0].decision.as_ref().is_some_and(|decision| decision.allowed), "{answers:?}");
        assert!(answers[1].decision.is_none() && answers[1].grant.is_none(), "{answers:?}");
    }
}

#[tokio::test]
async fn a_lease_is_its_clients_own() {
    let [shop, other, resets] = [token(), token(), token()];
    let callers = [("shop", "check", &shop), ("other", "check", &other), ("resets", "reset", &resets)];
    let callers: String = callers.map(|(name, role, token)| caller(name, role, token, "")).concat();
    let server = Setup::new().policy(POLICY).credentials(&format!("callers:\n{callers}")).start();
    for (token, code) in [(None, Code::Unauthenticated), (Some(&*resets.token), Code::PermissionDenied)] {
        let refused = server.client().await.lease(by(token, futures_util::stream::iter([alex(OF_ALEX)]))).await;
        assert_eq!(refused.err().map(|status| status.code()), Some(code));
    }
    let (shop, other) = (Some(&*shop.token), Some(&*other.token));
    let generation = generation(&server, shop).await;
    let renewal = alex(LeaseRequest { sequence: 2, want: 50, generation, ..OF_ALEX });
    assert_eq!(grant(&ask(&server, shop, vec![renewal]).await[0]).units, 50);
    // Another client uses the same holder and lease number.
    ask(&server, other, vec![alex(LeaseRequest { sequence: 9, generation, ..OF_ALEX })]).await;
    let kept = alex(LeaseRequest { sequence: 3, kept: 50, generation, ..OF_ALEX });
    assert!(grant(&ask(&server, shop, vec![kept]).await[0]).is_kept);
}

#[tokio::test]
async fn a_lease_is_given_back_of_a_key_that_cannot_be_leased_any_more() {
    let server = Server::with_policy(POLICY);
    let (mut spent, mut returned) = (0.0, 0.0);
    for (lease, is_ban) in [(1, true), (2, false)] {
        let held = LeaseRequest { lease, generation: generation(&server, None).await, ..OF_ALEX };
        let begins = alex(LeaseRequest { want: 50, ..held.clone() });
        assert_eq!(grant(&ask(&server, None, vec![begins]).await[0]).units, 50);
        if is_ban {
            set(&server, over(&["user", "alex"], Change::Ban(true))).await;
        } else {
            server.replace_policy(&POLICY.replacen("lease: { ttl: 1m }", "lease: false", 1));
        }
        let renews = alex(LeaseRequest { sequence: 2, spent: 20, kept: 30, ..held.clone() });
        let gives_back = LeaseRequest { kept: 0, sequence: 3, ..renews.clone() };
        for _ in 0..100 {
            let answer = ask(&server, None, vec![renews.clone()]).await.remove(0);
            let why = if is_ban { "the key is banned" } else { "the policy does not lease" };
            if answer.not_leasable.starts_with(why) {
                assert!(answer.grant.is_none(), "{answer:?}");
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let answer = ask(&server, None, vec![gives_back]).await.remove(0);
        assert!(!answer.not_leasable.is_empty() && answer.grant.is_some(), "{answer:?}");
        end(&server, &["user", "alex"]).await;
        (spent, returned) = (spent + 20.0, returned + 30.0);
        let of = |kind| server.metric(&format!("weir_client_leases_{kind}_units_total{{domain=\"default\"}}"));
        assert_eq!(["spent", "returned", "burnt"].map(of), [spent, returned, 0.0]);
        assert_eq!(server.check(peek(&["user", "alex"])).await.remaining, 1_000 - spent as u64);
    }
}
