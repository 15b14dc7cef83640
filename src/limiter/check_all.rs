//! Decides several checks of one domain in one plan: either all are charged or none.

use std::ptr;

use smallvec::SmallVec;
use weir_core::{
    domain::{Charge, aggregate},
    plan::{Levels, Overridden, Plan},
};
use weir_policy::Policy;
use weir_store::{Store, Verdict};

use super::{
    Answer, CheckError, Invalid, LevelAnswer, Limiter, PolicyHandle, Request,
    decide::{Fill, PendingCheck, decide},
    request::plan_in,
};

/// Maximum number of checks that are decided together.
pub const MAX_TOGETHER: usize = 32;

/// For each check: the number of its levels, and the override that acts on it.
type Parts<'a> = SmallVec<[(usize, Option<Overridden<'a>>); 4]>;

/// Checks that are decided together.
#[derive(Debug)]
pub struct CheckAll<'n> {
    checks: Vec<Request<'n>>,
}

/// The answers to a [`CheckAll`].
#[derive(Debug, Default)]
pub struct AllAnswers<'a> {
    /// Whether all checks pass. If so they are charged, unless they are dry runs.
    pub allowed: bool,
    /// One answer for each check, from its own limits alone.
    pub answers: Vec<Answer<'a>>,
}

impl AllAnswers<'_> {
    /// Returns the binding level of all checks, as in [`Summary::binding`](weir_core::domain::Summary::binding).
    pub fn binding(&self) -> Option<&LevelAnswer<'_>> {
        let levels = || self.answers.iter().flat_map(|answer| &answer.levels);
        levels().nth(aggregate(levels().map(|level| (&level.decision, level.shadow))).binding?)
    }
}

impl<'n> CheckAll<'n> {
    /// Combines checks that can be decided together.
    ///
    /// # Errors
    /// [`CheckError`] names the check that does not go with the others.
    pub fn new(checks: Vec<Request<'n>>) -> Result<Self, CheckError> {
        let Some(first) = checks.first().filter(|_| checks.len() <= MAX_TOGETHER) else {
            return Err(Self::wrong_number().into());
        };
        for (index, check) in checks.iter().enumerate() {
            let (field, rule) = if check.domain != first.domain {
                ("domain", "checks decided together must be of one domain")
            } else if check.dry_run != first.dry_run {
                ("dry_run", "checks decided together must all be dry runs, or none")
            } else if check.spec.is_some() != first.spec.is_some() {
                ("limit_spec", "checks decided together must all have a limit_spec, or none")
            } else if check.spec.as_ref().is_some_and(|spec| spec.charge == Charge::Independent) {
                ("limit_spec.charge", "checks decided together must charge all or nothing")
            } else if check.id.is_some() {
                ("request_id", "checks decided together cannot have a request_id")
            } else {
                continue;
            };
            return Err(CheckError::from(Invalid::field_error(field, rule)).in_check(index));
        }
        Ok(Self { checks })
    }

    /// Returns the error for a request without checks, or with more than [`MAX_TOGETHER`].
    pub fn wrong_number() -> Invalid {
        Invalid::field_error("checks", format!("1 to {MAX_TOGETHER} checks can be decided together"))
    }

    /// Returns the checks, in their order.
    pub fn checks(&self) -> &[Request<'n>] {
        &self.checks
    }

    fn is_dry_run(&self) -> bool {
        self.checks.iter().any(|check| check.dry_run)
    }

