//! Simulates a policy against an arrival pattern, in virtual time.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use weir_core::domain::{Charge, Micros, time::SECOND};
use weir_policy::{Policy, RequestLimits, Rules, limits::read_limits};
use weir_settings::{
    Problems,
    document::{self, Node, Value},
};

use super::{Explorer, Reply, Service, json_reply, read};
use crate::{
    limiter::{self, Answer, CheckError, Invalid, Simulation, totals::LimitTotals},
    transport::{http::problem::Problem, status::Rejected},
};

/// Maximum number of arrivals in a simulation.
const MAX_ARRIVALS: u64 = 10_000;
/// Number of steps in the timeline.
const STEPS: usize = 120;
/// Longest simulated time, in seconds.
const MAX_SECONDS: f64 = 31.0 * 86_400.0;
/// Bounds on a draft, including the expansion of its YAML aliases.
const MAX_DRAFT: document::DocumentBounds = document::DocumentBounds { nodes: 20_000, repeated_bytes: 1 << 20 };
/// Maximum run time of a simulation.
pub(super) const MAX_TIME: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    domain: String,
    key: Vec<String>,
    /// A policy file, or a list of limits for the key, in place of the policy in force. Empty: neither.
    #[serde(default)]
    draft: String,
    /// Cost of each arrival, in units.
    cost: i64,
    /// Arrivals per second.
    rate: f64,
    /// Additional arrivals at time 0.
    burst: u64,
    /// Simulated time, in seconds.
    seconds: f64,
    /// Whether the intervals between arrivals are random (a Poisson process, as of many independent clients) instead of
    /// constant.
    random: bool,
}

/// The decisions in one step of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Step {
    allowed: u64,
    refused: u64,
    /// The longest wait of an allowed arrival.
    wait_us: Micros,
    /// Units remaining of the binding limit at the end of the step; `None` without a binding limit or an arrival.
    remaining: Option<u64>,
}

/// The totals of one limit.
#[derive(Debug, Serialize)]
struct SimulatedLimit {
    name: String,
    shadow: bool,
    #[serde(flatten)]
    totals: LimitTotals,
}

#[derive(Debug, Serialize)]
struct Timeline {
    step_us: Micros,
    steps: Vec<Step>,
    limits: Vec<SimulatedLimit>,
    /// The most units that were ever remaining of the binding limit.
    most_remaining: u64,
}

pub(super) async fn serve(State(explorer): State<Explorer>, request: Request) -> Reply {
    let wanted: Wanted = read(&explorer, request).await?;
    wanted.check()?;
    let run = move |explorer: &Service| wanted.run(&explorer.limiter.policy().policy, &explorer.rules);
    run_exclusively(explorer, run).await.map(|timeline| json_reply(&timeline))
}

/// Runs a simulation outside the threads that serve checks. Fails if another one is running.
pub(super) async fn run_exclusively<T: Send + 'static>(
    explorer: Explorer,
    run: impl FnOnce(&Service) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let busy =
        || Problem::new(StatusCode::SERVICE_UNAVAILABLE, "another simulation is running; retry when it has ended");
    let turn = Arc::clone(&explorer.0.simulating).try_acquire_owned().map_err(|_| busy())?;
    explorer.run_apart(turn, run).await
}

/// Parses a draft that must be a policy file.
pub(super) fn parse_policy(draft: &str, rules: &Rules) -> Result<Policy, Problem> {
    let message = "a draft for recorded checks is a policy file, with `schema` or `descriptors`";
    parse(draft, rules)?.0.ok_or_else(|| invalid("draft", message))
}

/// Parses a draft: a policy file, otherwise a list of limits, if any.
fn parse(draft: &str, rules: &Rules) -> Result<(Option<Policy>, Option<Node>), Problem> {
    // `weir_policy::parse` alone would allow a draft as large as an operator's file.
    let document = document::parse_within(draft, MAX_DRAFT).map_err(draft_error)?;
    match document {
        Some(Node { value: Value::Map(_), .. }) => {
            Ok((Some(weir_policy::parse(draft, rules).map_err(draft_error)?), None))
        }
        limits => Ok((None, limits)),
    }
}

