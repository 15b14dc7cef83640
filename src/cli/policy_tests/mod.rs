//! Tests next to a policy: checks in virtual time, and their expected answers. `weir limits lint` runs them, with the
//! code of `weir simulate`.

mod expectation;
mod read;

use weir_core::algorithm::Bounds;
use weir_policy::{Policy, Tests};
use weir_settings::{Problems, problem::Mark};

use self::expectation::Expectation;
use super::{render::RenderedDecision, simulate::trace::Line};
use crate::{
    limiter::{CheckError, Simulation},
    transport::status::Rejected,
};

/// One test: steps that start without counts.
struct PolicyTest {
    name: String,
    steps: Vec<Step>,
}

struct Step {
    mark: Mark,
    line: Line,
    expectations: Vec<(Mark, Expectation)>,
}

/// The results of tests.
#[derive(Default)]
pub(super) struct Report {
    /// Number of tests that passed.
    pub passed: usize,
    /// Number of tests that failed.
    pub failed: usize,
    /// The unexpected answers, each with its position.
    pub failures: Problems,
}

/// Runs the tests of a policy's files.
///
/// # Errors
/// The problems of tests that are not valid.
pub(super) fn run(policy: &Policy, files: &[Tests], bounds: &Bounds) -> Result<Report, Problems> {
    let (mut report, mut wrong) = (Report::default(), Problems::default());
    for file in files {
        match read::tests(&file.node, &file.domain) {
            Ok(tests) => {
                let mut failures = Problems::default();
                for test in tests {
                    let has_passed = test.run(policy, bounds, &mut failures);
                    report.passed += usize::from(has_passed);
                    report.failed += usize::from(!has_passed);
                }
                report.failures.0.extend(failures.in_file(&file.path).0);
            }
            Err(problems) => wrong.0.extend(problems.in_file(&file.path).0),
        }
    }
    if wrong.0.is_empty() { Ok(report) } else { Err(wrong) }
}

impl PolicyTest {
    /// Runs the steps, and returns whether all answers are as expected.
    fn run(&self, policy: &Policy, bounds: &Bounds, failures: &mut Problems) -> bool {
        let (simulation, mut has_passed) = (Simulation::default(), true);
        let mut failed = |mark, what: String| {
            has_passed = false;
            failures.add(mark, "", format!("test `{}`: {what}", self.name));
        };
        for Step { mark, line, expectations } in &self.steps {
            match answer(&simulation, policy, line, bounds) {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    for (mark, expectation) in expectations {
                        if let Some(difference) = expectation.mismatch(&answer) {
                            failed(*mark, difference);
                        }
                    }
                }
                Err(error) => {
                    let Rejected { message, .. } = Rejected::from(error);
                    failed(*mark, format!("not valid: {message}"));
                }
            }
        }
        has_passed
    }
}

/// Returns the answer to a check; `None`: the line is a reset.
fn answer(
    simulation: &Simulation,
    policy: &Policy,
    line: &Line,
    bounds: &Bounds,
) -> Result<Option<RenderedDecision>, CheckError> {
    match line {
        Line::Check(line) => {
            let request = line.request(bounds)?;
            Ok(Some(RenderedDecision::from(&simulation.check(line.at_us, policy, &request)?)))
        }
        Line::Reset(line) => {
            simulation.reset(line.at_us, policy, &line.request()?, line.subtree);
            Ok(None)
        }
    }
}
