//! A pipeline worker: one connection with one round trip at a time. Checks that arrive during a round trip go together
//! in the next one (group commit), so there is no timer, and an idle worker adds no latency.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool_redis::redis::{RedisResult, aio::MultiplexedConnection};
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::{
    batch::{Batch, CallSettings},
    breaker::Breaker,
    command::failure,
    pool::{Pool, Pooled},
    probe::{ProbeKey, probe},
    queue::Queue,
    store_time::StoreTime,
};
use crate::{Failure, failure::ErrorCode, metrics::StoreMetrics};
use weir_telemetry::LogLimit;

/// Most parts of one round trip. With more, the last would delay the first.
const MAX_BATCH_PARTS: usize = 1_024;

/// The context shared by all workers of a server.
pub(crate) struct Context {
    /// The server's name in logs and metrics: its address, or the name by which Sentinels know it.
    pub server: String,
    pub pool: Arc<Pool>,
    pub breaker: Breaker,
    /// Number of round trips of checks that succeeded, and of connections that their workers got.
    pub successes: AtomicU64,
    /// A probe key that is stored on this server.
    pub probe_key: Arc<ProbeKey>,
    pub call_settings: CallSettings,
    /// Estimate of the servers' clock.
    pub time: Arc<StoreTime>,
    /// Timeout of a check.
    pub command_timeout: Duration,
    /// Rate limit for warnings of slow round trips.
    pub slow_round_trips: LogLimit,
    /// Rate limit for warnings of charges that too few replicas acknowledged in time.
    pub replication_timeouts: LogLimit,
    pub metrics: Arc<StoreMetrics>,
}

impl Context {
    /// Runs `work` outside the pipelines of checks, on a connection that returns to the pool on success.
    ///
    /// # Errors
    /// [`Failure`] when there is no reply, or an error reply.
    pub(crate) async fn run<T, F>(&self, work: impl FnOnce(MultiplexedConnection) -> F) -> Result<T, Failure>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let connection = self.pool.get().await?;
        let done = timeout(self.command_timeout, work(connection.clone())).await;
        let late = |_| Failure::Lost("no reply in time".into());
        let done = done.map_err(late).and_then(|done| done.map_err(failure));
        if done.as_ref().is_err_and(|failure| !is_healthy(failure)) {
            connection.discard();
        }
        done
    }
}

/// Sends the parts of `queue` until aborted.
pub(super) async fn run(queue: Arc<Queue>, context: Arc<Context>) {
    // Connects in advance, so that the first check does not wait for it.
    let mut held = connect(&queue, &context).await;
    let mut round_trip = Smoothed::default();
    loop {
        queue.wait().await;
        context.pool.until_resumed().await;
        // Commands on a closed connection would be lost. Parts are taken only once there is a connection, because a
        // part that is taken counts as sent when its caller gives up.
        held = match held.filter(Pooled::is_usable) {
            Some(connection) => Some(connection),
            None => connect(&queue, &context).await,
        };
        let Some(connection) = held.take() else { continue };
        // Twice the smoothed duration, since a round trip may take longer; a new check always has more than half of its
        // timeout left.
        let needed = (2 * round_trip.0).min(context.command_timeout / 2);
        let waiters = queue.take(MAX_BATCH_PARTS, needed);
        if waiters.is_empty() {
            held = Some(connection);
            continue;
        }
        let mut batch = Batch::new(waiters, &context.call_settings);
        held = run_round_trip(&mut batch, connection, &context, &mut round_trip).await;
    }
}

/// Duration of round trips, smoothed as in RFC 6298; 0 before the first.
#[derive(Debug, Default)]
struct Smoothed(Duration);

impl Smoothed {
    fn measured(&mut self, took: Duration) {
        self.0 = if self.0.is_zero() { took } else { (7 * self.0 + took) / 8 };
    }
}

/// Runs one round trip. Returns the connection if it is usable for another one.
async fn run_round_trip(
    batch: &mut Batch,
    connection: Pooled,
    context: &Context,
    round_trip: &mut Smoothed,
) -> Option<Pooled> {
    let since = Instant::now();
    // Measured from sending: time spent in the queue does not make the server slow. The callers have their own
    // deadlines.
    let exchanged =
        timeout(context.command_timeout, batch.exchange(&connection, &context.call_settings, &context.time)).await;
    let exchanged = exchanged.unwrap_or_else(|_| Err(Failure::Lost("no reply in time".into())));
    if let Err(failure) = &exchanged {
        batch.fail(failure);
    }
    count_unacknowledged(batch.unacknowledged(), context);
    match exchanged {
        Ok(rejection) => {
            context.metrics.decide.record(since.elapsed());
            round_trip.measured(since.elapsed());
            warn_if_slow(round_trip.0, context);
            batch.call_sizes().for_each(|size| context.metrics.batches.record_number(size as u64));
            let connection = after(rejection, connection, context).await;
            if batch.is_blocked() {
                connection.into_iter().for_each(Pooled::discard);
                return None;
            }
            connection
        }
        Err(failure) => {
            context.breaker.failed(&failure);
            connection.discard();
            None
        }
    }
}