pub(super) fn too_long(what: &str) -> Problem {
    let message = format!("this takes longer than {} s; {what}", MAX_TIME.as_secs());
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, message)
}

pub(super) fn invalid(field: &str, message: impl Into<String>) -> Problem {
    rejected(Invalid::field_error(field, message).into())
}

pub(super) fn rejected(error: CheckError) -> Problem {
    Rejected::from(error).into()
}

fn draft_error(problems: Problems) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, problems.in_file(Path::new("draft")).to_string())
}

impl Wanted {
    fn check(&self) -> Result<(), Problem> {
        if !(self.seconds >= 0.001 && self.seconds <= MAX_SECONDS) {
            return Err(invalid("seconds", "seconds must be 0.001 to 31 days"));
        }
        if !(self.rate >= 0.0 && self.rate <= 1e6) {
            return Err(invalid("rate", "rate must be 0 to 1000000 a second"));
        }
        if self.rate * self.seconds + self.burst as f64 > MAX_ARRIVALS as f64 {
            let message = format!(
                "{:.0} arrivals are too many; at most {MAX_ARRIVALS}",
                self.rate * self.seconds + self.burst as f64
            );
            return Err(invalid("rate", message));
        }
        Ok(())
    }

    fn run(&self, in_force: &Policy, rules: &Rules) -> Result<Timeline, Problem> {
        let (drafted, limits) = parse(&self.draft, rules)?;
        // A draft applies regardless of its domain's name.
        let name = drafted.as_ref().and_then(|policy| policy.domains().next()).map(|domain| domain.name.to_string());
        let name = name.unwrap_or_else(|| self.domain.clone());
        let mut request = limiter::Request::new(&name, &self.key).map_err(|error| rejected(error.into()))?;
        request.set_terms(self.cost, None, 1.0).map_err(|error| rejected(error.into()))?;
        let empty = Policy::empty();
        if let Some(limits) = &limits {
            let mut problems = Problems::default();
            let written = read_limits(limits, "limits", true, &rules.bounds, &mut problems);
            if !problems.0.is_empty() {
                return Err(draft_error(problems));
            }
            let spec = RequestLimits::new(written, Charge::AllOrNothing, &request.key);
            request.spec = Some(spec.map_err(|error| rejected(Invalid::from(error).into()))?.into());
        }
        // Limits without a policy apply to the key, even if the policy in force denies `limit_spec`.
        let policy = match (&drafted, &limits) {
            (Some(policy), _) => policy,
            (None, Some(_)) => &empty,
            (None, None) => in_force,
        };
        self.simulate(policy, &request)
    }

    fn simulate(&self, policy: &Policy, request: &limiter::Request<'_>) -> Result<Timeline, Problem> {
        let duration = ((self.seconds * SECOND as f64) as Micros).max(1);
        let step_us = (duration as u64).div_ceil(STEPS as u64) as Micros;
        let steps = (duration as u64).div_ceil(step_us as u64) as usize;
        let mut timeline =
            Timeline { step_us, steps: vec![Step::default(); steps], limits: Vec::new(), most_remaining: 0 };
        let (simulation, since) = (Simulation::default(), Instant::now());
        for (turn, at) in self.arrivals(duration).enumerate() {
            let answer = simulation.check(at, policy, request).map_err(rejected)?;
            timeline.record(at, &answer);
            if turn % 64 == 0 && since.elapsed() > MAX_TIME {
                return Err(too_long("ask for fewer arrivals"));
            }
        }
        Ok(timeline)
    }

