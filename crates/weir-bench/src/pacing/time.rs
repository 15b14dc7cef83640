//! Time since the start of the load, in nanoseconds.

use std::{future::Future, io, time::Instant};

use super::schedule::Nanos;

/// A clock. Tests have a virtual one.
pub(crate) trait Clock: Clone + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Nanos;
}

/// A timer that sleeps until a time.
pub(crate) trait Timer: Send {
    /// Returns at `at` or later.
    ///
    /// # Errors
    /// The system's timer fails.
    fn until(&mut self, at: Nanos) -> impl Future<Output = io::Result<()>> + Send;
}

/// The monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    start: Instant,
}

impl WallClock {
    /// Makes a clock that reads 0 at `start`.
    pub(crate) fn new(start: Instant) -> Self {
        Self { start }
    }
}

impl Clock for WallClock {
    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }
}

pub(crate) use system::SystemTimer;

/// A timer by timerfd: tokio's timer has a resolution of one millisecond, longer than most calls take.
#[cfg(target_os = "linux")]
mod system {
    use std::{io, time::Duration};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::net::unix::pipe::Receiver;

    use super::{Clock, Nanos, Timer, WallClock};

    /// The timer by timerfd.
    pub(crate) struct SystemTimer {
        clock: WallClock,
        /// Readable (eight bytes) once the timer has expired.
        fd: Receiver,
    }

    impl SystemTimer {
        /// Makes a timer of the current runtime.
        ///
        /// # Errors
        /// The system cannot create a timer.
        pub(crate) fn new(clock: WallClock) -> io::Result<Self> {
            let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            Ok(Self { clock, fd: Receiver::from_owned_fd_unchecked(fd)? })
        }

        fn arm(&self, after: Nanos) -> io::Result<()> {
            let value = Timespec::try_from(Duration::from_nanos(after)).map_err(io::Error::other)?;
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }
    }

    impl Timer for SystemTimer {
        async fn until(&mut self, at: Nanos) -> io::Result<()> {
            loop {
                let now = self.clock.now();
                if now >= at {
                    return Ok(());
                }
                self.arm(at - now)?;
                self.fd.readable().await?;
                // The number of expirations does not matter, and the loop checks the time again.
                let _ = self.fd.try_read(&mut [0; 8]);
            }
        }
    }
}

/// A timer by tokio, with a resolution of one millisecond.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::{io, time::Duration};

    use super::{Clock, Nanos, Timer, WallClock};

    /// The timer by tokio.
    pub struct SystemTimer(WallClock);

    impl SystemTimer {
        /// Makes a timer of the current runtime.
        ///
        /// # Errors
        /// Never.
        pub fn new(clock: WallClock) -> io::Result<Self> {
            Ok(Self(clock))
        }
    }

    impl Timer for SystemTimer {
        async fn until(&mut self, at: Nanos) -> io::Result<()> {
            tokio::time::sleep(Duration::from_nanos(at.saturating_sub(self.0.now()))).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_timer_is_reusable_and_never_early() {
        let clock = WallClock::new(Instant::now());
        let mut timer = SystemTimer::new(clock).unwrap();
        for at in [0, 50_000, 60_000, 3_000_000, 3_000_001] {
            timer.until(at).await.unwrap();
            assert!(clock.now() >= at);
        }
    }
}
