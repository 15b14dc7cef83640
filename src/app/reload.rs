//! Puts a changed policy in force; a bad one changes nothing.

use std::{future::pending, path::PathBuf, sync::Arc};

use tokio::{signal::unix::Signal, time::sleep};
use tracing::{error, info, warn};

use crate::{
    config::Settings,
    limiter::Limiter,
    policy::{self, Policy, Problems},
    settings::Watch,
    store::AnyStore,
};

/// What it takes to keep a policy up to date.
pub struct Reload {
    pub limiter: Arc<Limiter<AnyStore>>,
    pub settings: Settings,
    /// Without a policy there is nothing to watch.
    pub watch: Option<Watch>,
    pub hangup: Option<Signal>,
    /// The files that held nothing when the policy in force was loaded.
    pub empty: Vec<PathBuf>,
}

/// Loads the policy of these settings, and tells what a person should know of it: the policy, and its files that hold
/// nothing.
pub fn load(settings: &Settings) -> Result<(Policy, Vec<PathBuf>), Problems> {
    let loaded = policy::load_merging(&settings.limits, &settings.bounds(), settings.envoy.merge_domains)?;
    for skipped in &loaded.skipped {
        info!(path = %skipped.display(), "no policy file, passed over");
    }
    for empty in &loaded.empty {
        warn!(path = %empty.display(), "the policy file holds nothing, and so limits nothing");
    }
    Ok((loaded.policy, loaded.empty))
}

impl Reload {
    /// Looks for changes, and listens to SIGHUP, for ever.
    pub async fn run(mut self) {
        let mut hangup = self.hangup.take();
        let Some(mut watch) = self.watch.take() else {
            // SIGHUP would end a process that does not listen to it.
            loop {
                next(&mut hangup).await;
                info!("no policy to reload");
            }
        };
        let poll = self.settings.limits_poll.duration();
        loop {
            let asked = tokio::select! {
                () = next(&mut hangup) => true,
                () = sleep(watch.pause(poll)) => false,
            };
            let looked = tokio::task::spawn_blocking(move || {
                let changed = watch.settled_change();
                if asked {
                    watch.load_anyway();
                }
                if changed || asked {
                    self.put_in_force();
                }
                (self, watch)
            });
            match looked.await {
                Ok(back) => (self, watch) = back,
                Err(cause) => {
                    error!(%cause, "the policy is not watched any more");
                    return;
                }
            }
        }
    }

    fn put_in_force(&mut self) {
        match self.load_again() {
            Ok(policy) => {
                info!(domains = policy.domains().count(), limits = policy.limit_count(), "policy reloaded");
                self.limiter.replace_policy(policy);
                self.limiter.metrics().policy_reload(true);
            }
            Err(problems) => {
                for problem in &problems.0 {
                    error!(%problem, "the policy on disk is not valid; the one before stays in force");
                }
                self.limiter.metrics().policy_reload(false);
            }
        }
    }

    /// A file that has become empty is taken for one that is being written.
    fn load_again(&mut self) -> Result<Policy, Problems> {
        let (policy, empty) = load(&self.settings)?;
        if let Some(emptied) = empty.iter().find(|path| !self.empty.contains(path)) {
            return Err(Problems::of_file(emptied, "the file holds nothing; to lift all limits write `schema: {}`"));
        }
        self.empty = empty;
        Ok(policy)
    }
}

/// Waits for the signal, for ever where there is none.
pub async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}
