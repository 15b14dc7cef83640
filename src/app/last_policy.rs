//! The last policy of a control plane, kept in a file for the next start.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};
use weir_policy::{Loaded, Rules};
use weir_settings::file::is_set;

use super::policy::log_problems;
use crate::xds::{self, DiscoveryResponse, XdsSettings};

/// The file `xds.last_policy_file`, if configured. A write may hang, as on a network mount whose server is gone, so
/// neither acknowledging nor applying a policy waits for it.
#[derive(Clone)]
pub(super) struct LastPolicy {
    path: Option<PathBuf>,
    writes: Arc<Mutex<Writes>>,
}

#[derive(Default)]
struct Writes {
    /// The policy to write next.
    newest: Option<DiscoveryResponse>,
    is_writing: bool,
}

impl LastPolicy {
    /// Creates the handle of the file in these settings.
    pub(super) fn new(settings: &XdsSettings) -> Self {
        let path = Some(&settings.last_policy_file).filter(|path| is_set(path));
        Self { path: path.cloned(), writes: Arc::default() }
    }

    /// Loads the kept policy, if there is a valid one. Blocks the thread.
    pub(super) fn load(&self, rules: &Rules) -> Option<Loaded> {
        let path = self.path.as_ref()?;
        match xds::last::load(path) {
            Ok(response) => match xds::compile(&response?, rules) {
                Ok(loaded) => {
                    info!(path = %path.display(), "starting with the last policy that the control plane sent");
                    return Some(loaded);
                }
                Err(problems) => log_problems(&problems, "the policy in xds.last_policy_file is not valid: ignored"),
            },
            Err(cause) => error!(path = %path.display(), %cause, "xds.last_policy_file cannot be read: ignored"),
        }
        None
    }

    /// Replaces the kept policy. It is written on a thread of the blocking pool, one policy at a time; of those that
    /// arrive during a write, the newest is written next.
    pub(super) fn keep(&self, response: DiscoveryResponse) {
        let Some(path) = self.path.clone() else { return };
        let mut writes = self.writes.lock();
        if writes.newest.replace(response).is_some() {
            warn!(path = %path.display(), "xds.last_policy_file takes too long to write: a policy was not kept, a newer one will be");
        }
        if writes.is_writing {
            return;
        }
        writes.is_writing = true;
        let writes = Arc::clone(&self.writes);
        spawn_blocking(move || {
            while let Some(response) = next(&writes) {
                if let Err(cause) = xds::last::keep(&path, &response) {
                    error!(path = %path.display(), %cause, "the policy cannot be kept in xds.last_policy_file; a restart needs the control plane");
                }
            }
        });
    }
}

/// Takes the policy to write next; without one, the writing ends.
fn next(writes: &Mutex<Writes>) -> Option<DiscoveryResponse> {
    let mut writes = writes.lock();
    writes.is_writing = writes.newest.is_some();
    writes.newest.take()
}
