//! Checks that are decided together: the CheckAll call.

use weir_store::Store;

use super::{CheckService, outcomes::count};
use crate::{
    limiter::{AllAnswers, CheckError},
    telemetry::CallKind,
    transport::{
        decode::{self, Message},
        status::Rejected,
    },
};

impl<S: Store> CheckService<S> {
    /// Decides checks together and counts their common outcome for each, once if they cannot be read. `encode` makes
    /// the surface's answer from the decisions, and from which checks want the summary only.
    ///
    /// # Errors
    /// [`Rejected`] if one of them is invalid or the store fails.
    pub async fn check_all<T>(
        &self,
        messages: Result<Vec<Message<'_>>, CheckError>,
        transport: CallKind,
        encode: impl FnOnce(&AllAnswers<'_>, &[bool]) -> T,
    ) -> Result<T, Rejected> {
        let handle = self.limiter.policy();
        let read = messages.iter().flatten();
        let summary_only: Vec<_> =
            read.map(|message| message.as_ref().is_ok_and(|message| message.summary_only)).collect();
        let request = messages
            .and_then(|messages| decode::check_all(messages, &self.bounds))
            .inspect_err(|_| self.failed(&handle, None, transport))?;
        let all = self.outcome(&handle, self.limiter.check_all(&handle, &request)).await;
        for (index, check) in request.checks().iter().enumerate() {
            let answer = all.as_ref().ok().and_then(|all| Some((all.answers.get(index)?, all.allowed)));
            count(&handle, transport, check, answer, self.is_observed);
        }
        Ok(encode(&all?, &summary_only))
    }
}
