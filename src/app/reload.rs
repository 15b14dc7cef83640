//! Reloads files when they change, or on SIGHUP.
//!
//! A read may hang, as on a network mount whose server is gone. So each reload reads on a thread of the blocking pool,
//! which is abandoned after a timeout; a later attempt reads on another thread.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::OptionFuture;
use metrics::Counter;
use tokio::{
    sync::{Semaphore, watch},
    task::spawn_blocking,
    time::{self, sleep, timeout},
};
use tracing::error;
use weir_settings::FileWatch;
use weir_telemetry::LogLimit;

use super::outcome::resume_panic;

/// Timeout of a read, including parsing.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of threads of one reload that hang in a read.
const MAX_HUNG_READS: usize = 32;
/// First and longest backoff after a failed read; it doubles in between.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Delay after which unusable files are read again although they have not changed: a moment without free file
/// descriptors must not keep revoked credentials valid.
const REREAD_DELAY: Duration = Duration::from_secs(60);
/// Interval between log lines about files that cannot be read.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Files to reload. Created before their first load, so that no change and no signal is missed.
pub(super) struct FileReloader {
    /// The setting that names the files, as logged.
    setting: &'static str,
    watch: FileWatch,
    hangups: watch::Receiver<()>,
    timeouts: Counter,
    timeout: Duration,
}

impl FileReloader {
    /// Creates a reload for the files of this watch, also at each change of `hangups`; `timeouts` counts reads that
    /// timed out.
    pub(super) fn new(
        setting: &'static str,
        watch: FileWatch,
        hangups: &watch::Receiver<()>,
        timeouts: Counter,
    ) -> Self {
        Self { setting, watch, hangups: hangups.clone(), timeouts, timeout: READ_TIMEOUT }
    }

    /// Polls the files every `poll`, or less often if there are very many, forever. `read` loads and `apply` applies;
    /// `apply` returns whether it could. The result of an abandoned read is dropped, because a later read may have seen
    /// newer files.
    pub(super) async fn run<T: Send + 'static>(
        self,
        poll: Duration,
        read: impl Fn() -> T + Clone + Send + 'static,
        mut apply: impl FnMut(T) -> bool + Send + 'static,
    ) {
        let Self { setting, mut watch, mut hangups, timeouts, timeout: read_timeout } = self;
        let (hung, log) = (Arc::new(Semaphore::new(MAX_HUNG_READS)), LogLimit::every(LOG_EVERY));
        let (mut requested, mut backoff, mut retry_at) = (false, BACKOFF.0, None);
        loop {
            requested |= pause(watch.pause(poll), &mut hangups).await;
            requested |= retry_at.is_some_and(|at| time::Instant::now() >= at);
            let mut reading = match Arc::clone(&hung).try_acquire_owned() {
                Err(_) => None,
                Ok(permit) => {
                    let (mut watch, read) = (watch.clone(), read.clone());
                    Some(spawn_blocking(move || {
                        let _permit = permit;
                        let changed = watch.settled_change();
                        if requested {
                            watch.load_anyway();
                        }
                        let read = (changed || requested).then(read);
                        (watch, read)
                    }))
                }
            };
            let done = match &mut reading {
                None => Err("too many reads of them hang".to_owned()),
                Some(reading) => match timeout(read_timeout, reading).await {
                    Ok(Ok(done)) => Ok(done),
                    Ok(Err(panicked)) => Err(panicked.to_string()),
                    Err(_) => {
                        timeouts.increment(1);
                        Err(format!("they are not read within {} s", read_timeout.as_secs()))
                    }
                },
            };
            match done {
                Ok((polled, read)) => {
                    (watch, requested, backoff) = (polled, false, BACKOFF.0);
                    if let Some(read) = read {
                        // On the blocking pool too, as applying a large policy takes a while.
                        let applied = spawn_blocking(move || {
                            let is_in_force = apply(read);
                            (apply, is_in_force)
                        });
                        let is_in_force;
                        (apply, is_in_force) = match applied.await {
                            Ok(done) => done,
                            Err(cause) => return resume_panic(cause),
                        };
                        retry_at = (!is_in_force).then(|| time::Instant::now() + REREAD_DELAY);
                    }
                }
                Err(cause) => {
                    if log.allows(Instant::now()) {
                        error!(setting, cause, "files cannot be read; what was loaded before stays in force");
                    }
                    let hanging = reading.filter(|reading| !reading.is_finished());
                    tokio::select! {
                        Some(_) = OptionFuture::from(hanging) => {}
                        requested_now = pause(backoff, &mut hangups) => requested |= requested_now,
                    }
                    backoff = BACKOFF.1.min(2 * backoff);
                }
            }
        }
    }
}

