//! Reads the section `tests` of a policy file.

use weir_core::domain::{
    Micros,
    time::{MAX_MOMENT, format_duration, parse_duration},
};
use weir_settings::{
    Problems,
    document::{Entry, Node, Value},
    fields::{read_entries, read_scalar, scalar},
    problem::Mark,
};

use super::{
    PolicyTest, Step,
    expectation::{self, Expectation, verdict},
};
use crate::cli::simulate::{
    timestamps::Timestamp,
    trace::{CheckLine, Line, ResetLine},
};

const TEST_KEYS: &[&str] = &["name", "start", "steps"];
const CHECK_KEYS: &[&str] = &["at", "key", "cost", "max_wait", "factor", "says"];
const RESET_KEYS: &[&str] = &["at", "reset", "subtree"];

/// Reads the tests of a file, whose checks are in its domain.
///
/// # Errors
/// All problems of the tests.
pub(super) fn tests(node: &Node, domain: &str) -> Result<Vec<PolicyTest>, Problems> {
    let mut reader = Reader { domain, problems: Problems::default() };
    let items = reader.list(node, "tests");
    let tests = items.iter().enumerate().map(|(index, item)| reader.test(item, index + 1)).collect();
    if reader.problems.0.is_empty() { Ok(tests) } else { Err(reader.problems) }
}

struct Reader<'a> {
    domain: &'a str,
    problems: Problems,
}

impl Reader<'_> {
    fn test(&mut self, node: &Node, number: usize) -> PolicyTest {
        let mut test = PolicyTest { name: number.to_string(), steps: Vec::new() };
        let entries = read_entries(node, "a test", TEST_KEYS, &[], &mut self.problems).unwrap_or_default();
        let mut start = 0;
        for Entry { key, value, .. } in entries {
            match key.as_str() {
                "name" => test.name = self.scalar(value, "name", "a string", |text| Some(text.to_owned())),
                "start" => {
                    let form = "a time as in 2026-10-31T12:00:00Z";
                    start = self
                        .scalar(value, "start", form, |text| Timestamp::parse(text).ok().map(|timestamp| timestamp.at));
                }
                _ => {}
            }
        }
        let Some(steps) = entries.iter().find(|entry| entry.key == "steps") else {
            self.problems.add(node.mark, "steps", "a test must have steps");
            return test;
        };
        let mut at = start;
        for step in self.list(&steps.value, "steps") {
            test.steps.extend(self.step(step, start, &mut at));
        }
        test
    }

    fn step(&mut self, node: &Node, start: Micros, at: &mut Micros) -> Option<Step> {
        let is_reset = matches!(&node.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == "reset"));
        let known = if is_reset { RESET_KEYS } else { CHECK_KEYS };
        let entries = read_entries(node, "a step", known, &[], &mut self.problems).unwrap_or_default();
        let (mut key, mut subtree, mut expectations) = (None, false, Vec::new());
        let (mut cost, mut max_wait, mut factor) = (None, None, None);
        for Entry { key: name, value, .. } in entries {
            match name.as_str() {
                "at" => *at = start.saturating_add(self.duration(value, "at")).min(MAX_MOMENT),
                "key" | "reset" => key = Some(self.segments(value, name)),
                "subtree" => subtree = self.scalar(value, name, "true or false", |text| text.parse().ok()),
                "cost" => cost = Some(self.scalar(value, name, "a whole number", |text| text.parse().ok())),
                "max_wait" => max_wait = Some(self.duration(value, name)),
                "factor" => factor = Some(self.scalar(value, name, "a number", |text| text.parse().ok())),
                "says" => expectations = self.expectations(value),
                _ => {}
            }
        }
        let Some(key) = key else {
            self.problems.add(node.mark, "key", "a step checks a key, or resets one: key: [user, alex]");
            return None;
        };
        let line = if is_reset {
            Line::Reset(ResetLine::new(*at, self.domain.to_owned(), key, subtree))
        } else {
            let line = CheckLine::new(*at, self.domain.to_owned(), key, cost);
            Line::Check(line.under(max_wait, factor))
        };
        Some(Step { mark: node.mark, line, expectations })
    }

    /// Reads the expectations of a step: `allowed`, `refused`, or a map.
    fn expectations(&mut self, node: &Node) -> Vec<(Mark, Expectation)> {
        match &node.value {
            Value::Scalar(text) if matches!(text.as_str(), "allowed" | "refused") => {
                return vec![(node.mark, Expectation { name: "allowed", expected: text.clone() })];
            }
            Value::Map(_) => {}
            _ => {
                let message = format!("says must be allowed, refused or a map, not {}", node.shown());
                self.problems.add(node.mark, "says", message);
                return Vec::new();
            }
        }
        let mut expectations = Vec::new();
        let entries = read_entries(node, "says", expectation::NAMES, &[], &mut self.problems);
        for Entry { key, value, .. } in entries.unwrap_or_default() {
            let Some(&name) = expectation::NAMES.iter().find(|name| *name == key) else { continue };
            let expected = match name {
                "allowed" => verdict(self.scalar(value, name, "true or false", |text| text.parse().ok())).to_owned(),
                "by" => self.scalar(value, name, "a limit's name", |text| Some(text.to_owned())),
                "remaining" => self.scalar(value, name, "a whole number", |text| text.parse::<u64>().ok()).to_string(),
                _ => format_duration(self.duration(value, name)),
            };
            expectations.push((value.mark, Expectation { name, expected }));
        }
        expectations
    }

    fn segments(&mut self, node: &Node, field: &str) -> Vec<String> {
        let texts: Option<Vec<_>> = self.list(node, field).iter().map(|item| scalar(item).map(str::to_owned)).collect();
        texts.unwrap_or_else(|| {
            self.problems.add(node.mark, field, format!("{field} must be a list of segments: [user, alex]"));
            Vec::new()
        })
    }

    fn duration(&mut self, node: &Node, field: &str) -> Micros {
        self.scalar(node, field, "a duration: 250ms, 60s, 5m, 1h, 1d or whole seconds", |text| {
            parse_duration(text).ok()
        })
    }

    fn scalar<T: Default>(&mut self, node: &Node, field: &str, form: &str, read: impl Fn(&str) -> Option<T>) -> T {
        let must = format!("{field} must be {form}");
        read_scalar(node, field, &must, &mut self.problems, read).unwrap_or_default()
    }

    fn list<'n>(&mut self, node: &'n Node, field: &str) -> &'n [Node] {
        match &node.value {
            Value::List(items) => items,
            Value::Null => &[],
            _ => {
                self.problems.add(node.mark, field, format!("{field} must be a list, not {}", node.shown()));
                &[]
            }
        }
    }
}
