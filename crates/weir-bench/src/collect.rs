//! Collects the threads' counts during the load.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use super::{
    cpu,
    live::Live,
    pacing::{ScheduleStats, Stop},
    recorder::{Counts, Recorder},
    report::Measured,
    wire::connection::Losses,
    worker::{Load, Work, Worker},
};
use crate::{Failure, Signals};

/// Interval at which the threads' counts are collected.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

/// The collector of the threads' counts.
pub(crate) struct Collector {
    load: Load,
    losses: Losses,
    stop: Stop,
    server_pid: Option<u32>,
    live: Live,
    total: Counts,
    /// The counts of the last interval.
    recent: Counts,
    /// Empty counts, to be swapped with a thread's counts.
    spare: Counts,
}

/// CPU time so far.
#[derive(Clone, Copy, Default)]
struct CpuUsed {
    generator: Duration,
    server: Option<Duration>,
}

impl Collector {
    /// Makes a collector with zero counts.
    ///
    /// # Errors
    /// Never; the bounds of histograms are fixed.
    pub(crate) fn new(work: &Work, server_pid: Option<u32>, live: Live) -> Result<Self, Failure> {
        let Work { load, losses, stop, .. } = work.clone();
        let (total, recent, spare) = (Counts::new()?, Counts::new()?, Counts::new()?);
        Ok(Self { load, losses, stop, server_pid, live, total, recent, spare })
    }

    /// Runs the load until it ends or the first signal. A second signal ends it immediately, with
    /// its exit code.
    ///
    /// # Errors
    /// A thread of the generator fails.
    pub(crate) async fn measure(
        mut self,
        workers: Vec<Worker>,
        signals: &mut Signals,
    ) -> Result<Result<Measured, u8>, Failure> {
        let start = Instant::now();
        let (recorders, ends): (Vec<_>, Vec<_>) = workers.into_iter().map(|worker| worker.start(start)).unzip();
        let recorders: Vec<_> = recorders.iter().map(AsRef::as_ref).collect();
        let measured_from = start + self.load.warm_up;
        let end = measured_from + self.load.duration;
        let (mut before, mut stopped, mut last) = (None, None, start);
        let mut ticks = interval_at((start + COLLECT_INTERVAL).into(), COLLECT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut all_ended = std::pin::pin!(try_join_all(ends));
        let schedule = loop {
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
                schedule = &mut all_ended => break schedule?,
                _ = ticks.tick() => {
                    let now = Instant::now();
                    self.collect(&recorders, start.elapsed().as_secs(), now - last)?;
                    last = now;
                }
            }
        };
        self.collect(&recorders, 0, Duration::ZERO)?;
        self.live.conclude();
        self.conclude(start, stopped.unwrap_or((end, false)), before, schedule).map(Ok)
    }

    fn used(&self) -> CpuUsed {
        CpuUsed {
            generator: cpu::own(),
            // If the service is gone, the errors show it.
            server: self.server_pid.and_then(|pid| cpu::of_process(pid).ok()),
        }
    }

    /// Collects the threads' counts, and prints them as the counts of the last `passed`, unless
    /// that is zero.
    fn collect(&mut self, recorders: &[&Recorder], second: u64, passed: Duration) -> Result<(), Failure> {
        self.recent.clear();
        for recorder in recorders {
            self.spare.clear();
            recorder.swap(&mut self.spare);
            self.recent.add(&self.spare)?;
        }
        if !passed.is_zero() {
            self.live.print(second, &self.recent, passed.as_secs_f64());
        }
        Ok(self.total.add(&self.recent)?)
    }

    fn conclude(
        self,
        start: Instant,
        (stopped, interrupted): (Instant, bool),
        before: Option<CpuUsed>,
        each_schedule: Vec<ScheduleStats>,
    ) -> Result<Measured, Failure> {
        let after = self.used();
        let before = before.unwrap_or(after);
        let duration = stopped.saturating_duration_since(start + self.load.warm_up);
        let last = Duration::from_nanos(self.total.last).saturating_sub(self.load.warm_up);
        let mut schedule = ScheduleStats::new()?;
        for one in &each_schedule {
            schedule.add(one)?;
        }
        let lost = self.losses.lock().clone();
        Ok(Measured {
            schedule: self.load.rate.map(|_| schedule),
            lost,
            before: 0,
            duration,
            elapsed: duration.max(last),
            generator: after.generator.saturating_sub(before.generator),
            server: after.server.zip(before.server).map(|(after, before)| after.saturating_sub(before)),
            interrupted,
            recorder: self.total,
        })
    }
}
