//! The fixture of a trace: a few keys, and limits on their paths.

use std::fmt;

use weir_core::{
    algorithm::{Bounds, Entry, LIST, Params},
    domain::{Charge, Key, Micros},
    plan::{Level, Limit, Origin, Plan},
    testing::Random,
};

use smallvec::SmallVec;

const LONG: &str = "a segment of over sixty-four bytes, of which names of states hold a hash instead";

/// Nested keys, keys with common prefixes, and bytes that are special in patterns and in hash tags of a Cluster.
const PATHS: [&[&str]; 12] = [
    &["user"],
    &["user", "alex"],
    &["user", "alex", "trade"],
    &["user", "alex", "trade", "eur", "usd"],
    &["user", "alex", "pay"],
    &["user", "alexa", "trade"],
    &["user", "bo", "trade"],
    &["user", LONG, "trade"],
    &["u*", "[a-z]?", "\\*", "x"],
    &["{user}", "alex", "{}"],
    &["user}", "{alex}{bo}"],
    &["\u{0}\r\n", "é", "\u{7f}\u{80}"],
];
const DOMAINS: [&str; 4] = ["", "", "api", "a}{*"];
const FACTORS: [f64; 7] = [0.001, 0.1, 0.5, 1.5, 2.0, 3.0, 1_000.0];

/// A key, with its segments as text.
pub struct Named {
    domain: &'static str,
    segments: Vec<&'static str>,
    pub key: Key,
}

impl Named {
    fn new(domain: &'static str, segments: &[&'static str]) -> Self {
        Self { domain, segments: segments.to_vec(), key: Key::new(domain, segments).expect("a key") }
    }

    /// Returns the key with its first `depth` segments, followed by `more`.
    pub fn prefix(&self, depth: usize, more: Option<&'static str>) -> Self {
        let segments: Vec<_> = self.segments.iter().copied().take(depth).chain(more).collect();
        Self::new(self.domain, &segments)
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{:?}", self.domain, self.segments)
    }
}

/// A limit with its position, and the parts from which it is rebuilt when its parameters change.
pub struct Rule {
    entry: &'static Entry,
    path: Vec<u8>,
    pub depth: u8,
    origin: Origin,
    name: Option<&'static str>,
    ordinal: usize,
    shadow: bool,
    params: Params,
    factor: f64,
    pub limit: Limit,
}

impl Rule {
    fn limit(&self, params: &Params, factor: f64) -> Option<Limit> {
        let limit = Limit::new(self.origin, self.name, "*", self.ordinal, self.shadow, params.clone());
        limit.under_policy_factor(factor).ok().flatten()
    }

    fn is_state_of(&self, other: &Self) -> bool {
        self.path == other.path && self.limit.ident() == other.limit.ident()
    }

    pub fn algorithm(&self) -> &'static str {
        self.entry.name
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { depth, shadow, params, factor, limit, .. } = self;
        let shadow = if *shadow { " shadow" } else { "" };
        write!(f, "depth {depth}{shadow} {} {} factor {factor}", limit.ident_text(), params.describe())
    }
}

/// The keys and limits of one trace.
#[derive(Debug)]
pub struct Fixture {
    pub anchor: u8,
    pub keys: Vec<Named>,
    pub rules: Vec<Rule>,
}

/// A request: its levels as indexes into `keys` and `rules`, each with its cost.
#[derive(Clone, Debug)]
pub struct Check {
    pub levels: Vec<(usize, usize, i64)>,
    pub charge: Charge,
    pub max_wait: Option<Micros>,
    pub factor: f64,
    pub dry_run: bool,
}

impl Fixture {
    pub fn new(random: &mut Random) -> Self {
        let mut keys = vec![Named::new("", &["user", "alex", "trade"])];
        for _ in 0..random.below(4) {
            let new = Named::new(random.pick(&DOMAINS), random.pick(&PATHS));
            if keys.iter().all(|key| key.key != new.key) {
                keys.push(new);
            }
        }
        let mut fixture = Self { anchor: 1 + random.below(4) as u8, keys, rules: Vec::new() };
        // A trace has few algorithms, so that each occurs often enough.
        let entries = [&LIST[random.below(LIST.len())], &LIST[random.below(LIST.len())]];
        for _ in 0..2 + random.below(6) {
            let entry = random.pick(&entries);
            fixture.add_rule(entry, random);
        }
        fixture
    }

