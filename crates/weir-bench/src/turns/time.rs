//! The time of a load: nanoseconds since it began.

use std::{future::Future, io, time::Instant};

use super::schedule::Nanos;

/// What the time is taken from. Tests own theirs.
pub trait Watch: Clone + Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Nanos;
}

/// What waits for a moment.
pub trait Alarm: Send {
    /// Waits until the watch shows `at`, or later.
    ///
    /// # Errors
    /// When the system's timer fails.
    fn until(&mut self, at: Nanos) -> impl Future<Output = io::Result<()>> + Send;
}

/// Real time.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    start: Instant,
}

impl Wall {
    /// Which is 0 at `start`.
    pub fn new(start: Instant) -> Self {
        Self { start }
    }
}

impl Watch for Wall {
    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }
}

pub use system::Timer;

/// A timer of the kernel's: the runtime's own knows whole milliseconds only, which is longer than most calls take.
#[cfg(target_os = "linux")]
mod system {
    use std::{io, time::Duration};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::net::unix::pipe::Receiver;

    use super::{Alarm, Nanos, Wall, Watch};

    /// See the module.
    pub struct Timer {
        wall: Wall,
        /// It is read as a pipe is: eight bytes when it has rung.
        fd: Receiver,
    }

    impl Timer {
        /// A timer of this runtime.
        ///
        /// # Errors
        /// When the system has none to give.
        pub fn new(wall: Wall) -> io::Result<Self> {
            let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
            Ok(Self { wall, fd: Receiver::from_owned_fd_unchecked(fd)? })
        }

        fn arm(&self, after: Nanos) -> io::Result<()> {
            let value = Timespec::try_from(Duration::from_nanos(after)).map_err(io::Error::other)?;
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }
    }

    impl Alarm for Timer {
        async fn until(&mut self, at: Nanos) -> io::Result<()> {
            loop {
                let now = self.wall.now();
                if now >= at {
                    return Ok(());
                }
                self.arm(at - now)?;
                self.fd.readable().await?;
                // How often it has rung does not matter; where it has not, it is waited for again.
                let _ = self.fd.try_read(&mut [0; 8]);
            }
        }
    }
}

/// The runtime's timer, to the millisecond.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::{io, time::Duration};

    use super::{Alarm, Nanos, Wall, Watch};

    /// See the module.
    pub struct Timer(Wall);

    impl Timer {
        /// A timer of this runtime.
        ///
        /// # Errors
        /// Never.
        pub fn new(wall: Wall) -> io::Result<Self> {
            Ok(Self(wall))
        }
    }

    impl Alarm for Timer {
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
    async fn the_timer_never_rings_early_and_rings_again() {
        let wall = Wall::new(Instant::now());
        let mut timer = Timer::new(wall).unwrap();
        for at in [0, 50_000, 60_000, 3_000_000, 3_000_001] {
            timer.until(at).await.unwrap();
            assert!(wall.now() >= at);
        }
    }
}
