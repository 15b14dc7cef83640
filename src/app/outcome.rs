//! The outcome of a service, and the panics that end it.

use std::{future::pending, panic::resume_unwind};

use futures_util::future::{OptionFuture, select_all};
use tokio::{
    select,
    task::{JoinError, JoinHandle, JoinSet},
};
use tracing::error;
use weir_store::SharedStore;

/// The outcome of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// Shut down as requested, without loss: the last snapshot is written, if one is configured.
    Gracefully,
    /// Shut down as requested, but the last snapshot could not be written.
    NotSaved,
    /// Shut down because a background task panicked.
    Panicked,
}

/// Waits until one of these tasks panics, or one of the shared store's. Without listeners, reloads, snapshots or
/// connections to the store, a service would seem healthy, and decide wrongly or not at all.
pub(super) async fn panicked(tasks: [&mut JoinSet<()>; 3], shared: Option<&SharedStore>) {
    let first_panic = select_all(tasks.map(|tasks| Box::pin(first_panic(tasks))));
    let of_the_store = OptionFuture::from(shared.map(|shared| shared.redis().panicked()));
    let error = select! {
        (error, ..) = first_panic => error.to_string(),
        Some(()) = of_the_store => "one of the store's".to_owned(),
    };
    error!(error, "a background task has panicked: the service stops, and should be started again");
}

/// Waits for the first panic, and ignores tasks that end otherwise.
async fn first_panic(tasks: &mut JoinSet<()>) -> JoinError {
    loop {
        match tasks.join_next().await {
            Some(Err(error)) => return error,
            Some(Ok(())) => {}
            None => return pending().await,
        }
    }
}

/// Waits for a task that the calling task needs, and resumes its panic, so that it ends the service.
pub(super) async fn needed(task: JoinHandle<()>) {
    task.await.unwrap_or_else(resume_panic);
}

/// Resumes the panic of a task that the calling task needs. A cancelled task does not panic.
pub(super) fn resume_panic(needed: JoinError) {
    if let Ok(panic) = needed.try_into_panic() {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_noticed_and_one_that_ends_is_not() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        tasks.spawn(pending());
        assert!(timeout(Duration::from_secs(1), first_panic(&mut tasks)).await.is_err());
        tasks.spawn(async { panic!("a fault") });
        let error = timeout(Duration::from_secs(1), first_panic(&mut tasks)).await.unwrap();
        assert!(error.is_panic());
        tasks.abort_all();
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_among_any_of_the_tasks_is_noticed() {
        for place in 0..3 {
            let mut sets: [JoinSet<()>; 3] = Default::default();
            for (number, tasks) in sets.iter_mut().enumerate() {
                let port = tokio::spawn(async move { assert!(number != place, "a fault") });
                tasks.spawn(needed(port));
                tasks.spawn(pending());
            }
            let [one, two, three] = &mut sets;
            timeout(Duration::from_secs(1), panicked([one, two, three], None)).await.expect("it is noticed");
        }
    }
}
