//! Generators of random policies, as YAML and as values for the model, and of random traces.

use rand::{Rng as _, seq::IndexedRandom as _};
use rand_chacha::ChaCha8Rng;

fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    *from.choose(rng).expect("something to choose from")
}

/// A rule with its parameters. Times are in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    Gcra { burst: u64, count: u64, period: i64 },
    TokenBucket { capacity: u64, count: u64, period: i64 },
    FixedWindow { count: u64, period: i64, charge_denied: bool },
}

#[derive(Clone, Debug)]
pub struct Limit {
    pub name: Option<String>,
    pub shadow: bool,
    pub rule: Rule,
    /// Whether the limit is written as `[burst, count, seconds]`.
    positional: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub factor: Option<f64>,
    pub limits: Vec<Limit>,
    pub children: Vec<(String, Node)>,
}

#[derive(Clone, Debug)]
pub struct Policy {
    pub independent: bool,
    anchor: Option<u8>,
    pub root: Node,
}

#[derive(Clone, Debug)]
pub struct Check {
    pub key: Vec<String>,
    pub cost: i64,
    pub factor: f64,
    /// Overrides the policy's charge mode.
    pub independent: Option<bool>,
}

#[derive(Clone, Debug)]
pub enum Event {
    Check(Check),
    Reset {
        key: Vec<String>,
        subtree: bool,
    },
    /// Replaces the policy in force.
    Reload(usize),
}