    /// Returns the plan, and for each check the number of its levels and the override that acts on it.
    fn plan<'a>(&'a self, policy: &'a Policy) -> Result<(Plan<'a>, Parts<'a>), CheckError> {
        let (mut levels, mut parts) = (Levels::new(), Parts::new());
        for (index, check) in self.checks.iter().enumerate() {
            let mut own = Levels::new();
            let (_, overridden) = check.resolve(policy, false, &mut own).map_err(|error| match error {
                CheckError::NoPolicy => error,
                error => error.in_check(index),
            })?;
            parts.push((own.len(), overridden));
            levels.extend(own);
        }
        // If one check is banned, all are refused: the others become previews (cost 0), which report their current
        // state.
        let is_banned = parts.iter().any(|(_, overridden)| overridden.is_some_and(|it| it.ban.is_some()));
        if is_banned {
            levels.iter_mut().for_each(|level| level.cost = 0);
        }
        let max_wait = self.checks.iter().filter_map(|check| check.max_wait).min();
        let domain = self.checks.first().and_then(|check| policy.domain(&check.domain));
        let mut plan = plan_in(domain, levels, Charge::AllOrNothing, max_wait);
        plan.dry_run = self.is_dry_run() || is_banned;
        if self.checks.iter().any(|check| check.spec.is_some()) {
            plan.enforce_as_written();
        }
        if let Some(limit) = plan.refuses_checks() {
            let place = plan.levels().iter().position(|level| ptr::eq(level.limit, limit)).unwrap_or_default();
            return Err(CheckError::NotCheckable(limit.name.to_string()).in_check(check_of(place, &parts)));
        }
        self.ensure_same_limits(&plan, &parts)?;
        Ok((plan, parts))
    }

    /// Rejects checks that share a state under limits that differ: their sum has no price.
    fn ensure_same_limits(&self, plan: &Plan<'_>, parts: &Parts<'_>) -> Result<(), CheckError> {
        let levels = plan.levels();
        let differs = |index: &usize| {
            let (level, place) = (&levels[*index], plan.state_of(*index));
            let first = &levels[place];
            place != *index && (level.params() != first.params() || level.limit.shadow != first.limit.shadow)
        };
        let Some(place) = (0..levels.len()).find(differs) else { return Ok(()) };
        let check = check_of(place, parts);
        let field = if self.checks[check].spec.is_some() { "limit_spec" } else { "factor" };
        let name = &levels[place].limit.name;
        let message = format!("the limit `{name}` differs from that of an earlier check of the same key");
        Err(CheckError::from(Invalid::field_error(field, message)).in_check(check))
    }
}

/// Returns the check to which this level of the plan belongs.
fn check_of(level: usize, parts: &Parts<'_>) -> usize {
    let mut end = 0;
    let check = parts.iter().position(|(count, _)| {
        end += count;
        level < end
    });
    check.unwrap_or_default()
}

impl<S: Store> Limiter<S> {
    /// Decides checks together. A refusal is an answer, not an error.
    pub fn check_all<'l, 'a>(
        &'l self,
        handle: &'a PolicyHandle,
        request: &'a CheckAll<'_>,
    ) -> PendingCheck<'l, 'a, AllAnswers<'a>, impl Fill<'a, AllAnswers<'a>>> {
        let (plan, parts) = match request.plan(&handle.policy) {
            Ok((plan, parts)) => (Ok(plan), parts),
            Err(error) => (Err(error), Parts::new()),
        };
        let fill = move |plan: &Plan<'a>, verdict: &Verdict, all: &mut AllAnswers<'a>| {
            let (mut levels, mut decisions) = (plan.levels(), &verdict.decisions[..]);
            for (count, overridden) in parts {
                let mut answer = Answer::default();
                let (own, rest) = levels.split_at(count);
                let (decided, other) = decisions.split_at(count.min(decisions.len()));
                answer.fill_part(plan, own, verdict, decided);
                answer.set_overridden(overridden);
                all.answers.push(answer);
                (levels, decisions) = (rest, other);
            }
            all.allowed = all.answers.iter().all(|answer| answer.summary.decision.allowed);
            if !request.is_dry_run() {
                self.count_all(handle, request, all, plan, verdict);
            }
        };
        decide(&self.store, plan, fill)
    }

    /// Counts the decisions on all checks, and samples them.
    fn count_all(
        &self,
        handle: &PolicyHandle,
        request: &CheckAll<'_>,
        all: &AllAnswers<'_>,
        plan: &Plan<'_>,
        verdict: &Verdict,
    ) {
        let mut effects = verdict.effects(plan);
        for (check, answer) in request.checks.iter().zip(&all.answers) {
            handle.count_degraded(plan, verdict);
            handle.count_overridden(plan.domain, answer.overridden, || {
                answer.levels.is_empty() && !check.is_matched(&handle.policy)
            });
            for level in &answer.levels {
                let index = check.spec.is_none().then_some(level.limit.index);
                handle.counters.limit(index, &level.decision, level.shadow, effects.next().unwrap_or_default());
            }
            self.sample(check, answer);
        }
    }
}
