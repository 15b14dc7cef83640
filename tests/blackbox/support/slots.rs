//! Many clients that hold slots of a concurrency limit.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weir::proto::ReserveRequest;

use super::{
    Server,
    requests::check,
    reservations::{Client, cancel, commit},
};

const CLIENTS: u64 = 16;
const TAKEN: u64 = 300;
/// Duration for which a client holds a slot, and the longest wait until all slots are held at the same time.
const HOLDS: Duration = Duration::from_millis(5);
const GATHER: Duration = Duration::from_secs(1);

/// Makes a request for a slot of a key, with the TTL of its limit.
pub fn slot<S: ToString>(key: &[S]) -> ReserveRequest {
    ReserveRequest { check: Some(check(key)), ..ReserveRequest::default() }
}

/// The results of a crowd.
#[derive(Debug)]
pub struct Seen {
    /// The most slots held at the same time.
    pub most: u64,
    /// Slots whose holders died.
    pub died: u64,
}

/// Runs clients that take slots of a key for some milliseconds, spread over the services, until [`TAKEN`] have been
/// taken. Now and then one dies with its slot, up to half of all slots. At half-time `change` runs. Failed calls, for
/// example to a killed service, are retried elsewhere. Asserts that at most `max` slots are held at the same time.
pub async fn crowd(services: &[Server], key: &[&str], max: u64, change: impl Fn()) -> Seen {
    let (held, most, taken, dead) = Default::default();
    let shared = Shared { max, held, most, taken, dead, change };
    let counts = join_all((0..CLIENTS).map(|seed| shared.one(services, key, seed))).await;
    Seen { most: shared.most.into_inner(), died: counts.into_iter().sum() }
}

struct Shared<F> {
    max: u64,
    held: AtomicU64,
    most: AtomicU64,
    taken: AtomicU64,
    dead: AtomicU64,
    change: F,
}

impl<F: Fn()> Shared<F> {
    /// Runs one client. Returns the number of slots with which it died.
    async fn one(&self, services: &[Server], key: &[&str], seed: u64) -> u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut clients: Vec<Client> = join_all(services.iter().map(Server::client)).await;
        let mut died = 0;
        while self.taken.load(Ordering::Relaxed) < TAKEN {
            let client = rng.random_range(0..clients.len());
            let (asked, answer) = (Instant::now(), clients[client].reserve(slot(key)).await);
            let Some(answer) = answer.ok().map(tonic::Response::into_inner).filter(|answer| !answer.hold.is_empty())
            else {
                tokio::time::sleep(HOLDS).await;
                continue;
            };
            let held = self.held.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(held, Ordering::Relaxed);
            assert!(held <= self.max, "{held} slots of {} are held", self.max);
            let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
            if taken == TAKEN / 2 {
                (self.change)();
            }
            let since = Instant::now();
            tokio::time::sleep(HOLDS).await;
            // On a busy machine calls take most of a slot's time, and few slots are held at the same time.
            while self.most.load(Ordering::Relaxed) < self.max && since.elapsed() < GATHER {
                tokio::time::sleep(HOLDS).await;
            }
            self.held.fetch_sub(1, Ordering::Relaxed);
            // Some slots must remain for the rest of the test.
            if rng.random_ratio(1, 10) && self.dead.fetch_add(1, Ordering::Relaxed) < self.max / 2 {
                died += 1;
                continue;
            }
            let lasts = answer.expires_after.and_then(|lasts| Duration::try_from(lasts).ok()).expect("a time");
            assert!(asked.elapsed() < lasts, "the test was held up for longer than a slot lasts");
            // Any replica that answers releases it; otherwise it expires.
            for client in &mut clients {
                let done = if taken.is_multiple_of(2) {
                    commit(client, &answer.hold, None).await.is_ok()
                } else {
                    cancel(client, &answer.hold).await.is_ok()
                };
                if done {
                    break;
                }
            }
        }
        died
    }
}
