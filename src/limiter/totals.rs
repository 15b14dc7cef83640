//! Totals of the decisions of each limit.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_core::domain::Micros;
use weir_policy::Policy;

use super::{Answer, Request};

/// The totals of one limit.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LimitTotals {
    /// Checks that it allowed.
    pub allowed: u64,
    /// Checks that it refused, or would have refused if it were not in shadow mode.
    pub refused: u64,
    /// Time of its first refusal, in microseconds.
    pub first_refusal_us: Option<Micros>,
}

impl LimitTotals {
    /// Counts a decision.
    pub fn count(&mut self, allowed: bool, at: Micros) {
        if allowed {
            self.allowed += 1;
        } else {
            self.refused += 1;
            self.first_refusal_us.get_or_insert(at);
        }
    }
}

/// The names of a domain and of its limit.
pub type Name = (String, String);

/// The totals of all limits of a policy, and of limits that requests specify.
pub struct PolicyTotals {
    /// The totals of the policy's limits, by the limit's index.
    of_policy: Vec<(Name, LimitTotals)>,
    of_requests: BTreeMap<Name, LimitTotals>,
}

impl PolicyTotals {
    /// Returns totals of 0 for the limits of `policy`.
    pub fn new(policy: &Policy) -> Self {
        let mut limits: Vec<_> = policy.limits().collect();
        limits.sort_by_key(|(_, limit)| limit.index);
        let names = limits.into_iter().map(|(domain, limit)| (domain.name.to_string(), limit.name.to_string()));
        Self { of_policy: names.map(|name| (name, LimitTotals::default())).collect(), of_requests: BTreeMap::new() }
    }

    /// Counts the decisions of all levels of an answer.
    pub fn count(&mut self, at: Micros, request: &Request<'_>, answer: &Answer<'_>) {
        for level in &answer.levels {
            let of_policy =
                if request.spec.is_none() { self.of_policy.get_mut(level.limit.index as usize) } else { None };
            let totals = match of_policy {
                Some((_, totals)) => totals,
                None => self.of_requests.entry((request.domain.to_string(), level.limit.name.to_string())).or_default(),
            };
            totals.count(level.decision.allowed, at);
        }
    }

    /// Returns the totals of the limits with at least one decision, by name. Limits of the same name are added up.
    pub fn by_name(&self) -> BTreeMap<&Name, LimitTotals> {
        let mut all: BTreeMap<&Name, LimitTotals> = BTreeMap::new();
        let used = self.of_policy.iter().filter(|(_, totals)| totals.allowed + totals.refused > 0);
        for (name, totals) in used.map(|(name, totals)| (name, totals)).chain(&self.of_requests) {
            let sum = all.entry(name).or_default();
            sum.allowed += totals.allowed;
            sum.refused += totals.refused;
            // `min` would prefer `None`, which is not a refusal.
            sum.first_refusal_us = match (sum.first_refusal_us, totals.first_refusal_us) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        all
    }
}
