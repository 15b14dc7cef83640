//! Policies: files written by operators, compiled into a tree that is walked along a key.
//!
//! [`fn@load`] reads a file or a directory; [`mod@file`] reads the native format, [`limits`], `legacy` and `o1s` its
//! limits, [`descriptors`] the format of Envoy's rate-limit service. [`tree`] is the compiled form that checks use,
//! [`RequestLimits`] the limits of a request, [`overrides`] the temporary changes by operators. [`watch`] notices
//! changes of files, [`lint`] warns, `suggestion` suggests keys for one that meets no limit.

#![cfg_attr(not(test), warn(unreachable_pub))]

pub mod descriptors;
mod diff;
pub mod file;
pub mod lease;
mod legacy;
pub mod limits;
pub mod lint;
mod load;
mod o1s;
pub mod overrides;
mod request_limits;
mod suggestion;
pub mod tree;
pub mod watch;

use std::{collections::HashMap, sync::Arc};

pub use diff::{Diff, Difference};
pub use legacy::Bucket as LegacyBucket;
pub use limits::ParsedLimit;
pub use load::{HOLDS_NOTHING, Loaded, Rules, Tests, TextHash, load, parse, skipped};
pub use overrides::Overrides;
pub use request_limits::{RequestLimits, RequestLimitsError};
pub use suggestion::Suggestion;
pub use tree::Domain;

use weir_core::plan::Limit;

/// The policy: all domains that are served.
#[derive(Debug)]
pub struct Policy {
    domains: Arc<Domains>,
    limits: u32,
    denies_specs: bool,
    overrides: Overrides,
}

#[derive(Debug)]
struct Domains {
    default: Option<Domain>,
    named: HashMap<Box<str>, Domain, foldhash::fast::RandomState>,
}

impl Policy {
    /// Makes the policy without limits: the default domain alone, where every request passes.
    pub fn empty() -> Self {
        Self::new([Domain::new("")])
    }

    /// Makes a policy of these domains. Their names must differ.
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Self {
        let mut domains: Vec<_> = domains.into_iter().collect();
        // Sorted, so that the indexes of limits are the same in every run.
        domains.sort_by(|a, b| a.name.cmp(&b.name));
        let mut limits = 0;
        let (mut default, mut named) = (None, HashMap::default());
        for (index, mut domain) in domains.into_iter().enumerate() {
            domain.index = index as u32;
            for limit in domain.limits_mut() {
                limit.index = limits;
                limits += 1;
            }
            domain.number_copies();
            if domain.name.is_empty() {
                default = Some(domain);
            } else {
                named.insert(domain.name.clone(), domain);
            }
        }
        Self {
            domains: Arc::new(Domains { default, named }),
            limits,
            denies_specs: false,
            overrides: Overrides::none(),
        }
    }

    /// Applies `rules.denies_specs`, for the domains that do not set `limit_spec` and for undefined ones.
    #[must_use]
    pub fn under(self, rules: &Rules) -> Self {
        Self { denies_specs: rules.denies_specs, ..self }
    }

    /// Returns the same policy with these overrides, which replace all others.
    #[must_use]
    pub fn overridden(&self, overrides: Overrides) -> Self {
        Self { domains: Arc::clone(&self.domains), overrides, ..*self }
    }

    /// Returns the overrides.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Whether requests in this domain (`None`: an undefined one) may have their own limits.
    pub fn allows_spec(&self, domain: Option<&Domain>) -> bool {
        domain.and_then(|domain| domain.allows_spec).unwrap_or(!self.denies_specs)
    }

    /// Whether this is the placeholder for a policy that has not been received yet ([`Loaded::awaited`]): without any
    /// domain.
    pub fn is_awaited(&self) -> bool {
        self.domains.default.is_none() && self.domains.named.is_empty()
    }

    /// Returns the domain of this name.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        // No look-up of the default domain: a comparison of empty names passes a dangling pointer to memcmp with
        // length 0, which takes 100 ns on some CPUs.
        if name.is_empty() { self.domains.default.as_ref() } else { self.domains.named.get(name) }
    }

    /// Returns the domains, in no order; [`Domain::index`] numbers them from 0 without gaps.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.default.iter().chain(self.domains.named.values())
    }

    /// Returns every limit with its domain; [`Limit::index`] numbers them from 0 without gaps.
    pub fn limits(&self) -> impl Iterator<Item = (&Domain, &Limit)> {
        self.domains().flat_map(|domain| domain.limits().map(move |limit| (domain, limit)))
    }

    /// Returns the number of limits.
    pub fn limit_count(&self) -> usize {
        self.limits as usize
    }
}
