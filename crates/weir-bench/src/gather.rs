//! What is counted on the threads comes together here, while they work.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use super::{
    live::Live,
    processor,
    report::Measured,
    tally::{Meter, Tally},
    turns::{Paced, Stop},
    wire::line::Losses,
    worker::{Carried, Running, Work, Worker},
};
use crate::{Failure, signals::Signals};

/// How often what was counted is taken from the threads.
const EVERY: Duration = Duration::from_secs(1);

/// Gathers what threads count.
pub struct Gathering {
    carried: Carried,
    losses: Losses,
    stop: Stop,
    server_pid: Option<u32>,
    live: Live,
    total: Tally,
    /// Of the last second.
    recent: Tally,
    /// What is left with a thread in exchange for what it has counted.
    spare: Tally,
}

/// Processor time used so far.
#[derive(Clone, Copy, Default)]
struct Used {
    generator: Duration,
    server: Option<Duration>,
}

impl Gathering {
    /// # Errors
    /// Never; the bounds of histograms are fixed.
    pub fn new(work: &Work, server_pid: Option<u32>, live: Live) -> Result<Self, Failure> {
        let Work { carried, losses, stop, .. } = work.clone();
        let (total, recent, spare) = (Tally::new()?, Tally::new()?, Tally::new()?);
        Ok(Self { carried, losses, stop, server_pid, live, total, recent, spare })
    }

    /// Makes the load, to its end or the first signal. A second signal ends it at once, with the exit code that tells of it.
    ///
    /// # Errors
    /// When a thread of the generator fails.
    pub async fn measure(
        mut self,
        workers: Vec<Worker>,
        signals: &mut Signals,
    ) -> Result<Result<Measured, u8>, Failure> {
        let start = Instant::now();
        let (mut ends, mut meters) = (Vec::new(), Vec::new());
        for worker in workers {
            let Running { meter, ended } = worker.start(start);
            meters.push(meter);
            ends.push(ended);
        }
        let meters: Vec<_> = meters.iter().map(AsRef::as_ref).collect();
        let measured_from = start + self.carried.warm_up;
        let end = measured_from + self.carried.duration;
        let (mut before, mut stopped, mut last) = (None, None, start);
        let mut ticks = interval_at((start + EVERY).into(), EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut all_ended = std::pin::pin!(try_join_all(ends.into_iter().map(Running::end)));
        let paced = loop {
            tokio::select! {
                biased;
                () = sleep_until(measured_from.into()), if before.is_none() => before = Some(self.used()),
                () = sleep_until(end.into()), if stopped.is_none() => {
                    stopped = Some((end, false));
                    self.stop.set();
                }
                code = signals.next() => {
                    if stopped.is_some_and(|(_, interrupted)| interrupted) {
                        return Ok(Err(code));
                    }
                    stopped = Some((Instant::now().min(end), true));
                    self.stop.set();
                }
                paced = &mut all_ended => break paced?,
                _ = ticks.tick() => {
                    let now = Instant::now();
                    self.gather(&meters, start.elapsed().as_secs(), now - last)?;
                    last = now;
                }
            }
        };
        self.gather(&meters, 0, Duration::ZERO)?;
        self.live.conclude();
        self.conclude(start, stopped.unwrap_or((end, false)), before, paced).map(Ok)
    }

    fn used(&self) -> Used {
        Used {
            generator: processor::own(),
            // A service that has gone meanwhile is told of by the errors.
            server: self.server_pid.and_then(|pid| processor::of_process(pid).ok()),
        }
    }

    /// Takes what was counted. Where some time has passed, it is told as how that time went.
    fn gather(&mut self, meters: &[&Meter], second: u64, passed: Duration) -> Result<(), Failure> {
        self.recent.clear();
        for meter in meters {
            self.spare.clear();
            meter.swap(&mut self.spare);
            self.recent.add(&self.spare)?;
        }
        if !passed.is_zero() {
            self.live.say(second, &self.recent, passed.as_secs_f64());
        }
        Ok(self.total.add(&self.recent)?)
    }

    fn conclude(
        self,
        start: Instant,
        (stopped, interrupted): (Instant, bool),
        before: Option<Used>,
        each_paced: Vec<Paced>,
    ) -> Result<Measured, Failure> {
        let after = self.used();
        let before = before.unwrap_or(after);
        let duration = stopped.saturating_duration_since(start + self.carried.warm_up);
        let last = Duration::from_nanos(self.total.last).saturating_sub(self.carried.warm_up);
        let mut paced = Paced::new()?;
        for one in &each_paced {
            paced.add(one)?;
        }
        let lost = self.losses.lock().clone();
        Ok(Measured {
            paced: self.carried.rate.map(|_| paced),
            lost,
            before: 0,
            duration,
            elapsed: duration.max(last),
            generator: after.generator.saturating_sub(before.generator),
            server: after.server.zip(before.server).map(|(after, before)| after.saturating_sub(before)),
            interrupted,
            tally: self.total,
        })
    }
}
