//! The calls of `weir.v1`, from the encoded message to the encoded answer, for every surface.

pub mod answer;
pub mod batch;
pub mod call;
pub mod reservation;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tonic::Code;
use weir_store::Store;

use super::{
    admin::AdminService,
    audit::Actor,
    calls::Call,
    check_service::CheckService,
    message::{encoded, read, read_with_check},
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
    /// [`Rejected`] if the request is invalid, the store fails, or the call is answered by its surface.
    pub async fn answer(&self, call: Call, message: Bytes, actor: &Actor) -> Result<BytesMut, Rejected> {
        let Self { checks, admin } = self;
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
            Call::ListKeys => Ok(encoded(&Box::pin(admin.list_keys(&read(&message)?)).await?)),
            Call::ListHolds => Ok(encoded(&Box::pin(admin.list_holds(read(&message)?)).await?)),
            Call::ListHotKeys => Ok(encoded(&Box::pin(admin.list_hot_keys(&read(&message)?)).await?)),
            Call::ListReplicas => Ok(encoded(&Box::pin(admin.list_replicas(&read(&message)?)).await)),
            Call::SetOverride => Ok(encoded(&Box::pin(admin.set_override(read(&message)?, actor)).await?)),
            Call::EndOverride => Ok(encoded(&Box::pin(admin.end_override(&read(&message)?, actor)).await?)),
            Call::ListOverrides => Ok(encoded(&Box::pin(admin.list_overrides(read(&message)?)).await?)),
            Call::ListAudit => Ok(encoded(&Box::pin(admin.list_audit(&read(&message)?)).await?)),
            Call::CheckStream | Call::Lease | Call::ShouldRateLimit | Call::StreamRateLimitQuotas => {
                Err(Rejected::new(Code::Unimplemented, format!("{} is not served here", call.path())))
            }
        }
    }
}
