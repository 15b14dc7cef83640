//! A lane: one connection, one round trip at a time. Those who come while one is under way go together in the next, so
//! nobody waits for a timer and an idle lane adds nothing.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    breaker::Breaker,
    flight::{CallTerms, Flight},
    manager::{self, Pool, Pooled},
    queue::Queue,
};
use crate::{
    domain::Clock,
    store::{Failure, failure::RefusalCode},
    telemetry::{StoreMeter, StoreOp},
};

/// Most parts of one round trip. More would make the last wait long for the first.
const MAX_FLIGHT: usize = 1_024;

/// What all lanes of a server share.
pub struct Course {
    /// Where connections come from.
    pub pool: Pool,
    /// Whether the server is asked at all.
    pub breaker: Breaker,
    /// How calls are made.
    pub terms: CallTerms,
    /// The moment of every call, where it is not the server's to tell.
    pub clock: Option<Arc<dyn Clock>>,
    /// How long a check may take.
    pub command_timeout: Duration,
    /// What is counted.
    pub meter: Arc<StoreMeter>,
}

/// Carries what waits in `queue`, for ever.
pub async fn run(queue: Arc<Queue>, course: Arc<Course>) {
    // Before anybody asks, so that the first to ask does not wait for it.
    let first = match timeout(course.command_timeout, course.pool.get()).await {
        Ok(connection) => connection,
        Err(_) => Err(Failure::Connect("it takes longer than a check may take".into())),
    };
    let mut held = first.inspect_err(|failure| course.breaker.trip(failure)).ok();
    loop {
        let mut flight = Flight::new(queue.take(MAX_FLIGHT).await, &course.terms);
        held = carry(&mut flight, held, &queue, &course).await;
    }
}

/// One round trip; the connection if it is good for another one.
async fn carry(flight: &mut Flight, mut held: Option<Pooled>, queue: &Queue, course: &Course) -> Option<Pooled> {
    let deadline = flight.deadline();
    // A connection that closed unseen is found out when nothing has been sent on it, so there is a second way.
    for _ in 0..2 {
        let usable = held.take().and_then(|mut held| if held.is_usable() { Some(held) } else { discard(held) });
        let mut connection = match usable {
            Some(connection) => connection,
            None => match connect(flight, deadline, queue, course).await {
                Connected::InTime(connection) => connection,
                Connected::Late(connection) => return connection,
            },
        };
        let terms = CallTerms { now: course.clock.as_ref().map(|clock| clock.now()), ..course.terms };
        let since = Instant::now();
        match timeout_at(deadline, flight.exchange(&mut connection, &terms)).await {
            Ok(Ok(refused)) => {
                course.meter.took(StoreOp::Decide, since.elapsed());
                flight.batch_sizes().for_each(|size| course.meter.batch(size));
                return after(refused, connection, course);
            }
            Ok(Err(Failure::Closed)) => discard(connection),
            Ok(Err(failure)) => {
                course.breaker.failed(&failure);
                flight.fail(&failure);
                return discard(connection);
            }
            Err(_) => {
                let failure = Failure::Lost("no reply in time".into());
                course.breaker.failed(&failure);
                flight.fail(&failure);
                return discard(connection);
            }
        };
    }
    flight.fail(&Failure::Closed);
    None
}

/// A connection, or what is left of the attempt to get one.
enum Connected {
    InTime(Pooled),
    /// The flight has been told.
    Late(Option<Pooled>),
}

async fn connect(flight: &mut Flight, deadline: Instant, queue: &Queue, course: &Course) -> Connected {
    let mut connecting = std::pin::pin!(course.pool.get());
    match timeout_at(deadline, &mut connecting).await {
        Ok(Ok(connection)) => return Connected::InTime(connection),
        Ok(Err(failure)) => {
            course.breaker.failed(&failure);
            flight.fail(&failure);
            return Connected::Late(None);
        }
        Err(_) => {}
    }
    // It may take longer than a check may. Meanwhile nobody is to wait for it.
    let late = Failure::Connect("it takes longer than a check may take".into());
    course.breaker.trip(&late);
    flight.fail(&late);
    loop {
        queue.fail(&late);
        tokio::select! {
            connection = &mut connecting => return Connected::Late(connection.ok()),
            () = queue.wait() => {}
        }
    }
}

/// What a round trip tells of the server: nothing bad, or the last of its refusals.
fn after(refused: Option<Failure>, connection: Pooled, course: &Course) -> Option<Pooled> {
    let Some(failure) = refused else {
        course.breaker.succeeded();
        return Some(connection);
    };
    match failure.refusal() {
        Some(RefusalCode::Moved | RefusalCode::Ask | RefusalCode::TryAgain) => {
            course.breaker.succeeded();
            return Some(connection);
        }
        _ => course.breaker.failed(&failure),
    }
    match failure.refusal() {
        // These may be a new connection's to mend: it finds another master, or takes other credentials.
        Some(
            RefusalCode::ReadOnly
            | RefusalCode::MasterDown
            | RefusalCode::NoAuth
            | RefusalCode::WrongPass
            | RefusalCode::NoPerm,
        ) => discard(connection),
        _ => Some(connection),
    }
}

/// Closes a connection instead of giving it back.
fn discard(connection: Pooled) -> Option<Pooled> {
    manager::discard(connection);
    None
}
