//! A pipeline worker: one connection, one round trip at a time. Checks that come while one is under way go together in the
//! next (group commit), so there is no timer, and an idle worker adds no latency.

use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{RedisResult, aio::MultiplexedConnection};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    batch::{Batch, CallSettings},
    breaker::Breaker,
    command::failure,
    pool::{Pool, Pooled},
    queue::Queue,
};
use crate::{
    Failure,
    failure::RefusalCode,
    metrics::{StoreMeter, StoreOp},
};
use weir_core::domain::Clock;

/// Most parts of one round trip. More would make the last wait long for the first.
const MAX_BATCH_PARTS: usize = 1_024;

/// What all workers of a server share.
pub struct Context {
    /// Where connections come from.
    pub pool: Arc<Pool>,
    /// Whether the server is asked at all.
    pub breaker: Breaker,
    /// How calls are made.
    pub call_settings: CallSettings,
    /// The moment of every call, where it is not the server's to tell.
    pub clock: Option<Arc<dyn Clock>>,
    /// How long a check may take.
    pub command_timeout: Duration,
    /// What is counted.
    pub meter: Arc<StoreMeter>,
}

impl Context {
    /// Runs what goes outside the pipelines of checks, on a connection that goes back to the pool if all goes well.
    ///
    /// # Errors
    /// Why there is no reply, or the server's refusal.
    pub async fn run<T, F>(&self, work: impl FnOnce(MultiplexedConnection) -> F) -> Result<T, Failure>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let connection = self.pool.get().await?;
        let done = timeout(self.command_timeout, work(connection.clone())).await;
        let late = |_| Failure::Lost("no reply in time".into());
        let done = done.map_err(late).and_then(|done| done.map_err(failure));
        if done.is_err() {
            connection.discard();
        }
        done
    }
}

/// Carries what waits in `queue`, for ever.
pub async fn run(queue: Arc<Queue>, context: Arc<Context>) {
    // Before anybody asks, so that the first to ask does not wait for it.
    let first = match timeout(context.command_timeout, context.pool.get()).await {
        Ok(connection) => connection,
        Err(_) => Err(Failure::Connect("it takes longer than a check may take".into())),
    };
    let mut held = first.inspect_err(|failure| context.breaker.trip(failure)).ok();
    loop {
        let mut batch = Batch::new(queue.take(MAX_BATCH_PARTS).await, &context.call_settings);
        held = carry(&mut batch, held, &queue, &context).await;
    }
}

/// One round trip; the connection if it is good for another one.
async fn carry(batch: &mut Batch, held: Option<Pooled>, queue: &Queue, context: &Context) -> Option<Pooled> {
    let deadline = batch.deadline();
    // What is sent on a connection that is gone is lost, so it is not sent there.
    let connection = match held.filter(Pooled::is_usable) {
        Some(connection) => connection,
        None => match connect(batch, deadline, queue, context).await {
            Connected::InTime(connection) => connection,
            Connected::Late(connection) => return connection,
        },
    };
    let now = context.clock.as_ref().map(|clock| clock.now());
    let settings = CallSettings { now, ..context.call_settings };
    let since = Instant::now();
    let exchanged = timeout_at(deadline, batch.exchange(&connection, &settings)).await;
    match exchanged.unwrap_or_else(|_| Err(Failure::Lost("no reply in time".into()))) {
        Ok(refused) => {
            context.meter.took(StoreOp::Decide, since.elapsed());
            batch.call_sizes().for_each(|size| context.meter.batch(size));
            after(refused, connection, context)
        }
        Err(failure) => {
            context.breaker.failed(&failure);
            batch.fail(&failure);
            connection.discard();
            None
        }
    }
}

/// A connection, or what is left of the attempt to get one.
enum Connected {
    InTime(Pooled),
    /// The batch has been answered.
    Late(Option<Pooled>),
}

async fn connect(batch: &mut Batch, deadline: Instant, queue: &Queue, context: &Context) -> Connected {
    let mut connecting = std::pin::pin!(context.pool.get());
    match timeout_at(deadline, &mut connecting).await {
        Ok(Ok(connection)) => return Connected::InTime(connection),
        Ok(Err(failure)) => {
            context.breaker.failed(&failure);
            batch.fail(&failure);
            return Connected::Late(None);
        }
        Err(_) => {}
    }
    // It may take longer than a check may. Meanwhile nobody is to wait for it.
    let late = Failure::Connect("it takes longer than a check may take".into());
    context.breaker.trip(&late);
    batch.fail(&late);
    loop {
        queue.fail(&late);
        tokio::select! {
            connection = &mut connecting => return Connected::Late(connection.ok()),
            () = queue.wait() => {}
        }
    }
}

/// What a round trip tells of the server: nothing bad, or the last of its refusals.
fn after(refused: Option<Failure>, connection: Pooled, context: &Context) -> Option<Pooled> {
    let Some(failure) = refused else {
        context.breaker.succeeded();
        return Some(connection);
    };
    match failure.refusal() {
        Some(RefusalCode::Moved | RefusalCode::Ask | RefusalCode::TryAgain) => {
            context.breaker.succeeded();
            return Some(connection);
        }
        _ => context.breaker.failed(&failure),
    }
    match failure.refusal() {
        // These may be a new connection's to mend: it finds another master, or takes other credentials.
        Some(
            RefusalCode::ReadOnly
            | RefusalCode::MasterDown
            | RefusalCode::NoAuth
            | RefusalCode::WrongPass
            | RefusalCode::NoPerm,
        ) => {
            connection.discard();
            None
        }
        _ => Some(connection),
    }
}
