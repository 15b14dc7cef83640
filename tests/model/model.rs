//! Reference model: several limits in one decision, after the third section of the specification.

use std::collections::HashMap;

use weir_core::domain::{Decision, Summary};

use super::{
    fraction::gcd,
    generate::{Check, Limit, Node, Policy, Rule},
    rules::{State, kind, scale, step},
};

/// The largest count of any limit.
const MOST: u64 = 1 << 32;

#[derive(Debug, PartialEq)]
pub struct AnswerLevel {
    pub name: String,
    pub depth: u8,
    pub shadow: bool,
    pub decision: Decision,
}

#[derive(Debug, PartialEq)]
pub struct Answer {
    pub summary: Summary,
    pub levels: Vec<AnswerLevel>,
}

/// The identity of a state: path of the actual key; the limit's name, or its rank among unnamed limits of its kind; and
/// kind with time base.
type Identity = (Vec<String>, Result<String, Unnamed>, (&'static str, i64));

/// The first unnamed limit of one kind at a node, or another one with its period and its rank among
/// the limits of that period.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Unnamed {
    First,
    Other { period: i64, rank: usize },
}

struct Level {
    identity: Identity,
    shown_name: String,
    depth: u8,
    shadow: bool,
    rule: Rule,
    /// The rule without the request's factor.
    base: Rule,
}

pub struct Model<'p> {
    pub policy: &'p Policy,
    states: HashMap<Identity, State>,
}

impl<'p> Model<'p> {
    pub fn new(policy: &'p Policy) -> Self {
        Self { policy, states: HashMap::new() }
    }

    /// Deletes states. Returns whether the key itself had one. `None`: it had only an empty window after a refund,
    /// which may count as a state or not.
    pub fn reset(&mut self, key: &[String], subtree: bool, now: i64) -> Option<bool> {
        let own: Vec<_> = self.states.iter().filter(|((path, ..), _)| path == key).collect();
        let live = own.iter().any(|((.., (_, period)), state)| state.ends(i128::from(*period)) > i128::from(now));
        let emptied = own.iter().any(|(_, state)| matches!(state, State::Window { used: 0, .. }));
        self.states.retain(|(path, ..), _| !(path == key || subtree && path.starts_with(key)));
        if live || !emptied { Some(live) } else { None }
    }

    /// Decides a check. `None`: the factor puts a limit out of bounds.
    pub fn check(&mut self, check: &Check, now: i64) -> Option<Answer> {
        let levels = levels(self.policy, check)?;
        let independent = check.independent.unwrap_or(self.policy.independent);
        // Expired states do not count, even if the limit has changed.
        let lives = |level: &Level, state: &State| state.ends(i128::from(level.identity.2.1)) > i128::from(now);
        let known = |level: &Level| self.states.get(&level.identity).filter(|state| lives(level, state)).cloned();
        let before: Vec<_> = levels.iter().map(known).collect();
        let asked = levels.iter().zip(&before);
        let steps: Vec<_> =
            asked.map(|(level, state)| step(&level.rule, &level.base, (*state).clone(), now, check.cost)).collect();
        let allowed = levels.iter().zip(&steps).all(|(level, (decision, _))| level.shadow || decision.allowed);
        let mut decided = Vec::new();
        for ((level, (decision, next)), state) in levels.into_iter().zip(steps).zip(before) {
            let charges_denied = matches!(level.rule, Rule::FixedWindow { charge_denied: true, .. });
            // A level that refuses stores nothing but the cut of its state.
            let commits = allowed || (independent && !level.shadow) || charges_denied || !decision.allowed;
            // A level that passes but is not charged reports its numbers without the charge.
            let decision =
                if commits || !decision.allowed { decision } else { step(&level.rule, &level.base, state, now, 0).0 };
            if commits && let Some(next) = next {
                self.states.insert(level.identity, next);
            }
            decided.push(AnswerLevel { name: level.shown_name, depth: level.depth, shadow: level.shadow, decision });
        }
        Some(Answer { summary: summary(&decided), levels: decided })
    }
}

fn levels(policy: &Policy, check: &Check) -> Option<Vec<Level>> {
    let (mut node, mut pattern, mut factor) = (&policy.root, Vec::new(), 1.0);
    let mut levels = Vec::new();
    for (index, segment) in check.key.iter().enumerate() {
        let Some((name, child)) = child(node, segment) else { break };
        node = child;
        pattern.push(name);
        factor *= node.factor.unwrap_or(1.0);
        let together: f64 = factor * check.factor;
        for (place, limit) in node.limits.iter().enumerate() {
            if together == 0.0 {
                continue;
            }
            let rule = scale(&limit.rule, together);
            if !within_bounds(&rule) {
                return None;
            }
            let ordinal = node.limits[..place].iter().filter(|other| kind(&other.rule).0 == kind(&rule).0).count();
            let who = limit.name.clone().ok_or_else(|| unnamed(&node.limits, place));
            let base = scale(&limit.rule, factor);
            levels.push(level(limit, [rule, base], &check.key[..=index], &pattern, ordinal, who));
        }
    }
    Some(levels)
}

