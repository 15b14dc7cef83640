//! Random policies, as text and as the model reads them, and random stories.

/// Dice that fall the same way for the same seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A rule with its parameters; times in microseconds.
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
    /// Written as `[burst, count, seconds]`.
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
    /// Instead of what the policy says.
    pub independent: Option<bool>,
}

#[derive(Clone, Debug)]
pub enum Event {
    Check(Check),
    Reset {
        key: Vec<String>,
        subtree: bool,
    },
    /// Another policy is in force from now on.
    Reload(usize),
}

pub struct Story {
    pub policies: Vec<Policy>,
    /// What happens, and when.
    pub events: Vec<(i64, Event)>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Exact in binary or small, so that no rounding of a double stands between the model and the text.
const FACTORS: [f64; 6] = [0.5, 0.25, 2.0, 3.0, 1.5, 4.0];
const PERIODS: [i64; 7] = [7, 1_000, 99_991, 1_000_000, 1_000_000, 1_500_000, 60_000_000];
const COSTS: [i64; 16] = [1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 0, 0, -1, -2, 7, 1 << 32];
const START: i64 = 1_700_000_000_000_000;

pub fn story(dice: &mut Dice) -> Story {
    let first = policy(dice);
    let mut policies = vec![first];
    if dice.one_in(3) {
        let mut changed = policies[0].clone();
        change(&mut changed.root, dice);
        changed.independent = dice.one_in(2);
        policies.push(changed);
    }
    let mut now = if dice.one_in(10) { 0 } else { START + dice.below(1_000_000) as i64 };
    let mut events = Vec::new();
    for _ in 0..8 + dice.below(24) {
        now = (now + step(dice)).max(0);
        events.push((now, event(dice, policies.len())));
    }
    Story { policies, events }
}

fn step(dice: &mut Dice) -> i64 {
    let most = dice.pick(&[1, 1, 2, 10, 1_000, 400_000, 2_000_000, 120_000_000]);
    let step = dice.below(most) as i64;
    if dice.one_in(12) { -step } else { step }
}

fn event(dice: &mut Dice, policies: usize) -> Event {
    let key: Vec<_> =
        (0..dice.pick(&[1, 2, 2, 3, 3, 3])).map(|_| dice.pick(&["a", "a", "a", "a", "b", "x"]).to_owned()).collect();
    match dice.below(20) {
        0 => Event::Reset { key, subtree: dice.one_in(2) },
        1 if policies > 1 => Event::Reload(dice.below(policies as u64) as usize),
        _ => {
            let cost = dice.pick(&COSTS);
            let factor = if dice.one_in(6) { dice.pick(&[0.0, 0.5, 0.5, 2.0, 2.0, 3.0, 0.25, 1e-10]) } else { 1.0 };
            let independent = dice.one_in(6).then(|| dice.one_in(2));
            Event::Check(Check { key, cost, factor, independent })
        }
    }
}

fn policy(dice: &mut Dice) -> Policy {
    let anchor = dice.one_in(2).then(|| 1 + dice.below(4) as u8);
    let mut root = Node::default();
    children(&mut root, dice, 1);
    Policy { independent: dice.one_in(2), anchor, root }
}

fn children(node: &mut Node, dice: &mut Dice, depth: usize) {
    for name in NAMES {
        if name == "a" || dice.one_in(4 * depth as u64) {
            node.children.push((name.to_owned(), self::node(dice, depth)));
        }
    }
    if dice.one_in(2 * depth as u64) {
        node.children.push(("*".to_owned(), self::node(dice, depth)));
    }
}

fn node(dice: &mut Dice, depth: usize) -> Node {
    let mut node = Node::default();
    if dice.one_in(6) {
        node.factor = Some(if dice.one_in(8) { 0.0 } else { dice.pick(&FACTORS) });
    }
    for index in 0..dice.pick(&[0, 1, 1, 1, 2, 3]) {
        let rule = rule(dice);
        let name = dice.one_in(3).then(|| format!("n{index}"));
        let seconds = matches!(rule, Rule::Gcra { period, .. } if period % 1_000_000 == 0);
        let positional = seconds && name.is_none() && dice.one_in(2);
        node.limits.push(Limit { name, shadow: !positional && dice.one_in(5), rule, positional });
    }
    if depth < 3 {
        children(&mut node, dice, depth + 1);
    }
    node
}

fn rule(dice: &mut Dice) -> Rule {
    let count = 1 + dice.below(9);
    let size = 1 + dice.below(8);
    let period = dice.pick(&PERIODS);
    match dice.below(3) {
        0 => Rule::Gcra { burst: size - 1, count, period },
        1 => Rule::TokenBucket { capacity: size, count, period },
        _ => Rule::FixedWindow { count, period, charge_denied: dice.one_in(4) },
    }
}

/// Other numbers at the same places, as when an operator tunes a policy.
fn change(node: &mut Node, dice: &mut Dice) {
    for limit in &mut node.limits {
        if dice.one_in(2) {
            limit.rule = match (&limit.rule, rule(dice)) {
                (Rule::Gcra { .. }, new @ Rule::Gcra { .. }) if !limit.positional => new,
                (Rule::TokenBucket { .. }, new @ Rule::TokenBucket { .. }) => new,
                (Rule::FixedWindow { .. }, new @ Rule::FixedWindow { .. }) => new,
                (old, _) => old.clone(),
            };
        }
    }
    for (_, child) in &mut node.children {
        change(child, dice);
    }
}

/// The policy as a file.
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
