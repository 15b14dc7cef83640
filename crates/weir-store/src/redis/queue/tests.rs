//! Tests of the queue: bounded round trips, fairness among submitters, and the bound of the queue.

use super::*;
use weir_telemetry::request::{RequestContext, Route};

const ROUND_TRIP: Duration = Duration::from_millis(10);

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[tokio::test]
async fn abandoned_requests_free_their_place_in_the_queue() {
    let queue = Queue::new(2);
    let first = queue.push(Part::default(), later(), false).unwrap();
    let second = queue.push(Part::default(), later(), false).unwrap();
    assert_eq!(queue.push(Part::default(), later(), false).unwrap_err(), Failure::QueueFull);
    drop(second);
    let third = queue.push(Part::default(), later(), false).unwrap();
    drop(first);
    let mut taken = queue.take(10, ROUND_TRIP);
    assert_eq!((taken.len(), queue.waiting()), (1, 0), "nor is anything sent for them");
    taken[0].answer(Err(Failure::Closed));
    assert_eq!(queue.answer(third, later()).await, Err(Failure::Closed));
}

#[tokio::test]
async fn expired_requests_fail_without_being_sent() {
    let queue = Queue::new(2);
    let late = queue.push(Part::default(), Instant::now(), false).unwrap();
    let in_time = queue.push(Part::default(), later(), true).unwrap();
    assert!(queue.take(10, ROUND_TRIP)[0].asking);
    assert_eq!(queue.answer(late, later()).await, Err(Failure::Late));
    assert!(matches!(queue.answer(in_time, later()).await, Err(Failure::Lost(_))), "dropped with its waiter");
}

#[tokio::test]
async fn an_answer_received_at_the_deadline_is_returned() {
    let queue = Queue::new(2);
    let late = queue.push(Part::default(), Instant::now(), false).unwrap();
    let in_time = queue.push(Part::default(), later(), false).unwrap();
    let mut taken = queue.take(10, ROUND_TRIP);
    assert_eq!(queue.give_up(late), Err(Failure::Late), "no other part went before");
    taken[0].answer(Err(Failure::Closed));
    assert_eq!(queue.give_up(in_time), Err(Failure::Closed));
}

/// Queues `parts` parts with this work each, from one submitter.
async fn submit(queue: &Arc<Queue>, parts: usize, work: u32, deadline: Instant) -> Vec<Result<Pending, Failure>> {
    let queue = Arc::clone(queue);
    let push = move || (0..parts).map(|_| queue.push(Part { work, ..Part::default() }, deadline, false)).collect();
    tokio::spawn(async move { push() }).await.unwrap()
}

#[tokio::test]
async fn round_trips_are_bounded_by_work_and_fair_to_submitters() {
    let queue = Arc::new(Queue::new(10_000));
    let heavy = submit(&queue, 1_000, 16, later()).await;
    let light = submit(&queue, 1, 2, later()).await;
    let taken = queue.take(1_024, ROUND_TRIP);
    let work: u64 = taken.iter().map(Waiter::work).sum();
    assert!((MAX_ROUND_TRIP_WORK - 16..=MAX_ROUND_TRIP_WORK).contains(&work), "{work}");
    assert_eq!(taken.last().unwrap().part.work, 2, "it came last, and goes with the first");
    assert_eq!(queue.waiting(), heavy.len() + light.len() - taken.len());
    let one = submit(&queue, 1, 1_000_000, later()).await;
    drop(heavy);
    assert_eq!(queue.take(1_024, ROUND_TRIP).len(), one.len(), "more than a round trip's work goes alone");
}

/// Queues a part with this work from a separate call on a connection.
async fn call(queue: &Arc<Queue>, connection: u64, work: u32) -> Pending {
    let route = Route::Grpc { service: "s", method: "m" };
    let context = Arc::new(RequestContext::new(route, connection, None, None, false));
    let queue = Arc::clone(queue);
    let push = async move { queue.push(Part { work, ..Part::default() }, later(), false).unwrap() };
    tokio::spawn(request::within(context, push)).await.unwrap()
}

