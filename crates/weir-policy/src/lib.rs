//! Policies: what operators write, compiled into a tree that a key is walked down.
//!
//! [`mod@file`], [`limits`], `legacy` and `o1s` give it meaning, [`descriptors`] that of
//! Envoy's rate-limit service, [`tree`] is what checks use, [`fn@load`] reads a file or a directory, [`watch`] notices changes,
//! [`lint`] tells what a person should know, `near` finds what an unlimited key may have meant, [`Spec`] is for limits that a request brings along.

#![cfg_attr(not(test), warn(unreachable_pub))]

pub mod descriptors;
mod diff;
pub mod file;
pub mod lease;
mod legacy;
pub mod limits;
pub mod lint;
mod load;
mod near;
mod o1s;
pub mod overrides;
mod spec;
pub mod tree;
pub mod watch;

use std::{collections::HashMap, sync::Arc};

pub use diff::{Diff, Difference};
pub use legacy::Bucket as LegacyBucket;
pub use limits::WrittenLimit;
pub use load::{HOLDS_NOTHING, Loaded, Rules, Tests, TextHash, load, parse, skipped};
pub use near::Near;
pub use overrides::Overrides;
pub use spec::{Spec, SpecError};
pub use tree::Domain;

use weir_core::plan::Limit;

/// Every domain that is served.
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
    /// The policy without any limit: the default domain, in which everything passes.
    pub fn empty() -> Self {
        Self::new([Domain::new("")])
    }

    /// A policy of these domains, whose names differ.
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Self {
        let mut domains: Vec<_> = domains.into_iter().collect();
        // So that limits have the same numbers in every run.
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

    /// The same under these rules, for what they say of its domains and of those that it does not define.
    #[must_use]
    pub fn under(self, rules: &Rules) -> Self {
        Self { denies_specs: rules.denies_specs, ..self }
    }

    /// The same policy under these overrides, in place of others.
    #[must_use]
    pub fn overridden(&self, overrides: Overrides) -> Self {
        Self { domains: Arc::clone(&self.domains), overrides, ..*self }
    }

    /// The overrides.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Whether requests in this domain (`None`: one that is not defined) may bring limits of their own.
    pub fn allows_spec(&self, domain: Option<&Domain>) -> bool {
        domain.and_then(|domain| domain.allows_spec).unwrap_or(!self.denies_specs)
    }

    /// Whether this stands for a policy that has not been received yet ([`Loaded::awaited`]): it defines no domain at all.
    pub fn is_awaited(&self) -> bool {
        self.domains.default.is_none() && self.domains.named.is_empty()
    }

    /// The domain of this name.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        // No look-up for the usual one: to compare empty names, libc reads nothing from an address that is none, and that
        // takes some processors 100 ns.
        if name.is_empty() { self.domains.default.as_ref() } else { self.domains.named.get(name) }
    }

    /// The domains, in no order; [`Domain::index`] numbers them from 0 without a gap.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.default.iter().chain(self.domains.named.values())
    }

    /// Every limit with its domain; [`Limit::index`] numbers them from 0 without a gap.
    pub fn limits(&self) -> impl Iterator<Item = (&Domain, &Limit)> {
        self.domains().flat_map(|domain| domain.limits().map(move |limit| (domain, limit)))
    }

    /// How many limits there are.
    pub fn limit_count(&self) -> usize {
        self.limits as usize
    }
}
