//! The totals of each limit.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_core::domain::Micros;
use weir_policy::Policy;

use super::{Answer, Request};

/// The decisions of one limit.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tally {
    /// Checks that passed.
    pub allowed: u64,
    /// Checks that it refused, or would have as a shadow.
    pub refused: u64,
    /// When it first did, in microseconds.
    pub first_refusal_us: Option<Micros>,
}

impl Tally {
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

/// The name of a limit, behind that of its domain.
pub type Name = (String, String);

/// The totals of all limits of a policy, and of the limits of requests.
pub struct Tallies {
    /// The totals of the policy's limits, by their index.
    of_policy: Vec<(Name, Tally)>,
    of_requests: BTreeMap<Name, Tally>,
}

impl Tallies {
    /// Nothing yet.
    pub fn new(policy: &Policy) -> Self {
        let mut limits: Vec<_> = policy.limits().collect();
        limits.sort_by_key(|(_, limit)| limit.index);
        let names = limits.into_iter().map(|(domain, limit)| (domain.name.to_string(), limit.name.to_string()));
        Self { of_policy: names.map(|name| (name, Tally::default())).collect(), of_requests: BTreeMap::new() }
    }

    /// Counts the decisions on a request.
    pub fn count(&mut self, at: Micros, request: &Request<'_>, answer: &Answer<'_>) {
        for level in &answer.levels {
            let of_policy =
                if request.spec.is_none() { self.of_policy.get_mut(level.limit.index as usize) } else { None };
            let tally = match of_policy {
                Some((_, tally)) => tally,
                None => self.of_requests.entry((request.domain.to_string(), level.limit.name.to_string())).or_default(),
            };
            tally.count(level.decision.allowed, at);
        }
    }

    /// Those that did something, in the order of their names; limits of one name as one.
    pub fn by_name(&self) -> BTreeMap<&Name, Tally> {
        let mut all: BTreeMap<&Name, Tally> = BTreeMap::new();
        let used = self.of_policy.iter().filter(|(_, tally)| tally.allowed + tally.refused > 0);
        for (name, tally) in used.map(|(name, tally)| (name, tally)).chain(&self.of_requests) {
            let sum = all.entry(name).or_default();
            sum.allowed += tally.allowed;
            sum.refused += tally.refused;
            // Nothing comes before no refusal at all.
            sum.first_refusal_us = match (sum.first_refusal_us, tally.first_refusal_us) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        all
    }
}
