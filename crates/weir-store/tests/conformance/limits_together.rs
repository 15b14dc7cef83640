//! Two limits for one key at the same time, as during a rollout: together they admit the larger burst, and then the faster
//! rate.

use std::sync::Arc;

use super::holds::{Authority, Limits, START, in_memory, on_redis};
use weir_core::{
    algorithm::Params,
    domain::{ManualClock, Micros, time::SECOND},
    hold::{OnExpiry, Reservation, ReservationStep},
    testing::parse,
};
use weir_test_redis::{Options, Server};

fn token_bucket(capacity: &str, count: &str, period: &str) -> Params {
    parse("token_bucket", &[("capacity", capacity), ("count", count), ("period", period)])
}

/// Returns how many requests pass, with one request per limit at each of these times.
async fn admitted(
    store: &Authority,
    clock: &Arc<ManualClock>,
    limits: &[Params; 2],
    times: impl Iterator<Item = Micros>,
) -> usize {
    let limits = limits.clone().map(|params| Limits::new(&[params.clone(), params]));
    let mut admitted = 0;
    for time in times {
        clock.set(START + time);
        for limits in &limits {
            admitted += usize::from(store.verdict(&limits.plan(0, 1)).await.decisions[1].allowed);
        }
    }
    admitted
}

/// A larger limit has used up the key: a refusal under the small one lasts no longer than it says, also with a unit
/// held, and of a reservation.
async fn refuse_no_longer(mut store: Authority, clock: &Arc<ManualClock>) {
    let [large, small] = [token_bucket("100", "1", "36s"), token_bucket("10", "1", "1s")]
        .map(|params| Limits::new(&[params.clone(), params]));
    for (held, is_reserved, seconds) in [(0, false, 1), (1, false, 2), (0, true, 1), (1, true, 2)] {
        store.forget(clock).await;
        clock.set(START);
        let reserve = async |name: &[u8], cost| {
            let mut plan = small.plan(0, cost);
            let step = ReservationStep::Reserve { ttl: 120 * SECOND, on_expiry: OnExpiry::Keep };
            plan.reservation = Some(Reservation { name, step });
            store.verdict(&plan).await.decisions[1]
        };
        assert!(reserve(b"held", held).await.allowed);
        assert!(store.verdict(&large.plan(0, 99)).await.decisions[1].allowed);
        let ask = async |name: &[u8]| {
            if is_reserved { reserve(name, 1).await } else { store.verdict(&small.plan(0, 1)).await.decisions[1] }
        };
        let refused = ask(b"one").await;
        assert_eq!((refused.allowed, refused.retry_after), (false, Some(seconds * SECOND)));
        clock.set(START + seconds * SECOND);
        assert!(ask(b"two").await.allowed, "{held} held, is_reserved: {is_reserved}");
    }
}

async fn count(mut store: Authority, clock: &Arc<ManualClock>) {
    let by_size = [token_bucket("105", "1", "1s"), token_bucket("50", "1", "1s")];
    let by_burst = ["104", "49"].map(|burst| parse("gcra", &[("burst", burst), ("count", "1"), ("period", "1s")]));
    let in_queues =
        ["104", "49"].map(|burst| parse("leaky_queue", &[("burst", burst), ("count", "1"), ("period", "1s")]));
    for limits in [by_size, by_burst, in_queues] {
        // 60 of each a second for five seconds.
        let times = || (0..300).map(|number| number * SECOND / 60);
        assert_eq!(admitted(&store, clock, &limits, times()).await, 105 + 4, "{limits:?}");
        store.forget(clock).await;
        let [large, small] = limits;
        assert_eq!(admitted(&store, clock, &[small, large], times()).await, 105 + 4);
        store.forget(clock).await;
    }
    // A state of the small limit alone would last for 100 ms, in which each unit of the large one uses it up.
    let limits = [token_bucket("100", "1", "1h"), token_bucket("1", "10", "1s")];
    let admitted = admitted(&store, clock, &limits, (0..200).map(|number| number * SECOND / 5)).await;
    assert_eq!(admitted, 100 + 100);
    refuse_no_longer(store, clock).await;
}

#[tokio::test]
async fn in_memory_limits_in_force_together_keep_the_larger_burst_and_rate() {
    let clock = Arc::new(ManualClock::default());
    count(Authority::Memory(in_memory(&clock)), &clock).await;
}

#[tokio::test]
async fn on_redis_limits_in_force_together_keep_the_larger_burst_and_rate() {
    let (server, clock) = (Server::start(Options::socket()), Arc::new(ManualClock::default()));
    count(on_redis(&server.url(), &clock), &clock).await;
}
