//! The source of the policy: files, a control plane, or none.

use std::{path::Path, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::task::{JoinError, spawn_blocking};
use tracing::{info, warn};
use weir_policy::{Loaded, Rules};
use weir_settings::Problems;

use super::{
    AppError,
    last_policy::LastPolicy,
    outcome::resume_panic,
    policy::{self, NO_POLICY_YET, PolicyReloader, log_problems},
    readiness::Readiness,
    reload::FileReloader,
};
use crate::{
    config::Settings,
    telemetry::Metrics,
    xds::{self, Client, Start},
};

/// The source of the policy.
pub(super) enum Source {
    None,
    Files,
    ControlPlane(Box<Client>, LastPolicy),
}

impl Source {
    /// Opens the source that the settings name, and loads its first policy; with a control plane, it may still be
    /// awaited.
    ///
    /// # Errors
    /// The policy is invalid, or its source cannot be used.
    pub(super) async fn open(settings: &Settings, metrics: &Metrics) -> Result<(Self, Loaded), AppError> {
        let rules = settings.policy_rules();
        if !policy::is_named(settings)? {
            warn!("no policy (allow_all): every check in the default domain that brings no limits is allowed");
            return Ok((Self::None, Loaded::none(&rules)));
        }
        let Some(address) = settings.control_plane() else {
            let loaded = policy::load(settings).map_err(AppError::Policy)?;
            policy::warn_of_empty(&loaded.empty);
            return Ok((Self::Files, loaded));
        };
        let client = Client::new(address, &settings.xds, metrics.xds_connected());
        let mut client = Box::new(client.map_err(AppError::Setting)?);
        let last = LastPolicy::new(&settings.xds);
        let loaded = match (last.load(&rules), settings.xds.start) {
            (Some(loaded), _) => loaded,
            (None, Start::Ready | Start::NotReady) => Loaded::awaited(&rules),
            (None, Start::Wait) => {
                info!(control_plane = %settings.limits.display(), "waiting for a policy: the ports are closed until there is one");
                first(&mut client, &last, &rules, metrics).await
            }
        };
        Ok((Self::ControlPlane(client, last), loaded))
    }

    /// Returns the tasks that apply each further policy.
    pub(super) fn follow(
        self,
        mut policies: PolicyReloader,
        settings: &Settings,
        files: FileReloader,
        readiness: Readiness,
    ) -> Vec<BoxFuture<'static, ()>> {
        let poll = settings.limits_poll.duration();
        let settings = Arc::new(settings.clone());
        if matches!(self, Self::Files) {
            // The reloader has logged the problems.
            let apply = move |loaded| policies.reload(loaded).is_ok();
            return vec![files.run(poll, move || policy::load(&settings), apply).boxed()];
        }
        let mut tasks = vec![files.run(poll, || (), no_policy_to_reload).boxed()];
        if let Self::ControlPlane(client, last) = self {
            tasks.push(receive(*client, last, policies, settings, readiness).boxed());
        }
        tasks
    }
}

fn no_policy_to_reload((): ()) -> bool {
    info!("no policy to reload");
    true
}

/// Applies each policy of a control plane, forever.
async fn receive(
    mut client: Client,
    last: LastPolicy,
    mut policies: PolicyReloader,
    settings: Arc<Settings>,
    readiness: Readiness,
) {
    loop {
        let response = Arc::new(client.next().await);
        // Compiled and applied on the blocking pool, as both take a while for a large policy. A policy that makes the
        // compiler panic is rejected.
        let compiled = spawn_blocking({
            let (settings, response) = (Arc::clone(&settings), Arc::clone(&response));
            move || xds::compile(&response, &settings.policy_rules())
        });
        let unreadable = |cause: JoinError| Err(Problems::of_file(Path::new("xds"), cause.to_string()));
        let compiled = compiled.await.unwrap_or_else(unreadable);
        let applied = spawn_blocking(move || {
            let result = policies.reload(compiled);
            (policies, result)
        });
        let result = match applied.await {
            Ok((back, result)) => {
                policies = back;
                result
            }
            Err(cause) => return resume_panic(cause),
        };
        match result {
            Ok(()) => {
                client.accept(&response);
                last.keep(Arc::unwrap_or_clone(response));
                readiness.report_awaited_policy(false).await;
            }
            Err(problems) => client.reject(&response, &problems),
        }
    }
}

/// Waits for the first valid policy of a control plane.
async fn first(client: &mut Client, last: &LastPolicy, rules: &Rules, metrics: &Metrics) -> Loaded {
    loop {
        let response = client.next().await;
        match xds::compile(&response, rules) {
            Ok(loaded) => {
                client.accept(&response);
                metrics.policy_reload(true);
                last.keep(response);
                return loaded;
            }
            Err(problems) => {
                log_problems(&problems, NO_POLICY_YET);
                metrics.policy_reload(false);
                client.reject(&response, &problems);
            }
        }
    }
}