fn unnamed(siblings: &[Limit], place: usize) -> Unnamed {
    let own = &siblings[place];
    let (shadow, longest, numbers) = precedence(own);
    let before: Vec<_> = siblings
        .iter()
        .enumerate()
        .filter(|(_, other)| other.name.is_none() && kind(&other.rule) == kind(&own.rule))
        .filter(|(index, other)| {
            let (its_shadow, its_longest, its_numbers) = precedence(other);
            (its_shadow, its_longest, its_numbers, *index) < (shadow, longest, numbers, place)
        })
        .map(|(_, other)| period(&other.rule))
        .collect();
    let period = period(&own.rule);
    let rank = before.iter().filter(|other| **other == period).count();
    if before.is_empty() { Unnamed::First } else { Unnamed::Other { period, rank } }
}

/// Orders unnamed limits: enforced before shadow, then by longest period, then by smallest parameters.
fn precedence(limit: &Limit) -> (bool, i64, [u64; 2]) {
    let numbers = match limit.rule {
        Rule::Gcra { burst, count, .. } => [burst, count],
        Rule::TokenBucket { capacity, count, .. } => [capacity, count],
        Rule::FixedWindow { count, charge_denied, .. } => [count, charge_denied.into()],
    };
    (limit.shadow, -period(&limit.rule), numbers)
}

fn period(rule: &Rule) -> i64 {
    match *rule {
        Rule::Gcra { period, .. } | Rule::TokenBucket { period, .. } | Rule::FixedWindow { period, .. } => period,
    }
}

fn level(
    limit: &Limit,
    [rule, base]: [Rule; 2],
    path: &[String],
    pattern: &[&str],
    ordinal: usize,
    who: Result<String, Unnamed>,
) -> Level {
    let kind = kind(&rule);
    let shown_name = limit.name.clone().unwrap_or_else(|| format!("{}#{}{ordinal}", pattern.join("/"), kind.0));
    Level {
        identity: (path.to_vec(), who, kind),
        shown_name,
        depth: path.len() as u8,
        shadow: limit.shadow,
        rule,
        base,
    }
}

fn within_bounds(rule: &Rule) -> bool {
    match *rule {
        Rule::Gcra { burst, count, period } => burst <= MOST && count <= MOST && is_exact(burst + 1, count, period),
        Rule::TokenBucket { capacity, count, period } => {
            capacity <= MOST && count <= MOST && is_exact(capacity, count, period)
        }
        Rule::FixedWindow { count, .. } => count <= MOST,
    }
}

/// The bounds of exact arithmetic: `L * T <= 2^50` and `L * C < 2^53`.
fn is_exact(most: u64, count: u64, period: i64) -> bool {
    let (most, count, period) = (i128::from(most), i128::from(count), i128::from(period));
    most * period <= count << 50 && most * (count / gcd(count, period)) < 1 << 53
}

/// Returns the child with that name, else `*`.
fn child<'n>(node: &'n Node, segment: &str) -> Option<(&'n str, &'n Node)> {
    let find = |name: &str| node.children.iter().find(|(child, _)| child == name);
    find(segment).or_else(|| find("*")).map(|(name, child)| (name.as_str(), child))
}

/// Summarizes the levels: least remaining, longest retry, and the binding level.
fn summary(levels: &[AnswerLevel]) -> Summary {
    let counting: Vec<_> = levels.iter().enumerate().filter(|(_, level)| !level.shadow).collect();
    let decisions = || counting.iter().map(|(_, level)| &level.decision);
    let allowed = decisions().all(|decision| decision.allowed);
    let never = decisions().any(|decision| decision.never);
    let retry = decisions().filter_map(|decision| decision.retry_after).max();
    let binding = if allowed {
        let least = decisions().map(|decision| decision.remaining).min();
        counting.iter().rfind(|(_, level)| Some(level.decision.remaining) == least)
    } else if never {
        counting.iter().rfind(|(_, level)| level.decision.never)
    } else {
        counting.iter().rfind(|(_, level)| !level.decision.allowed && level.decision.retry_after == retry)
    };
    let decision = Decision {
        allowed,
        limit: decisions().map(|decision| decision.limit).min().unwrap_or(0),
        remaining: decisions().map(|decision| decision.remaining).min().unwrap_or(0),
        retry_after: retry.filter(|_| !never),
        next_after: if decisions().any(|level| level.remaining == 0 && level.next_after.is_none()) {
            None
        } else {
            decisions().filter_map(|level| level.next_after).max()
        },
        reset_after: decisions().map(|decision| decision.reset_after).max().unwrap_or(0),
        wait: 0,
        never,
    };
    Summary { decision, binding: binding.map(|(index, _)| *index) }
}