/// Waits for this time, or for a hangup: `true`.
async fn pause(time: Duration, hangups: &mut watch::Receiver<()>) -> bool {
    tokio::select! {
        // It fails if the thread that receives signals has died.
        Ok(()) = hangups.changed() => true,
        () = sleep(time) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    };

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_hanging_read_times_out_and_its_late_result_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "1").unwrap();
        let watch = FileWatch::new({
            let file = file.clone();
            move || vec![file.clone()]
        });
        let (timeouts, counted) = counter();
        let reload = FileReloader {
            timeout: Duration::from_millis(50),
            ..FileReloader::new("test", watch, &no_hangups(), timeouts)
        };
        // The first read hangs until it is released, and reports when it returns; the others do not hang.
        let (release, hanging) = mpsc::channel();
        let (hanging, returned) = (Arc::new(Mutex::new(Some(hanging))), Arc::new(AtomicBool::new(false)));
        let read = {
            let returned = Arc::clone(&returned);
            move || {
                let first = hanging.lock().unwrap().take();
                let is_first = first.is_some();
                first.into_iter().for_each(|hanging| hanging.recv().unwrap());
                returned.fetch_or(is_first, Ordering::SeqCst);
                is_first
            }
        };
        let applied = Arc::new(Mutex::new(Vec::new()));
        let apply = {
            let applied = Arc::clone(&applied);
            move |is_first| {
                applied.lock().unwrap().push(is_first);
                true
            }
        };
        let running = tokio::spawn(reload.run(Duration::from_millis(1), read, apply));
        let wait_for = async |condition: &dyn Fn() -> bool| {
            while !condition() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        std::fs::write(&file, "22").unwrap();
        wait_for(&|| !applied.lock().unwrap().is_empty()).await;
        assert!(counted() >= 1, "the first read was given up");
        release.send(()).unwrap();
        wait_for(&|| returned.load(Ordering::SeqCst)).await;
        std::fs::write(&file, "333").unwrap();
        wait_for(&|| applied.lock().unwrap().len() > 1).await;
        assert!(applied.lock().unwrap().iter().all(|is_first| !is_first), "what was read late is not put in force");
        running.abort();
    }

    #[tokio::test]
    async fn a_panic_of_what_puts_files_in_force_is_that_of_the_reload() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let reload = FileReloader::new("test", FileWatch::new(move || vec![path.clone()]), &no_hangups(), counter().0);
        let running = tokio::spawn(reload.run(Duration::from_millis(1), || (), |()| -> bool { panic!("a fault") }));
        std::fs::write(file.path(), "1").unwrap();
        let ended = timeout(Duration::from_secs(60), running).await.expect("it ends");
        assert!(ended.unwrap_err().is_panic());
    }

    #[tokio::test(start_paused = true)]
    async fn unusable_files_are_read_again_until_they_are_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let reload = FileReloader::new("test", FileWatch::new(move || vec![path.clone()]), &no_hangups(), counter().0);
        let (reads, applied) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let read = {
            let reads = Arc::clone(&reads);
            move || reads.fetch_add(1, Ordering::SeqCst)
        };
        let apply = {
            let applied = Arc::clone(&applied);
            move |read| applied.fetch_add(1, Ordering::SeqCst) == read && read >= 2
        };
        let started = time::Instant::now();
        let running = tokio::spawn(reload.run(Duration::from_millis(100), read, apply));
        std::fs::write(file.path(), "1").unwrap();
        while applied.load(Ordering::SeqCst) < 3 {
            sleep(Duration::from_millis(100)).await;
        }
        assert!(started.elapsed() >= 2 * REREAD_DELAY, "not at each look");
        sleep(3 * REREAD_DELAY).await;
        assert_eq!(reads.load(Ordering::SeqCst), 3, "no more once they are in force");
        running.abort();
    }

    fn no_hangups() -> watch::Receiver<()> {
        watch::channel(()).1
    }

    /// Returns a counter, and a function that reads it.
    fn counter() -> (Counter, impl Fn() -> u64) {
        let count = Arc::new(AtomicU64::new(0));
        (Counter::from_arc(Arc::clone(&count)), move || count.load(Ordering::Relaxed))
    }
}
