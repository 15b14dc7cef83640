use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use weir_client::{BreakerSettings, BreakerState, Check, Error};

use crate::support::{POLICY, Setup, TRADE, dir, patient, streaming, until_streaming};

/// More checks than a stream can have in flight.
const MANY: usize = 3_000;

#[tokio::test]
async fn coalesced_checks_have_the_same_answers() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).start();
    let (unary, coalesced) = (service.client(), streaming(&service).await);
    for check in [Check::new(TRADE).cost(0).levels(), Check::new(["user", "berta"]).dry_run(), Check::new(["other"])] {
        let mut answers = [unary.check(check.clone()).await.unwrap(), coalesced.check(check).await.unwrap()];
        // Time passes between the two checks.
        answers.iter_mut().for_each(|answer| answer.reset_after = Duration::ZERO);
        assert_eq!(answers[0], answers[1]);
    }
    for check in [Check::new([""]), Check::new(TRADE).domain("unknown"), Check::new(["exports", "acme"])] {
        let (one, other) = (unary.check(check.clone()).await, coalesced.check(check).await);
        assert_eq!(one.unwrap_err(), other.unwrap_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_gets_its_own_answer() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).start();
    let weir = streaming(&service).await;
    let mut callers = JoinSet::new();
    for number in 0..MANY {
        let weir = weir.clone();
        callers.spawn(async move {
            let units = i64::try_from(number % 100 + 1).unwrap();
            let user = ["user".to_owned(), number.to_string()];
            let decision = weir.check(Check::new(user).cost(units)).await.unwrap();
            assert_eq!(decision.remaining, 100 - u64::try_from(units).unwrap());
        });
    }
    while let Some(result) = callers.join_next().await {
        result.unwrap();
    }
}

#[tokio::test]
async fn an_entry_has_its_own_deadline() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).start();
    let weir = streaming(&service).await;
    service.freeze();
    let late = weir.check(Check::new(TRADE).deadline(Duration::from_millis(50)));
    assert!(matches!(late.await, Err(Error::DeadlineExceeded(_))));
    service.signal(rustix::process::Signal::CONT);
    // The late answer to the previous check must not be taken for the answer to the next one.
    assert_eq!(weir.check(Check::new(["user", "berta"]).cost(0)).await.unwrap().remaining, 100);
}

#[tokio::test]
async fn checks_of_a_rejected_stream_are_calls_of_their_own() {
    let dir = dir();
    let service = Setup::new(&dir, POLICY).env("WEIR_GRPC__MAX_OPEN_STREAMS", "1").start();
    let other = streaming(&service).await;
    let (streamed, unary) = (service.checks("grpc_stream"), service.checks("grpc"));
    let breaker = BreakerSettings { failures: 1, ..BreakerSettings::default() };
    let weir = patient(&service.address).coalesce(true).retries(0).breaker(breaker).build().unwrap();
    let started = Instant::now();
    for number in 0..20 {
        assert!(weir.check(["user", &number.to_string()]).await.unwrap().allowed);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((service.checks("grpc_stream"), service.checks("grpc")), (streamed, unary + 20));
    assert!(service.rejected_streams() <= 1 + started.elapsed().as_secs(), "it is asked for once a second at most");
    // The stream is opened again.
    other.close().await;
    until_streaming(&weir, &service).await;
    assert_eq!(weir.breaker_state(), BreakerState::Closed);
}
