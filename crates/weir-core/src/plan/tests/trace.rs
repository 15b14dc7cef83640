//! Random requests for a few keys, and an in-memory store that decides them.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{
    super::{Level, Limit, Origin, Plan, States},
    model::{self, Memory, StateKey},
};
use crate::{
    algorithm::{Bounds, LIST, Params, State},
    domain::{Charge, Key, Micros, StepInput},
    testing::Random,
};

/// The keys of the traces. A request may have several, like Envoy's.
const KEYS: [[&str; 3]; 3] = [["user", "alex", "trade"], ["user", "alex", "pay"], ["user", "bo", "trade"]];

/// A limit on the path of one of the keys.
pub(crate) struct Rule {
    key: usize,
    limit: Limit,
    state_key: StateKey,
}

impl Rule {
    /// The most units that pass in a burst.
    fn max_cost(&self) -> i64 {
        self.limit.params.step(None, &StepInput { now: 0, cost: 0, max_wait: None, phase: 0 }).0.limit as i64
    }
}

/// The keys, and the limits that apply to them.
pub(crate) struct Scenario {
    keys: [Key; 3],
    rules: Vec<Rule>,
}

impl Scenario {
    /// Generates limits at three depths, some of which share a state.
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut params_at: HashMap<StateKey, Params> = HashMap::new();
        let rules = (0..random.within(1, 8)).map(|_| {
            let entry = &LIST[random.below(LIST.len())];
            let fields = entry.examples[random.below(entry.examples.len())];
            let params = (entry.parse)(fields, &Bounds::default()).unwrap();
            let key = random.below(KEYS.len());
            let state_key = StateKey {
                path: KEYS[key][..random.within(1, 3) as usize].to_vec(),
                from_policy: !random.once_in(4),
                discriminator: if random.once_in(2) {
                    Ok(random.pick(&["a", "b"]).to_owned())
                } else {
                    Err(random.below(2))
                },
                algorithm: entry.name,
                time_base: params.time_base(),
            };
            let params = params_at.entry(state_key.clone()).or_insert(params).clone();
            let origin = if state_key.from_policy { Origin::Policy } else { Origin::Request };
            let (name, ordinal) = match &state_key.discriminator {
                Ok(name) => (Some(name.as_str()), random.below(3)),
                Err(ordinal) => (None, *ordinal),
            };
            Rule { limit: Limit::new(origin, name, "*", ordinal, random.once_in(4), params), state_key, key }
        });
        Self { keys: KEYS.map(|key| Key::new("", &key).unwrap()), rules: rules.collect() }
    }

    /// Generates up to six levels, root first. They share one cost, as in a check, or each has its own.
    pub(crate) fn levels(&self, random: &mut Random) -> Vec<(&Rule, i64)> {
        let mut rules: Vec<_> = (0..random.below(7)).map(|_| &self.rules[random.below(self.rules.len())]).collect();
        rules.sort_by_key(|rule| rule.state_key.path.len());
        let smallest = rules.iter().map(|rule| rule.max_cost()).min().unwrap_or(1);
        let all = cost(random, smallest);
        let differ = random.once_in(3);
        rules.into_iter().map(|rule| (rule, if differ { cost(random, rule.max_cost()) } else { all })).collect()
    }

    /// Returns the request as the stores take it and as the model takes it.
    pub(crate) fn request(
        &self,
        levels: &[(&Rule, i64)],
        charge: Charge,
        max_wait: Option<Micros>,
        now: Micros,
    ) -> (Plan<'_>, model::Request) {
        let rules = || levels.iter().map(|(rule, cost)| (self.rule(rule), *cost));
        let ours: SmallVec<[_; 4]> = rules()
            .map(|(rule, cost)| Level::new(&self.keys[rule.key], rule.state_key.path.len() as u8, 2, &rule.limit, cost))
            .collect();
        let theirs = rules().zip(&ours).map(|((rule, cost), level)| model::Level {
            state_key: rule.state_key.clone(),
            params: rule.limit.params.clone(),
            shadow: rule.limit.shadow,
            cost,
            phase: level.phase(),
        });
        let theirs = model::Request { now, charge, max_wait, levels: theirs.collect() };
        (Plan::new(ours, charge, max_wait), theirs)
    }

    /// Returns the same rule, borrowed for as long as the scenario.
    fn rule(&self, rule: &Rule) -> &Rule {
        self.rules.iter().find(|own| std::ptr::eq(*own, rule)).unwrap()
    }
}

/// Generates a cost for a limit of `max` units in a burst.
fn cost(random: &mut Random, max: i64) -> i64 {
    match random.below(16) {
        0 => 0,
        1..4 => 1,
        4..6 => random.within(1, 5),
        6 => random.within(5, 20),
        7..9 => max,
        9..13 => random.within(0, max),
        13 => -random.within(1, 3),
        14 => -random.within(1, 30),
        _ => random.magnitude(1 << 32),
    }
}

/// States in a map, with space for a fixed number.
#[derive(Clone)]
pub(crate) struct Store {
    state_keys: Vec<StateKey>,
    capacity: usize,
    /// Whether a request without space is allowed, and its state not stored.
    lets_pass: bool,
    /// The stored states, each with its expiry.
    pub(crate) states: HashMap<StateKey, (State, Micros)>,
    now: Micros,
}

impl Store {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { state_keys: Vec::new(), capacity, lets_pass: false, states: HashMap::new(), now: 0 }
    }

    pub(crate) fn letting_pass(capacity: usize) -> Self {
        Self { lets_pass: true, ..Self::new(capacity) }
    }

    /// Prepares for a request; with `forget`, drops expired states.
    pub(crate) fn hold(&mut self, request: &model::Request, forget: bool) {
        self.state_keys = request.levels.iter().map(|level| level.state_key.clone()).collect();
        self.now = request.now;
        self.states.retain(|_, (_, until)| !forget || *until > request.now);
    }

    pub(crate) fn memory(&self) -> Memory {
        self.states.clone()
    }
}

impl States for Store {
    fn get(&self, index: usize) -> Option<&State> {
        self.states.get(&self.state_keys[index]).filter(|(_, until)| *until > self.now).map(|(state, _)| state)
    }

    fn has_entry(&self, index: usize) -> bool {
        self.states.contains_key(&self.state_keys[index])
    }

    fn has_capacity(&self, count: usize) -> bool {
        self.lets_pass || self.states.len() + count <= self.capacity
    }

    fn reserve(&mut self, count: usize) -> bool {
        self.has_capacity(count)
    }

    fn put(&mut self, index: usize, state: State, reset_after: Micros) {
        if self.lets_pass && !self.has_entry(index) && self.states.len() == self.capacity {
            return;
        }
        self.states.insert(self.state_keys[index].clone(), (state, self.now + reset_after));
        assert!(self.states.len() <= self.capacity, "a state was put for which no space was reserved");
    }
}
