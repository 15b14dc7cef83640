//! Checks that are decided together: the CheckAll call.

use weir_store::Store;

use super::{
    CheckService,
    outcomes::{count, count_failed},
};
use crate::{
    limiter::{AllAnswers, Invalid},
    telemetry::Transport,
    transport::{
        decode::{self, Message},
        status::Rejected,
    },
};

impl<S: Store> CheckService<S> {
    /// Decides checks together and counts their common outcome. `encode` makes the surface's answer from the decisions,
    /// and from which checks want the summary only.
    ///
    /// # Errors
    /// [`Rejected`] if one of them is invalid or the store fails.
    pub async fn check_all<T>(
        &self,
        messages: Result<Vec<Message<'_>>, Invalid>,
        transport: Transport,
        encode: impl FnOnce(&AllAnswers<'_>, &[bool]) -> T,
    ) -> Result<T, Rejected> {
        let handle = self.limiter.policy_handle();
        let read = messages.iter().flatten();
        let summary_only: Vec<_> =
            read.map(|message| message.as_ref().is_ok_and(|message| message.summary_only)).collect();
        let failed = |error: Rejected, domain: Option<u32>| {
            count_failed(&handle, domain, transport, self.is_observed);
            error
        };
        let request = messages
            .and_then(|messages| decode::check_all(messages, &self.bounds))
            .map_err(|error| failed(error.into(), None))?;
        let all = self.outcome(&handle, self.limiter.check_all(&handle, &request)).await;
        let first = request.checks().first().and_then(|check| handle.policy.domain(&check.domain));
        let all = all.map_err(|error| failed(error, first.map(|domain| domain.index)))?;
        for (check, answer) in request.checks().iter().zip(&all.answers) {
            count(&handle, transport, check, Some((answer, all.allowed)), self.is_observed);
        }
        Ok(encode(&all, &summary_only))
    }
}
