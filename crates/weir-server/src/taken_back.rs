//! Calls that a client takes back before the service has looked at them: that is how calls are made to cost something without
//! being answered (rapid reset). A connection that has too many of them is closed.

use std::num::NonZeroU32;

use tokio_util::sync::CancellationToken;
use weir_core::domain::time::SECOND;

use crate::rate::Rate;

/// Most such calls of a connection at once, and then a second.
// A client whose deadlines pass while this thread stands still takes back all it has under way at once, a few hundred, and is not
// to lose its connection for it.
const MAX_TAKEN_BACK: NonZeroU32 = NonZeroU32::new(256).unwrap();

/// Such calls of a connection.
#[derive(Debug)]
pub(crate) struct TakenBack {
    rate: Rate,
    too_many: CancellationToken,
}

impl TakenBack {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { rate: Rate::new(MAX_TAKEN_BACK, SECOND), too_many: CancellationToken::new() }
    }

    /// One more.
    pub(crate) fn count(&self) {
        if self.rate.take().is_err() {
            self.too_many.cancel();
        }
    }

    /// Waits until the connection has to be closed.
    pub(crate) async fn too_many(&self) {
        self.too_many.cancelled().await;
    }
}
