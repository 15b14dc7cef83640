//! Loops in virtual time: only the clock and the service are simulated.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Wake, Waker},
};

use futures_util::future::join_all;
use parking_lot::Mutex;

use super::*;
use crate::{
    checks::{CheckSpec, Distribution, Keys, Requests},
    pacing::{DueCalls, Nanos, Schedule, ScheduleStats, Stop, Timer},
    recorder::Counts,
};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;

/// A virtual clock that advances when nothing else can proceed.
#[derive(Clone, Default)]
struct Virtual(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    now: Nanos,
    alarms: BTreeMap<(Nanos, u64), Waker>,
    set: u64,
}

impl Virtual {
    async fn sleep_until(&self, at: Nanos) {
        let mut is_set = false;
        poll_fn(|context| {
            let mut state = self.0.lock();
            if state.now >= at {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut is_set, true) {
                state.set += 1;
                let number = state.set;
                state.alarms.insert((at, number), context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Advances to the next alarm.
    fn advance(&self) {
        let mut state = self.0.lock();
        let ((at, _), waker) = state.alarms.pop_first().expect("something is waited for");
        state.now = state.now.max(at);
        drop(state);
        waker.wake();
    }

    fn run(&self, futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut all = join_all(futures);
        while Pin::new(&mut all).poll(&mut Context::from_waker(&waker)).is_pending() {
            if !woken.0.swap(false, Ordering::Relaxed) {
                self.advance();
            }
        }
    }
}

impl Clock for Virtual {
    fn now(&self) -> Nanos {
        self.0.lock().now
    }
}

impl Timer for Virtual {
    async fn until(&mut self, at: Nanos) -> io::Result<()> {
        self.sleep_until(at).await;
        Ok(())
    }
}

/// A simulated service. `answers_at` maps the time at which a call was sent to the time of its
/// answer.
struct Service {
    time: Virtual,
    answers_at: fn(Nanos) -> Nanos,
    is_reachable: bool,
}

impl CallSender for Service {
    async fn is_ready(&mut self) -> bool {
        self.is_reachable
    }

    async fn send(&mut self, _: &Bytes, checks: u64, _: Kind) -> Option<Answers> {
        self.time.sleep_until((self.answers_at)(self.time.now())).await;
        Some(Answers { allowed: checks, ..Answers::default() })
    }
}

/// A load of one thread.
struct Load {
    callers: usize,
    measured_from: Nanos,
    end: Nanos,
    /// Time of the interrupt.
    interrupted: Option<Nanos>,
    answers_at: fn(Nanos) -> Nanos,
    is_reachable: bool,
}

const LOAD: Load = Load {
    callers: 50,
    measured_from: 0,
    end: SECOND,
    interrupted: None,
    answers_at: |sent| sent + MS,
    is_reachable: true,
};

impl Load {
    fn writer(&self, caller: u64) -> RequestWriter {
        let asked = CheckSpec {
            domain: String::new(),
            key: vec!["{}".to_owned()],
            cost: None,
            limit: None,
            levels: 1,
            summary_only: false,
        };
        let requests = Requests::new(&asked, Kind::Check, 1, Keys::new(9, Distribution::Uniform, 1.0).unwrap(), 9, 0.0);
        RequestWriter::new(Arc::new(requests), 1, caller)
    }

    fn callers<'a>(
        &self,
        pacing: &Pacer<Virtual>,
        time: &Virtual,
        recorder: &Arc<Recorder>,
    ) -> Vec<Pin<Box<dyn Future<Output = ()> + 'a>>> {
        let one = |caller| -> Pin<Box<dyn Future<Output = ()>>> {
            let service = Service { time: time.clone(), answers_at: self.answers_at, is_reachable: self.is_reachable };
            Box::pin(call(pacing.clone(), service, self.writer(caller), Arc::clone(recorder)))
        };
        (0..self.callers as u64).map(one).collect()
    }

    fn closed(self) -> Counts {
        let (time, recorder) = (Virtual::default(), Arc::new(Recorder::new(self.measured_from).unwrap()));
        let pacing = Pacer::closed(time.clone(), self.end, Stop::default());
        time.run(self.callers(&pacing, &time, &recorder));
        taken(&recorder)
    }

    fn open(self, rate: f64) -> (Counts, ScheduleStats) {
        let (time, recorder) = (Virtual::default(), Arc::new(Recorder::new(self.measured_from).unwrap()));
        let queue = Arc::new(DueCalls::new(Schedule::new(rate, 0, 1, self.end)));
        let (stop, mut stats) = (Stop::default(), ScheduleStats::new().unwrap());
        let pacing = Pacer::open(time.clone(), Arc::clone(&queue), stop.clone());
        let mut all = self.callers(&pacing, &time, &recorder);
        let pace = queue.pace(time.clone(), time.clone(), (self.measured_from, self.end), stop.clone(), &mut stats);
        all.push(Box::pin(async { pace.await.unwrap() }));
        if let Some(at) = self.interrupted {
            let (time, stop) = (time.clone(), stop.clone());
            all.push(Box::pin(async move {
                time.sleep_until(at).await;
                stop.set();
            }));
        }
        time.run(all);
        stats.unsent = queue.unsent().min(stats.due);
        (taken(&recorder), stats)
    }
}

fn taken(recorder: &Recorder) -> Counts {
    let mut counts = Counts::new().unwrap();
    recorder.swap(&mut counts);
    counts
}

fn assert_about(found_ns: Nanos, wanted_ns: Nanos) {
    assert!(found_ns.abs_diff(wanted_ns) <= wanted_ns / 20, "{found_ns} is not about {wanted_ns}");
}

/// The service answers within a millisecond, except for a stall of one second after the first second.
const STALLS: Load = Load {
    measured_from: SECOND,
    end: 2 * SECOND + 50 * MS,
    answers_at: |sent| if (SECOND..2 * SECOND).contains(&sent) { 2 * SECOND + MS } else { sent + MS },
    ..LOAD
};

#[test]
fn an_open_loop_counts_a_stall_in_every_delayed_call() {
    let (recorder, stats) = STALLS.open(1_000.0);
    assert_eq!((recorder.warm_up, recorder.calls, stats.due, stats.unsent), (1_000, 1_050, 1_050, 0));
    assert_about(recorder.latency.value_at_percentile(50.0), 500 * MS);
    assert_about(recorder.latency.value_at_percentile(99.0), 990 * MS);
    assert_about(recorder.latency.max(), 1_001 * MS);
    assert_about(recorder.late.max(), 950 * MS);
    assert_about(stats.most_waiting, 950);
    assert_eq!(stats.behind.max(), 0, "the generator itself was never late");
}

#[test]
fn a_closed_loop_hides_a_stall() {
    let recorder = STALLS.closed();
    assert_about(recorder.latency.value_at_percentile(50.0), MS);
    assert_about(recorder.latency.max(), 1_001 * MS);
}

#[test]
fn a_fast_server_has_its_own_latency() {
    let (recorder, stats) = LOAD.open(1_000.0);
    assert_eq!(
        (recorder.calls, recorder.allowed, stats.due, stats.unsent, stats.most_waiting),
        (1_000, 1_000, 1_000, 0, 0)
    );
    assert_about(recorder.latency.value_at_percentile(50.0), MS);
    assert_about(recorder.latency.max(), MS);
    let closed = LOAD.closed();
    assert_eq!(closed.calls, 50 * 1_000, "each asks when it has its answer");
}

#[test]
fn calls_unsent_because_of_a_slow_server_are_counted() {
    let (recorder, stats) = Load { callers: 10, answers_at: |sent| sent + 101 * MS, ..LOAD }.open(1_000.0);
    assert_eq!((recorder.calls, stats.due), (100, 1_000));
    assert_eq!(recorder.calls + stats.unsent, stats.due);
    assert_about(recorder.latency.max(), 910 * MS);
}

#[test]
fn calls_to_an_unreachable_server_count_as_unsent() {
    let (recorder, stats) = Load { is_reachable: false, ..LOAD }.open(100.0);
    assert_eq!((recorder.calls, stats.due, stats.unsent), (0, 100, 100));
}

#[test]
fn an_interrupted_run_counts_the_calls_due_so_far() {
    let (recorder, stats) = Load { interrupted: Some(250 * MS + MS / 2), measured_from: 50 * MS, ..LOAD }.open(1_000.0);
    assert_eq!((recorder.warm_up, recorder.calls, stats.due, stats.unsent), (50, 201, 201, 0));
}
