//! Tells of the keys that limits decide about, where somebody wants to know.

use weir_core::domain::Key;
use weir_store::Store;

use super::{Answer, LevelAnswer, Limiter, Request, Resolved, Status};
use crate::telemetry::{HotKeys, Sighting};

impl<S: Store> Limiter<S> {
    /// Of a request. Who peeks or gives back makes no key hot.
    #[inline]
    pub(super) fn follow(&self, request: &Request<'_>, answer: &Answer<'_>) {
        if let Some(keys) = &self.hot_keys
            && request.cost > 0
            && let Some(weight) = keys.due()
        {
            tell(keys, weight, request, answer);
        }
    }

    /// Of the descriptors of a request.
    pub(super) fn follow_descriptors(&self, request: &Resolved<'_>, statuses: &[Status<'_>]) {
        let Some(keys) = &self.hot_keys else { return };
        let Some(weight) = keys.due() else { return };
        for (found, status) in request.descriptors.iter().zip(statuses) {
            let Some(key) = found.key.as_ref().filter(|_| status.hits > 0) else { continue };
            let domain = request.domain.map_or("", |domain| &domain.name);
            for level in &status.levels {
                let segments = found.asked.entries.iter().flat_map(|(key, value)| [&**key, &**value]);
                let shadow = status.rule.map_or(level.limit.shadow, |rule| rule.shadow);
                keys.saw(weight, &sighting(domain, key, level, shadow), segments.take(level.depth.into()));
            }
        }
    }
}

#[cold]
fn tell(keys: &HotKeys, weight: u32, request: &Request<'_>, answer: &Answer<'_>) {
    for level in &answer.levels {
        let key = &request.key;
        // A key is made of texts.
        let segments = (0..level.depth.into()).map(|index| std::str::from_utf8(key.segment(index)).unwrap_or_default());
        let sighting = sighting(&request.domain, key, level, level.limit.shadow);
        keys.saw(weight, &sighting, segments);
    }
}

fn sighting<'a>(domain: &'a str, key: &'a Key, level: &'a LevelAnswer<'_>, shadow: bool) -> Sighting<'a> {
    let LevelAnswer { limit, depth, decision, .. } = level;
    let name = [key.prefix((*depth).into()), limit.ident()];
    Sighting { domain, limit: &limit.name, shadow, name, decision: *decision }
}
