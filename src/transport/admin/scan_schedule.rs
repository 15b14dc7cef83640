//! Schedules the pages of scans: one at a time with a pause after each, so that their load on a shared store is
//! bounded.

use std::time::Duration;

use tokio::{
    sync::{Mutex, Semaphore},
    time::{Instant, sleep_until},
};
use weir_server::Overload;

/// Maximum number of calls that wait for their turn.
const MAX_WAITING: usize = 16;
/// Pause after a page, as a multiple of its duration, and the maximum pause.
const PAUSE: (u32, Duration) = (3, Duration::from_millis(250));

/// The schedule of this replica.
pub(super) struct ScanSchedule {
    /// Time at which the next page may start.
    next: Mutex<Instant>,
    /// Permits for the page in flight and for waiting ones.
    places: Semaphore,
}

impl Default for ScanSchedule {
    fn default() -> Self {
        Self { next: Mutex::new(Instant::now()), places: Semaphore::new(1 + MAX_WAITING) }
    }
}

impl ScanSchedule {
    /// Reads a page when it is its turn. With `pauses`, the next page has to wait for a while afterwards.
    ///
    /// # Errors
    /// [`Overload`] if too many wait.
    pub(super) async fn run<T>(&self, pauses: bool, page: impl Future<Output = T>) -> Result<T, Overload> {
        let _place = self.places.try_acquire().map_err(|_| Overload::Concurrency)?;
        let next = self.next.lock().await;
        sleep_until(*next).await;
        let since = Instant::now();
        // Also after a page whose call has ended before: the store was asked for it.
        let _paused = scopeguard::guard(next, |mut next| {
            if pauses {
                *next = Instant::now() + (PAUSE.0 * since.elapsed()).min(PAUSE.1);
            }
        });
        Ok(page.await)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures_util::future::join_all;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pages_are_paced_and_a_bounded_number_waits() {
        let (schedule, in_flight, since) = (ScanSchedule::default(), AtomicUsize::new(0), Instant::now());
        let page = || async {
            assert_eq!(in_flight.fetch_add(1, Ordering::Relaxed), 0);
            tokio::time::sleep(Duration::from_millis(20)).await;
            in_flight.fetch_sub(1, Ordering::Relaxed);
        };
        let done = join_all((0..=MAX_WAITING + 1).map(|_| schedule.run(true, page()))).await;
        assert_eq!(done.iter().filter(|page| page.is_err()).count(), 1);
        let pages = MAX_WAITING as u32 + 1;
        let expected = Duration::from_millis(20) * pages + Duration::from_millis(60) * (pages - 1);
        assert!(since.elapsed() >= expected && since.elapsed() < expected + Duration::from_millis(99));
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_cut_off_is_followed_by_its_pause() {
        let schedule = ScanSchedule::default();
        let cut = timeout(Duration::from_millis(20), schedule.run(true, pending::<()>())).await;
        let since = Instant::now();
        let next = schedule.run(true, async {}).await;
        assert!(cut.is_err() && next.is_ok() && since.elapsed() >= Duration::from_millis(60), "{:?}", since.elapsed());
    }
}
