//! Replays recorded checks under a policy, in virtual time, to show which it would have allowed. Checks of concurrency
//! limits are not decided.
//!
//! All limits start unused, since charges from before the recording are unknown.

use std::borrow::Cow;

use weir_policy::Policy;

use super::{CheckError, Request, Simulation, totals::PolicyTotals};
use crate::telemetry::{RecordedCheck, Terms};

/// Maximum number of states of a replay: several for each check that a recording can hold.
const MAX_STATES: usize = 1_000_000;

/// The decisions of a policy on recorded checks.
pub struct Replay {
    /// Whether each check passed; `None`: not decided, because a concurrency limit refuses checks.
    pub passed: Vec<Option<bool>>,
    /// The totals of each limit.
    pub limits: PolicyTotals,
}

impl Replay {
    /// Replays the checks of a domain, oldest first. Returns `None` if `goes_on`, called every 64 checks, returned
    /// false.
    ///
    /// # Errors
    /// [`CheckError`] if the policy does not define the domain, or the factor of a check takes a limit beyond its
    /// bounds.
    pub fn run(
        policy: &Policy,
        domain: &str,
        checks: &[RecordedCheck],
        goes_on: impl Fn() -> bool,
    ) -> Result<Option<Self>, CheckError> {
        let (simulation, mut limits) = (Simulation::of(MAX_STATES), PolicyTotals::new(policy));
        let mut passed = Vec::with_capacity(checks.len());
        for (number, check) in checks.iter().enumerate() {
            if number % 64 == 0 && !goes_on() {
                return Ok(None);
            }
            let request = request(domain, check);
            let answer = match simulation.check(check.at, policy, &request) {
                Ok(answer) => answer,
                Err(CheckError::NotCheckable(_)) => {
                    passed.push(None);
                    continue;
                }
                Err(error) => return Err(error),
            };
            limits.count(check.at, &request, &answer);
            passed.push(Some(answer.summary.decision.allowed));
        }
        Ok(Some(Self { passed, limits }))
    }

    /// Returns how many checks passed, and how many were refused.
    pub fn totals(&self) -> (u64, u64) {
        let count = |wanted| self.passed.iter().filter(|passed| **passed == Some(wanted)).count() as u64;
        (count(true), count(false))
    }
}

fn request<'a>(domain: &'a str, check: &RecordedCheck) -> Request<'a> {
    let Terms { cost, max_wait, factor, .. } = check.terms;
    Request { cost, max_wait, factor, ..Request::of_key(Cow::Borrowed(domain), check.key.clone()) }
}

#[cfg(test)]
mod tests {
    use weir_core::domain::{Key, time::SECOND};

    use super::*;

    #[test]
    fn a_policy_decides_recorded_checks_at_their_times() {
        let policy = "schema: { user: { children: { '*': { limits: [{ name: l, fixed_window: { count: 2, period: 1s } }] } } } }";
        let policy = weir_policy::parse(policy, &weir_policy::Rules::default()).unwrap();
        let check = |at, name| {
            let name = Key::new("", &["user", name]).unwrap().prefix(2).to_vec();
            let key = Key::of_name(&[&name[..], &[weir_core::domain::key::END]].concat()).unwrap();
            let terms = Terms { cost: 1, max_wait: None, factor: 1.0, allowed: true };
            RecordedCheck { at, key, terms }
        };
        let long = "l".repeat(100);
        let checks = [check(0, "a"), check(1, "a"), check(2, "a"), check(2, &long), check(SECOND, "a")];
        let replay = Replay::run(&policy, "", &checks, || true).unwrap().unwrap();
        assert_eq!(replay.passed, [true, true, false, true, true].map(Some));
        assert_eq!(replay.totals(), (4, 1));
        let did = replay.limits.by_name();
        assert_eq!(did.values().map(|did| (did.allowed, did.refused)).collect::<Vec<_>>(), [(4, 1)]);
        assert!(Replay::run(&policy, "", &checks, || false).unwrap().is_none());
        assert!(matches!(Replay::run(&policy, "other", &checks, || true), Err(CheckError::UnknownDomain(_))));
    }
}