#[tokio::test]
async fn large_parts_do_not_starve_other_submitters() {
    let queue = Arc::new(Queue::new(10_000));
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.extend(submit(&queue, 100, 3_000, later()).await);
    }
    for _ in 0..5 {
        queue.take(1_024, ROUND_TRIP);
    }
    waiting.extend(submit(&queue, 1, 1, later()).await);
    let mut works = Vec::new();
    for _ in 0..4 {
        works.extend(queue.take(1_024, ROUND_TRIP).iter().map(Waiter::work));
    }
    assert!(works.contains(&1), "{works:?}: behind at most one part of each");
}

#[tokio::test]
async fn the_calls_of_one_connection_count_as_one_submitter() {
    let queue = Arc::new(Queue::new(10_000));
    let mut calls = Vec::new();
    for _ in 0..1_000 {
        calls.push(call(&queue, 1, 16).await);
    }
    calls.push(call(&queue, 2, 2).await);
    let taken = queue.take(1_024, ROUND_TRIP);
    assert_eq!(taken.last().unwrap().part.work, 2, "it came last, and goes with the first");
    // They also share the capacity of the queue.
    let queue = Arc::new(Queue::new(8));
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(call(&queue, 1, 1).await);
    }
    calls.push(call(&queue, 2, 1).await);
    let kicked_out = queue.answer(calls.swap_remove(7), later()).await;
    assert_eq!((kicked_out, queue.waiting()), (Err(Failure::QueueFull), 5));
}

#[tokio::test]
async fn overtaken_requests_are_shed_and_stalled_ones_are_late() {
    let queue = Arc::new(Queue::new(10_000));
    let mut heavy = submit(&queue, 200, 16, later()).await;
    let taken = queue.take(1_024, ROUND_TRIP);
    let (sent, overtaken) = (heavy.remove(0).unwrap(), heavy.pop().unwrap().unwrap());
    assert!(matches!(queue.answer(sent, Instant::now()).await, Err(Failure::Lost(_))));
    assert_eq!(queue.answer(overtaken, Instant::now()).await, Err(Failure::Shed));
    let fresh = submit(&queue, 1, 1, later()).await.remove(0).unwrap();
    assert_eq!(queue.answer(fresh, Instant::now()).await, Err(Failure::Late), "nothing was sent since");
    drop(taken);
}

#[tokio::test]
async fn overtaken_requests_are_shed_when_too_late_to_be_answered() {
    let queue = Arc::new(Queue::new(10_000));
    let mut heavy = submit(&queue, 200, 16, later()).await;
    let longer = 2 * later().duration_since(Instant::now());
    assert_eq!(queue.take(1_024, longer).len(), 128, "these have all of their time");
    let fresh = submit(&queue, 1, 1, later()).await;
    assert_eq!(queue.take(1_024, longer).len(), fresh.len());
    assert_eq!(queue.answer(heavy.pop().unwrap().unwrap(), later()).await, Err(Failure::Shed));
}

#[tokio::test]
async fn a_full_queue_is_shared_fairly_by_its_submitters() {
    let queue = Arc::new(Queue::new(8));
    let many = submit(&queue, 20, 1, later()).await;
    assert_eq!(many.iter().filter(|pushed| pushed.is_ok()).count(), 8);
    let few = submit(&queue, 2, 1, later()).await;
    assert!(few.iter().all(Result::is_ok));
    assert_eq!(queue.waiting(), 6, "the other has its half");
    let last = many.into_iter().take(8).next_back().unwrap().unwrap();
    assert_eq!(queue.answer(last, later()).await, Err(Failure::QueueFull));
}

/// A flood inspects a part of a full queue at a time, not all of it for each rejected part.
#[tokio::test]
async fn abandoned_parts_of_a_full_queue_are_found_by_turns() {
    const SIZE: usize = 10 * INSPECTED;
    let queue = Queue::new(SIZE);
    let push = || queue.push(Part::default(), later(), false);
    let mut queued: Vec<_> = (0..SIZE).map(|_| push().unwrap()).collect();
    assert_eq!(push().unwrap_err(), Failure::QueueFull);
    drop(queued.pop());
    let mut rejected = 0;
    let _queued = loop {
        match push() {
            Ok(pending) => break pending,
            Err(_) => rejected += 1,
        }
        assert!(rejected < 10, "as many pushes inspect all");
    };
    assert_eq!(push().unwrap_err(), Failure::QueueFull, "there was room for one");
}