pub struct Story {
    pub policies: Vec<Policy>,
    /// Events with their times in microseconds.
    pub events: Vec<(i64, Event)>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Exact in binary or small, so that model and program agree without rounding errors.
const FACTORS: [f64; 6] = [0.5, 0.25, 2.0, 3.0, 1.5, 4.0];
const PERIODS: [i64; 7] = [7, 1_000, 99_991, 1_000_000, 1_000_000, 1_500_000, 60_000_000];
const COSTS: [i64; 16] = [1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 0, 0, -1, -2, 7, 1 << 32];
const START: i64 = 1_700_000_000_000_000;

pub fn story(rng: &mut ChaCha8Rng) -> Story {
    let first = policy(rng);
    let mut policies = vec![first];
    if rng.random_ratio(1, 3) {
        let mut changed = policies[0].clone();
        change(&mut changed.root, rng);
        changed.independent = rng.random_ratio(1, 2);
        policies.push(changed);
    }
    let mut now = if rng.random_ratio(1, 10) { 0 } else { START + rng.random_range(0..1_000_000) };
    let mut events = Vec::new();
    for _ in 0..rng.random_range(8..32) {
        now = (now + step(rng)).max(0);
        events.push((now, event(rng, policies.len())));
    }
    Story { policies, events }
}

fn step(rng: &mut ChaCha8Rng) -> i64 {
    let most = pick(rng, &[1, 1, 2, 10, 1_000, 400_000, 2_000_000, 120_000_000]);
    let step = rng.random_range(0..most);
    if rng.random_ratio(1, 12) { -step } else { step }
}

fn event(rng: &mut ChaCha8Rng, policies: usize) -> Event {
    let key: Vec<_> =
        (0..pick(rng, &[1, 2, 2, 3, 3, 3])).map(|_| pick(rng, &["a", "a", "a", "a", "b", "x"]).to_owned()).collect();
    match rng.random_range(0..20) {
        0 => Event::Reset { key, subtree: rng.random_ratio(1, 2) },
        1 if policies > 1 => Event::Reload(rng.random_range(0..policies)),
        _ => {
            let cost = pick(rng, &COSTS);
            let factor =
                if rng.random_ratio(1, 6) { pick(rng, &[0.0, 0.5, 0.5, 2.0, 2.0, 3.0, 0.25, 1e-10]) } else { 1.0 };
            let independent = rng.random_ratio(1, 6).then(|| rng.random_ratio(1, 2));
            Event::Check(Check { key, cost, factor, independent })
        }
    }
}

fn policy(rng: &mut ChaCha8Rng) -> Policy {
    let anchor = rng.random_ratio(1, 2).then(|| rng.random_range(1..=4));
    let mut root = Node::default();
    children(&mut root, rng, 1);
    Policy { independent: rng.random_ratio(1, 2), anchor, root }
}

fn children(node: &mut Node, rng: &mut ChaCha8Rng, depth: u32) {
    for name in NAMES {
        if name == "a" || rng.random_ratio(1, 4 * depth) {
            node.children.push((name.to_owned(), self::node(rng, depth)));
        }
    }
    if rng.random_ratio(1, 2 * depth) {
        node.children.push(("*".to_owned(), self::node(rng, depth)));
    }
}

fn node(rng: &mut ChaCha8Rng, depth: u32) -> Node {
    let mut node = Node::default();
    if rng.random_ratio(1, 6) {
        node.factor = Some(if rng.random_ratio(1, 8) { 0.0 } else { pick(rng, &FACTORS) });
    }
    for index in 0..pick(rng, &[0, 1, 1, 1, 2, 3]) {
        let rule = rule(rng);
        let name = rng.random_ratio(1, 3).then(|| format!("n{index}"));
        let seconds = matches!(rule, Rule::Gcra { period, .. } if period % 1_000_000 == 0);
        let positional = seconds && name.is_none() && rng.random_ratio(1, 2);
        node.limits.push(Limit { name, shadow: !positional && rng.random_ratio(1, 5), rule, positional });
    }
    if depth < 3 {
        children(&mut node, rng, depth + 1);
    }
    node
}

fn rule(rng: &mut ChaCha8Rng) -> Rule {
    let count = rng.random_range(1..=9);
    let size = rng.random_range(1..=8);
    let period = pick(rng, &PERIODS);
    match rng.random_range(0..3) {
        0 => Rule::Gcra { burst: size - 1, count, period },
        1 => Rule::TokenBucket { capacity: size, count, period },
        _ => Rule::FixedWindow { count, period, charge_denied: rng.random_ratio(1, 4) },
    }
}

/// Changes numbers in place, as an operator who tunes a policy does.
fn change(node: &mut Node, rng: &mut ChaCha8Rng) {
    for limit in &mut node.limits {
        if rng.random_ratio(1, 2) {
            limit.rule = match (&limit.rule, rule(rng)) {
                (Rule::Gcra { .. }, new @ Rule::Gcra { .. }) if !limit.positional => new,
                (Rule::TokenBucket { .. }, new @ Rule::TokenBucket { .. }) => new,
                (Rule::FixedWindow { .. }, new @ Rule::FixedWindow { .. }) => new,
                (old, _) => old.clone(),
            };
        }
    }
    for (_, child) in &mut node.children {
        change(child, rng);
    }
}

/// Writes the policy as YAML.
pub fn yaml(policy: &Policy) -> String {
    let mut text = format!("charge: {}\n", if policy.independent { "independent" } else { "all_or_nothing" });
    if let Some(anchor) = policy.anchor {
        text.push_str(&format!("anchor: {anchor}\n"));
    }
    text.push_str("schema:\n");
    write_children(&policy.root, 1, &mut text);
    text
}

fn write_children(node: &Node, indent: usize, text: &mut String) {
    let space = "  ".repeat(indent);
    for (name, child) in &node.children {
        text.push_str(&format!("{space}\"{name}\":\n"));
        if let Some(factor) = child.factor {
            text.push_str(&format!("{space}  factor: {factor}\n"));
        }
        if !child.limits.is_empty() {
            text.push_str(&format!("{space}  limits:\n"));
            for limit in &child.limits {
                text.push_str(&format!("{space}    - {}\n", limit_text(limit)));
            }
        }
        if !child.children.is_empty() {
            text.push_str(&format!("{space}  children:\n"));
            write_children(child, indent + 2, text);
        }
    }
}

fn limit_text(limit: &Limit) -> String {
    let rule = match &limit.rule {
        Rule::Gcra { burst, count, period } if limit.positional => {
            return format!("[{burst}, {count}, {}]", period / 1_000_000);
        }
        Rule::Gcra { burst, count, period } => {
            format!("gcra: {{ burst: {burst}, count: {count}, period: {period}us }}")
        }
        Rule::TokenBucket { capacity, count, period } => {
            format!("token_bucket: {{ capacity: {capacity}, count: {count}, period: {period}us }}")
        }
        Rule::FixedWindow { count, period, charge_denied } => {
            format!("fixed_window: {{ count: {count}, period: {period}us, charge_denied: {charge_denied} }}")
        }
    };
    let name = limit.name.as_ref().map(|name| format!(", name: {name}")).unwrap_or_default();
    let shadow = if limit.shadow { ", shadow: true" } else { "" };
    format!("{{ {rule}{name}{shadow} }}")
}