    /// Returns the times of arrival, from 0 to before `duration`.
    fn arrivals(&self, duration: Micros) -> impl Iterator<Item = Micros> {
        let gap = SECOND as f64 / self.rate;
        let (mut next, mut word) = (0.0, 1_u64);
        let random = self.random;
        let steady = std::iter::from_fn(move || {
            let at = next;
            // A linear congruential generator with a fixed seed: the same arrivals in every run.
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let share = ((word >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
            next += if random { -share.ln() * gap } else { gap };
            (at < duration as f64).then_some(at as Micros)
        });
        let most = if self.rate > 0.0 { MAX_ARRIVALS as usize * 2 } else { 0 };
        std::iter::repeat_n(0, self.burst as usize).chain(steady.take(most))
    }
}

impl Timeline {
    fn record(&mut self, at: Micros, answer: &Answer<'_>) {
        let last = self.steps.len() - 1;
        let step = &mut self.steps[((at / self.step_us) as usize).min(last)];
        if answer.summary.decision.allowed {
            step.allowed += 1;
            step.wait_us = step.wait_us.max(answer.summary.decision.wait);
        } else {
            step.refused += 1;
        }
        step.remaining = answer.summary.binding.map(|_| answer.summary.decision.remaining);
        self.most_remaining = self.most_remaining.max(step.remaining.unwrap_or_default());
        for (index, level) in answer.levels.iter().enumerate() {
            if index == self.limits.len() {
                let (name, shadow) = (level.limit.name.to_string(), level.shadow);
                self.limits.push(SimulatedLimit { name, shadow, totals: LimitTotals::default() });
            }
            self.limits[index].totals.count(level.decision.allowed, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(draft: &str) -> Wanted {
        let (domain, key, draft) = (String::new(), vec!["a".to_owned(), "b".to_owned()], draft.to_owned());
        Wanted { domain, key, draft, cost: 1, rate: 2.0, burst: 20, seconds: 60.0, random: false }
    }

    fn run(wanted: &Wanted) -> Timeline {
        wanted.run(&Policy::empty(), &Rules::default()).map_err(|_| "a problem").unwrap()
    }

    #[test]
    fn a_draft_of_limits_is_simulated_exactly() {
        let timeline = run(&wanted("[{ gcra: { burst: 9, count: 1, period: 1s } }]"));
        assert_eq!((timeline.step_us, timeline.steps.len()), (500_000, 120));
        assert_eq!((timeline.steps[0].allowed, timeline.steps[0].refused), (10, 11));
        let (allowed, refused): (u64, u64) =
            timeline.steps.iter().fold((0, 0), |sum, step| (sum.0 + step.allowed, sum.1 + step.refused));
        assert_eq!((allowed, refused), (10 + 59, 20 + 120 - 69), "one a second after the burst");
        let totals = timeline.limits[0].totals;
        assert_eq!((totals.refused, totals.first_refusal_us), (refused, Some(0)));
    }

    #[test]
    fn a_draft_can_be_a_policy_of_either_format() {
        for draft in [
            "domain: x\nschema: { a: { children: { '*': { limits: [4, 1, 60] } } } }",
            "domain: x\ndescriptors: [{ key: a, value: b, rate_limit: { unit: hour, requests_per_unit: 5 } }]",
        ] {
            let timeline = run(&wanted(draft));
            assert_eq!((timeline.steps[0].allowed, timeline.limits.len()), (5, 1), "{draft}");
        }
        assert_eq!(run(&wanted("")).steps[0].allowed, 21, "no limit applies");
    }

    #[test]
    fn random_arrivals_have_the_same_rate_and_are_reproducible() {
        let wanted = Wanted { rate: 100.0, burst: 0, random: true, ..wanted("") };
        let moments: Vec<_> = wanted.arrivals(60 * SECOND).collect();
        assert!((5_700..=6_300).contains(&moments.len()) && moments.is_sorted(), "{}", moments.len());
        assert!(wanted.arrivals(60 * SECOND).eq(moments));
    }

    #[test]
    fn invalid_simulations_are_rejected() {
        for wanted in [
            Wanted { seconds: 0.0, ..wanted("") },
            Wanted { seconds: f64::NAN, ..wanted("") },
            Wanted { rate: -1.0, ..wanted("") },
            Wanted { rate: 1_000.0, ..wanted("") },
            Wanted { burst: u64::MAX, ..wanted("") },
        ] {
            assert!(wanted.check().is_err());
        }
        assert!(wanted("").check().is_ok());
        assert!(wanted("[{ gcra: {} }]").run(&Policy::empty(), &Rules::default()).is_err());
        assert!(wanted("schema: 7").run(&Policy::empty(), &Rules::default()).is_err());
    }
}
