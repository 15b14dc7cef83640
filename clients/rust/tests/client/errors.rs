use std::time::Duration;

use tokio::net::TcpListener;
use tonic::Code;
use weir_client::{BreakerSettings, BreakerState, Check, Client, Error, OnFailure, Reserve, duration, proto::Gcra};

use crate::support::{POLICY, Setup, TRADE, Weir, dir, patient, started};

const USER: [&str; 2] = ["user", "berta"];

#[tokio::test]
async fn invalid_requests_name_the_field() {
    let dir = dir();
    let (_service, weir) = started(&dir);
    let error = weir.check(["user", ""]).await.unwrap_err();
    assert!(matches!(error, Error::InvalidRequest { .. }) && error.field() == Some("key[1]"), "{error:?}");
    let limit = Gcra { burst: 1, count: 0, period: duration(Duration::from_secs(1)) };
    let error = weir.check(Check::new(["a"]).limits([limit])).await.unwrap_err();
    assert_eq!(error.field(), Some("limit_spec.limits[0].gcra.count"), "{error:?}");
    let error = weir.check(Check::new(TRADE).domain("unknown")).await.unwrap_err();
    assert!(matches!(error, Error::NotFound(_)) && error.field().is_none(), "{error:?}");
    let error = weir.check(["exports", "acme"]).await.unwrap_err();
    assert!(matches!(&error, Error::FailedPrecondition(message) if message.contains("exports-at-once")), "{error:?}");
    assert!(!error.is_outage());
}

#[tokio::test]
async fn limits_of_the_request_may_be_forbidden() {
    let dir = dir();
    let service = Setup::new(&dir, &format!("limit_spec: deny\n{POLICY}")).start();
    let weir = service.client();
    let limit = Gcra { burst: 1, count: 1, period: duration(Duration::from_secs(1)) };
    let error = weir.check(Check::new(["a"]).limits([limit])).await.unwrap_err();
    assert!(matches!(error, Error::PermissionDenied(_)), "{error:?}");
}

#[tokio::test]
async fn a_service_that_is_not_there_is_unavailable() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let weir = patient(&free.to_string()).retries(0).build().unwrap();
    let error = weir.check(TRADE).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(why) if why.contains(&free.to_string())), "{error:?}");
    assert!(error.is_outage());
}

#[tokio::test]
async fn a_service_that_is_silent_exceeds_the_deadline() {
    let dir = dir();
    let service = Weir::start(&dir);
    let weir = service.client();
    weir.check(TRADE).await.unwrap();
    service.freeze();
    let error = weir.check(Check::new(TRADE).deadline(Duration::from_millis(50))).await.unwrap_err();
    assert_eq!(error.to_string(), "deadline exceeded: no answer within 50ms");
}

#[tokio::test]
async fn a_deadline_may_be_arbitrarily_long() {
    let dir = dir();
    let service = Setup::new(&dir, &format!("lease: true{POLICY}")).start();
    let breaker = BreakerSettings { failures: 1, open_for: Duration::MAX };
    let options = || Client::builder(&service.address).deadline(Duration::MAX).breaker(breaker);
    for options in [options(), options().coalesce(true), options().lease(true)] {
        let weir = options.build().unwrap();
        for _ in 0..20 {
            weir.check(Check::new(USER).deadline(Duration::MAX)).await.unwrap();
        }
        weir.slot(["exports", "acme"]).await.unwrap().into_result().unwrap().release().await.unwrap();
    }
    let weir = options().on_failure(OnFailure::Allow).retries(0).build().unwrap();
    drop(service);
    weir.check(USER).await.unwrap();
    assert_eq!(weir.breaker_state(), BreakerState::Open);
    // A slot that holds nothing.
    let slot = weir.slot(Reserve::new(["exports", "acme"]).ttl(Duration::MAX)).await.unwrap().into_result().unwrap();
    slot.release().await.unwrap();
}

#[tokio::test]
async fn options_are_checked() {
    let missing = Client::builder("h:1").token_file("/does/not/exist").build().unwrap_err();
    assert!(missing.to_string().starts_with("/does/not/exist: No such file"), "{missing}");
    for wrong in [
        Client::builder("h:1").token("a\nb"),
        Client::builder("h:1").token(""),
        Client::builder("h:1").token("a").token_file("b"),
        Client::builder("h:1").tls(weir_client::Tls::new().ca("/does/not/exist")),
        Client::builder("h"),
    ] {
        assert!(matches!(wrong.build(), Err(Error::Configuration(_))));
    }
}

#[test]
fn without_a_runtime_there_is_no_client() {
    assert!(matches!(Client::new("127.0.0.1:1"), Err(Error::Configuration(_))));
}

#[tokio::test]
async fn a_call_on_a_closed_client_is_cancelled_and_no_outage() {
    let dir = dir();
    let service = Setup::new(&dir, &format!("lease: true{POLICY}")).start();
    for options in [patient, |target: &str| patient(target).retries(0), |target: &str| patient(target).lease(true)] {
        let weir = options(&service.address).on_failure(OnFailure::Allow).build().unwrap();
        for _ in 0..20 {
            weir.check(USER).await.unwrap();
        }
        weir.close().await;
        let is_closed =
            async || weir.check(USER).await.is_err_and(|error| error.code() == Code::Cancelled).then_some(());
        crate::support::eventually("closed", is_closed).await;
        for _ in 0..20 {
            let error = weir.check(USER).await.unwrap_err();
            assert_eq!((error.code(), error.is_outage()), (Code::Cancelled, false), "{error:?}");
        }
        assert_eq!(weir.breaker_state(), BreakerState::Closed);
    }
    // The closed client has no open calls or connections that delay the service's shutdown.
    service.end();
}
