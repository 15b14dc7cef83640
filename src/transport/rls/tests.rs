//! Fixtures of the tests of responses: a limiter with a policy file of descriptors.

use std::{fs, sync::Arc};

use futures_util::FutureExt;
use weir_core::domain::ManualClock;
use weir_policy::Rules;
use weir_store::{MemoryStore, memory::MemorySettings};

use super::wire::RateLimitRequest;
use crate::{
    limiter::{Descriptor, DescriptorAnswers, DescriptorsRequest, Limiter},
    telemetry::Metrics,
};

/// A limiter with a policy file of descriptors, and its own counters.
pub struct Scene(Limiter<MemoryStore<Arc<ManualClock>>>);

impl Scene {
    /// Returns a limiter with this file.
    pub fn new(file: &str) -> Self {
        Self::under(&Rules::default(), file)
    }

    /// Returns a limiter with this file, read by these rules.
    pub fn under(rules: &Rules, file: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("limits.yaml"), file).unwrap();
        let policy = weir_policy::load(dir.path(), rules).unwrap().policy;
        Self(Limiter::new(MemoryStore::new(MemorySettings::default(), Arc::default()), policy, Metrics::new()))
    }

    /// Applies `tell` to the answer to a request.
    pub fn answered<T>(&self, request: &RateLimitRequest, tell: impl FnOnce(&DescriptorAnswers<'_>) -> T) -> T {
        let handle = self.0.policy();
        let resolved = request.query.resolve(&handle.policy).unwrap();
        let statuses =
            self.0.check_descriptors(&handle, &resolved).outcome(&handle).now_or_never().expect("memory does not wait");
        tell(&statuses.unwrap())
    }
}

/// Returns a request in the domain `d`: a descriptor `key=v` with one hit for each key.
pub fn request_for(keys: &[&str]) -> RateLimitRequest {
    let entries = |key: &str| vec![(key.to_owned(), "v".to_owned())];
    let descriptors = keys.iter().map(|key| Descriptor { entries: entries(key), hits: 1, over: None }).collect();
    RateLimitRequest {
        query: DescriptorsRequest { domain: "d".to_owned(), descriptors },
        hits_addend: 0,
        own_hits: vec![false; keys.len()],
    }
}
