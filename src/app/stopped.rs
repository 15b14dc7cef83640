//! How a service ended, and what ends it from within.

use std::{future::pending, panic::resume_unwind};

use tokio::{
    select,
    task::{JoinError, JoinSet},
};
use tracing::error;
use weir_store::SharedStore;

/// How a service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// As it was told to, and nothing is lost: the last snapshot is written, where one is configured.
    Gracefully,
    /// As it was told to, but the last snapshot could not be written.
    NotSaved,
    /// Since one of its background tasks panicked.
    Panicked,
}

/// Waits until one of these tasks panics, or one of the shared store's: without reloads, snapshots or the store's connections a
/// service would look healthy, and be wrong.
pub(super) async fn panicked(tasks: &mut JoinSet<()>, shared: Option<&SharedStore>) {
    let of_the_store = async {
        match shared {
            Some(shared) => shared.redis().panicked().await,
            None => pending().await,
        }
    };
    let error = select! {
        error = first_panic(tasks) => error.to_string(),
        () = of_the_store => "one of the store's".to_owned(),
    };
    error!(error, "a background task has panicked: the service stops, and should be started again");
}

/// The first that panics. Those that end otherwise are none of its concern.
async fn first_panic(tasks: &mut JoinSet<()>) -> JoinError {
    loop {
        match tasks.join_next().await {
            Some(Err(error)) => return error,
            Some(Ok(())) => {}
            None => return pending().await,
        }
    }
}

/// Lets the panic of a task that this one needs be its own, so that it ends the service. A task that is aborted ends with it.
pub(super) fn panic_as(needed: JoinError) {
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
}
