//! Many clients that hold slots of a concurrency limit.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
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

const CLIENTS: u64 = 32;
/// How long a client holds a slot, and how long at most until all of them have been held at one time.
const HOLDS: Duration = Duration::from_millis(5);
const GATHER: Duration = Duration::from_secs(1);

/// To take a slot of a key, for as long as its limit says.
pub fn slot<S: ToString>(key: &[S]) -> ReserveRequest {
    ReserveRequest { check: Some(check(key)), ..ReserveRequest::default() }
}

/// What a crowd has seen.
#[derive(Debug)]
pub struct Seen {
    /// Most slots that were held at one time.
    pub most: u64,
    /// Slots that were taken.
    pub taken: u64,
    /// Those of them whose holder died.
    pub died: u64,
}

/// Clients that take slots of a key for some milliseconds, dealt to the services in turn, for so long. Now and then one dies with its
/// slot, until half of them are lost. What fails, as on a service that is killed, is tried again elsewhere. Asserts that at most `max` slots
/// are held at one time.
pub async fn crowd(services: &[Server], key: &[&str], max: u64, lasts: Duration) -> Seen {
    let (held, most, dead, is_over) = Default::default();
    let shared = Shared { max, held, most, dead, is_over };
    let end = async {
        tokio::time::sleep(lasts).await;
        shared.is_over.store(true, Ordering::Relaxed);
    };
    let clients = join_all((0..CLIENTS).map(|seed| shared.one(services, key, seed)));
    let (counts, ()) = futures_util::future::join(clients, end).await;
    let sum = |of: fn(&(u64, u64)) -> u64| counts.iter().map(of).sum();
    Seen { most: shared.most.into_inner(), taken: sum(|(taken, _)| *taken), died: sum(|(_, died)| *died) }
}

struct Shared {
    max: u64,
    held: AtomicU64,
    most: AtomicU64,
    dead: AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    /// How many slots it took, and with how many it died.
    async fn one(&self, services: &[Server], key: &[&str], seed: u64) -> (u64, u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut clients: Vec<Client> = join_all(services.iter().map(Server::client)).await;
        let (mut taken, mut died) = (0, 0);
        while !self.is_over.load(Ordering::Relaxed) {
            let client = rng.random_range(0..clients.len());
            let (asked, answer) = (Instant::now(), clients[client].reserve(slot(key)).await);
            let Some(answer) = answer.ok().map(tonic::Response::into_inner).filter(|answer| !answer.hold.is_empty())
            else {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            };
            let held = self.held.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(held, Ordering::Relaxed);
            assert!(held <= self.max, "{held} slots of {} are held", self.max);
            taken += 1;
            let since = Instant::now();
            tokio::time::sleep(HOLDS).await;
            // On a busy machine most of a slot's time is that of its calls, and few are held together.
            while self.most.load(Ordering::Relaxed) < self.max && since.elapsed() < GATHER {
                tokio::time::sleep(HOLDS).await;
            }
            self.held.fetch_sub(1, Ordering::Relaxed);
            // Not all: for the rest of the time no client would get one.
            if rng.random_ratio(1, 10) && self.dead.fetch_add(1, Ordering::Relaxed) < self.max / 2 {
                died += 1;
                continue;
            }
            let lasts = answer.expires_after.and_then(|lasts| Duration::try_from(lasts).ok()).expect("a time");
            assert!(asked.elapsed() < lasts, "the test was held up for longer than a slot lasts");
            // On whichever replica answers; else it ends by itself.
            for client in &mut clients {
                let done = if taken % 2 == 0 {
                    commit(client, &answer.hold, None).await.is_ok()
                } else {
                    cancel(client, &answer.hold).await.is_ok()
                };
                if done {
                    break;
                }
            }
        }
        (taken, died)
    }
}