fn count_unacknowledged(answers: u64, context: &Context) {
    if answers == 0 {
        return;
    }
    context.metrics.replication_timeouts.increment(answers);
    if context.replication_timeouts.allows(std::time::Instant::now()) {
        warn!(
            server = context.server,
            wait_replicas = context.call_settings.wait_replicas,
            answers,
            "a failover would lose charges: too few replicas acknowledged them in time; such warnings come once a minute \
             at most"
        );
    }
}

fn warn_if_slow(round_trip: Duration, context: &Context) {
    if round_trip > context.command_timeout / 2 && context.slow_round_trips.allows(std::time::Instant::now()) {
        warn!(
            server = context.server,
            round_trip_seconds = round_trip.as_secs_f64(),
            command_timeout_seconds = context.command_timeout.as_secs_f64(),
            "checks may be decided without the store: a round trip takes more than half of store.redis.command_timeout; \
             such warnings come once a minute at most"
        );
    }
}

/// Opens a connection. On failure, fails all queued parts.
async fn connect(queue: &Queue, context: &Context) -> Option<Pooled> {
    let before = context.successes.load(Ordering::Relaxed);
    let mut connecting = std::pin::pin!(async {
        let connection = context.pool.get().await;
        context.successes.fetch_add(u64::from(connection.is_ok()), Ordering::Relaxed);
        connection
    });
    let connected = match timeout(context.command_timeout, &mut connecting).await {
        Ok(connected) => connected,
        Err(_) => {
            // The connection may take longer than a check's timeout. Meanwhile checks fail without waiting for it.
            let late = if before > 0 && context.successes.load(Ordering::Relaxed) == before {
                let late = Failure::Connect("not within store.redis.command_timeout".into());
                context.breaker.trip(&late);
                late
            } else {
                // Nothing is known against the server, so the breaker must not refuse what can wait longer than a
                // check: either it answers on other connections, or this is the first one.
                Failure::Late
            };
            loop {
                queue.fail(&late);
                tokio::select! {
                    biased;
                    connected = &mut connecting => break connected,
                    () = queue.wait() => {}
                }
            }
        }
    };
    let failed = |failure: &Failure| {
        // No check waits for a server that was never reached.
        if context.successes.load(Ordering::Relaxed) == 0 {
            context.breaker.trip(failure)
        } else {
            context.breaker.failed(failure)
        }
        queue.fail(failure);
    };
    connected.inspect_err(failed).ok()
}

/// Whether a rejection says nothing against the server and the connection.
fn is_healthy(rejection: &Failure) -> bool {
    use ErrorCode::{Ask, Clock, CrossSlot, Moved, TryAgain};
    rejection.error_code().is_some_and(|code| matches!(code, Moved | Ask | TryAgain | Clock | CrossSlot))
}

/// Whether a node of a Cluster rejects calls for some of its slots only, such as a slot that it does not serve: it passes
/// a probe.
async fn is_for_some_slots(rejection: &Failure, connection: &MultiplexedConnection, context: &Context) -> bool {
    if rejection.error_code() != Some(ErrorCode::ClusterDown) {
        return false;
    }
    let key = context.probe_key.get();
    matches!(timeout(context.command_timeout, probe(connection.clone(), &key)).await, Ok(Ok(())))
}

/// Reports a round trip to the circuit breaker: a success, or the rejection that matters most.
async fn after(rejection: Option<Failure>, connection: Pooled, context: &Context) -> Option<Pooled> {
    let Some(failure) = rejection else {
        context.successes.fetch_add(1, Ordering::Relaxed);
        context.breaker.succeeded();
        return Some(connection);
    };
    if failure.is_rejection_after_write() {
        // Every further check would be charged without an answer. A new connection is probed for everything that checks
        // need.
        context.breaker.trip(&failure);
        connection.discard();
        return None;
    }
    if is_healthy(&failure) || is_for_some_slots(&failure, &connection, context).await {
        context.breaker.succeeded();
        return Some(connection);
    }
    context.breaker.failed(&failure);
    match failure.error_code() {
        // A new connection may help: it finds another master, or uses new credentials.
        Some(
            ErrorCode::ReadOnly | ErrorCode::MasterDown | ErrorCode::NoAuth | ErrorCode::WrongPass | ErrorCode::NoPerm,
        ) => {
            connection.discard();
            None
        }
        _ => Some(connection),
    }
}
