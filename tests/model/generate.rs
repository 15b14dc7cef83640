//! Generators of random policies, as YAML and as values for the model, and of random traces.

use weir_core::testing::Random;

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
    /// Replaces the current policy.
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

pub fn story(random: &mut Random) -> Story {
    let first = policy(random);
    let mut policies = vec![first];
    if random.once_in(3) {
        let mut changed = policies[0].clone();
        change(&mut changed.root, random);
        changed.independent = random.once_in(2);
        policies.push(changed);
    }
    let mut now = if random.once_in(10) { 0 } else { START + random.within(0, 999_999) };
    let mut events = Vec::new();
    for _ in 0..8 + random.below(24) {
        now = (now + step(random)).max(0);
        events.push((now, event(random, policies.len())));
    }
    Story { policies, events }
}

fn step(random: &mut Random) -> i64 {
    let most = random.pick(&[1, 1, 2, 10, 1_000, 400_000, 2_000_000, 120_000_000]);
    let step = random.within(0, most - 1);
    if random.once_in(12) { -step } else { step }
}

fn event(random: &mut Random, policies: usize) -> Event {
    let key: Vec<_> = (0..random.pick(&[1, 2, 2, 3, 3, 3]))
        .map(|_| random.pick(&["a", "a", "a", "a", "b", "x"]).to_owned())
        .collect();
    match random.below(20) {
        0 => Event::Reset { key, subtree: random.once_in(2) },
        1 if policies > 1 => Event::Reload(random.below(policies)),
        _ => {
            let cost = random.pick(&COSTS);
            let factor =
                if random.once_in(6) { random.pick(&[0.0, 0.5, 0.5, 2.0, 2.0, 3.0, 0.25, 1e-10]) } else { 1.0 };
            let independent = random.once_in(6).then(|| random.once_in(2));
            Event::Check(Check { key, cost, factor, independent })
        }
    }
}

fn policy(random: &mut Random) -> Policy {
    let anchor = random.once_in(2).then(|| 1 + random.below(4) as u8);
    let mut root = Node::default();
    children(&mut root, random, 1);
    Policy { independent: random.once_in(2), anchor, root }
}

fn children(node: &mut Node, random: &mut Random, depth: u32) {
    for name in NAMES {
        if name == "a" || random.once_in(4 * depth) {
            node.children.push((name.to_owned(), self::node(random, depth)));
        }
    }
    if random.once_in(2 * depth) {
        node.children.push(("*".to_owned(), self::node(random, depth)));
    }
}

fn node(random: &mut Random, depth: u32) -> Node {
    let mut node = Node::default();
    if random.once_in(6) {
        node.factor = Some(if random.once_in(8) { 0.0 } else { random.pick(&FACTORS) });
    }
    for index in 0..random.pick(&[0, 1, 1, 1, 2, 3]) {
        let rule = rule(random);
        let name = random.once_in(3).then(|| format!("n{index}"));
        let seconds = matches!(rule, Rule::Gcra { period, .. } if period % 1_000_000 == 0);
        let positional = seconds && name.is_none() && random.once_in(2);
        node.limits.push(Limit { name, shadow: !positional && random.once_in(5), rule, positional });
    }
    if depth < 3 {
        children(&mut node, random, depth + 1);
    }
    node
}

fn rule(random: &mut Random) -> Rule {
    let count = 1 + random.below(9) as u64;
    let size = 1 + random.below(8) as u64;
    let period = random.pick(&PERIODS);
    match random.below(3) {
        0 => Rule::Gcra { burst: size - 1, count, period },
        1 => Rule::TokenBucket { capacity: size, count, period },
        _ => Rule::FixedWindow { count, period, charge_denied: random.once_in(4) },
    }
}

/// Changes numbers in place, as an operator who tunes a policy does.
fn change(node: &mut Node, random: &mut Random) {
    for limit in &mut node.limits {
        if random.once_in(2) {
            limit.rule = match (&limit.rule, rule(random)) {
                (Rule::Gcra { .. }, new @ Rule::Gcra { .. }) if !limit.positional => new,
                (Rule::TokenBucket { .. }, new @ Rule::TokenBucket { .. }) => new,
                (Rule::FixedWindow { .. }, new @ Rule::FixedWindow { .. }) => new,
                (old, _) => old.clone(),
            };
        }
    }
    for (_, child) in &mut node.children {
        change(child, random);
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
