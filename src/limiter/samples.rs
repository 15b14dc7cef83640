//! Samples decisions if the explorer is enabled: hot keys, and the checks of the last minutes.

use weir_core::domain::Key;
use weir_store::Store;

use super::{Answer, DescriptorAnswer, LevelAnswer, Limiter, Request, Resolved};
use crate::telemetry::{HotKeys, Sample, Terms};

impl<S: Store> Limiter<S> {
    /// Samples a request and its key. Previews and refunds do not make a key hot.
    #[inline]
    pub(super) fn sample(&self, request: &Request<'_>, answer: &Answer<'_>) {
        if let Some(recent_checks) = &self.recent_checks
            && request.cost != 0
            && request.spec.is_none()
        {
            let Request { cost, max_wait, factor, .. } = *request;
            let allowed = answer.summary.decision.allowed;
            recent_checks.record(&request.key, &Terms { cost, max_wait, factor, allowed });
        }
        if let Some(keys) = &self.hot_keys
            && request.cost > 0
            && let Some(weight) = keys.sample_weight()
        {
            let key = &request.key;
            // Segments of a key are UTF-8.
            let segment = |index| std::str::from_utf8(key.segment(index)).unwrap_or_default();
            sample_levels(keys, weight, (&request.domain, key), &answer.levels, (0..key.depth()).map(segment));
        }
    }

    /// Samples the keys of the descriptors of a request.
    pub(super) fn sample_descriptors(&self, request: &Resolved<'_>, statuses: &[DescriptorAnswer<'_>]) {
        if let Some(recent_checks) = &self.recent_checks {
            for (found, status) in request.descriptors.iter().zip(statuses) {
                let (cost, allowed) = (found.descriptor.hits, status.summary.decision.allowed);
                let Some(key) = found.key.as_ref().filter(|_| cost > 0) else { continue };
                recent_checks.record(key, &Terms { cost, max_wait: None, factor: 1.0, allowed });
            }
        }
        let Some(keys) = &self.hot_keys else { return };
        let Some(weight) = keys.sample_weight() else { return };
        let domain = request.domain.map_or("", |domain| &domain.name);
        for (found, status) in request.descriptors.iter().zip(statuses) {
            let Some(key) = found.key.as_ref().filter(|_| found.descriptor.hits > 0) else { continue };
            let segments = found.descriptor.entries.iter().flat_map(|(key, value)| [&**key, &**value]);
            sample_levels(keys, weight, (domain, key), &status.levels, segments);
        }
    }
}

#[cold]
fn sample_levels<'s>(
    keys: &HotKeys,
    weight: u32,
    (domain, key): (&str, &Key),
    levels: &[LevelAnswer<'_>],
    segments: impl Iterator<Item = &'s str> + Clone,
) {
    for LevelAnswer { limit, depth, shadow, decision, .. } in levels {
        let depth = usize::from(*depth);
        let name = [key.prefix(depth), limit.ident()];
        let sample = Sample { domain, limit: &limit.name, shadow: *shadow, name, decision: *decision };
        keys.record(weight, &sample, segments.clone().take(depth));
    }
}