    fn add_rule(&mut self, entry: &'static Entry, random: &mut Random) {
        let key = &self.keys[random.below(self.keys.len())].key;
        let depth = 1 + random.below(key.depth());
        let params = example(entry, random);
        let mut rule = Rule {
            entry,
            path: key.prefix(depth).to_vec(),
            depth: depth as u8,
            origin: if random.once_in(4) { Origin::Request } else { Origin::Policy },
            name: if random.once_in(2) { Some(random.pick(&["per-user", "b"])) } else { None },
            ordinal: random.below(2),
            shadow: random.once_in(4),
            limit: Limit::new(Origin::Policy, None, "*", 0, false, params.clone()),
            params,
            factor: 1.0,
        };
        rule.limit = rule.limit(&rule.params, 1.0).expect("a limit without a factor");
        // Limits that share a state have the same parameters.
        if let Some(duplicate) = self.rules.iter().find(|other| other.is_state_of(&rule)) {
            let limit = rule.limit(&duplicate.params, duplicate.factor).expect("those of the other");
            rule = Rule { params: duplicate.params.clone(), factor: duplicate.factor, limit, ..rule };
        }
        self.rules.push(rule);
    }

    /// Changes the parameters of a limit, as an edit of the policy would, mostly keeping its counts. Returns the
    /// changed limits: it and those with the same state.
    pub fn change(&mut self, random: &mut Random) -> Vec<usize> {
        let changed = random.below(self.rules.len());
        let rule = &self.rules[changed];
        let (mut params, mut factor) = (example(rule.entry, random), 1.0);
        if random.once_in(2) {
            (params, factor) = (rule.params.clone(), random.pick(&FACTORS));
        }
        let Some(limit) = rule.limit(&params, factor) else { return Vec::new() };
        let all: Vec<_> = (0..self.rules.len()).filter(|index| self.rules[*index].is_state_of(rule)).collect();
        let taken = |other: &Rule| other.path == rule.path && other.limit.ident() == limit.ident();
        if limit.ident() != rule.limit.ident() && self.rules.iter().any(taken) {
            return Vec::new();
        }
        for index in &all {
            let rule = &mut self.rules[*index];
            rule.limit = rule.limit(&params, factor).expect("as for the first");
            (rule.params, rule.factor) = (params.clone(), factor);
        }
        all
    }

    /// Returns the limits on the path of a key, root first.
    pub fn rules_of(&self, key: usize) -> Vec<usize> {
        let key = &self.keys[key].key;
        let applies =
            |rule: &Rule| usize::from(rule.depth) <= key.depth() && rule.path == key.prefix(rule.depth.into());
        let mut rules: Vec<_> = (0..self.rules.len()).filter(|index| applies(&self.rules[*index])).collect();
        rules.sort_by_key(|index| self.rules[*index].depth);
        rules
    }

    /// Returns the anchor of the state of a limit on a key's path.
    pub fn anchor_path(&self, key: usize, rule: usize) -> &[u8] {
        self.keys[key].key.prefix(self.rules[rule].depth.min(self.anchor).into())
    }

    /// Makes the plan of a request; `None` if its factor lifts all limits or makes it invalid.
    pub fn plan(&self, check: &Check) -> Option<Plan<'_>> {
        let mut levels = SmallVec::new();
        for (key, rule, cost) in &check.levels {
            let rule = &self.rules[*rule];
            let level = Level::new(&self.keys[*key].key, rule.depth, self.anchor, &rule.limit, *cost);
            levels.extend(level.under_factor(check.factor).ok()?);
        }
        (!levels.is_empty()).then(|| {
            let mut plan = Plan::new(levels, check.charge, check.max_wait);
            plan.dry_run = check.dry_run;
            let has_duplicates = (0..plan.levels().len()).any(|index| plan.state_of(index) != index);
            let several = plan.levels().iter().any(|level| level.anchor_path() != plan.levels()[0].anchor_path());
            if plan.charge != Charge::AllOrNothing && has_duplicates && several {
                // Levels that only refuse together, and refunds beside charges of the same state, are distinguished
                // within one anchor only.
                let [refunds, charges] =
                    [-1, 1].map(|sign| plan.levels().iter().any(|level| level.cost.signum() == sign));
                plan.charge = if refunds && charges { Charge::AllOrNothing } else { Charge::Independent };
            }
            plan
        })
    }
}

fn example(entry: &Entry, random: &mut Random) -> Params {
    (entry.parse)(random.pick(entry.examples), &Bounds::default()).expect("an example")
}
