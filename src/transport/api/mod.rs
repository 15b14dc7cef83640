//! The calls of `weir.v1`, from the encoded message to the encoded answer, for every surface.

pub mod answer;
pub mod batch;
pub mod call;
pub mod reservation;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir_store::Store;

use super::{
    admin::AdminService, audit::Actor, calls::Call, check_service::CheckService, message::read_with_check,
    status::Rejected,
};

/// The services that answer calls.
pub struct Services<S> {
    /// The check service.
    pub checks: CheckService<S>,
    /// The operators' API.
    pub admin: Arc<AdminService>,
}

impl<S: Store> Services<S> {
    /// Answers a call of `actor`. The futures of all calls but a check are boxed, so that a check's future does not have
    /// their size.
    ///
    /// # Errors
    /// [`Rejected`] if the request is invalid or the store fails.
    pub async fn answer(&self, call: Call, message: Bytes, actor: &Actor) -> Result<BytesMut, Rejected> {
        let checks = &self.checks;
        match call {
            Call::Check => call::check(checks, message).await,
            Call::CheckBatch => Box::pin(batch::check_batch(checks, message)).await,
            Call::CheckAll => Box::pin(batch::check_all(checks, message)).await,
            Call::Reserve => {
                Box::pin(reservation::reserve(checks, read_with_check(&message), actor, |_, out| out)).await
            }
            Call::Commit => Box::pin(reservation::commit(checks, &message, actor)).await,
            Call::Cancel => Box::pin(reservation::cancel(checks, &message, actor)).await,
            Call::Extend => Box::pin(reservation::extend(checks, &message, actor)).await,
            Call::Reset => Box::pin(call::reset(checks, &message, actor)).await,
            Call::Suggest => call::suggest(checks, &message),
            call => Box::pin(self.admin.answer(call, &message, actor)).await,
        }
    }
}
