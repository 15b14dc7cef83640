//! Random requests for a few keys, and an in-memory store that decides them.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{
    super::{Level, Limit, Origin, Plan, States},
    model::{self, Memory, StateKey},
};
use crate::{
    algorithm::{Bounds, LIST, Params, State},
    domain::{Ask, Charge, Key, Micros},
    testing::Random,
};

/// The keys of the traces. A request may have several, like Envoy's.
const KEYS: [[&str; 3]; 3] = [["user", "alex", "trade"], ["user", "alex", "pay"], ["user", "bo", "trade"]];

/// A limit on the path of one of the keys.
pub(crate) struct Rule {
    key: usize,
    limit: Limit,
    place: StateKey,
}

impl Rule {
    /// The most units that pass at once.
    fn most(&self) -> i64 {
        self.limit.params.step(None, &Ask { now: 0, cost: 0, max_wait: None, phase: 0 }).0.limit as i64
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
            let params = (entry.parse)(&fields, &Bounds::default()).unwrap();
            let key = random.below(KEYS.len());
            let place = StateKey {
                path: KEYS[key][..random.within(1, 3) as usize].to_vec(),
                from_policy: !random.once_in(4),
                who: if random.once_in(2) { Ok(random.pick(&["a", "b"]).to_owned()) } else { Err(random.below(2)) },
                algorithm: entry.name,
                time_base: params.time_base(),
            };
            let params = params_at.entry(place.clone()).or_insert(params).clone();
            let origin = if place.from_policy { Origin::Policy } else { Origin::Request };
            let (name, ordinal) = match &place.who {
                Ok(name) => (Some(name.as_str()), random.below(3)),
                Err(ordinal) => (None, *ordinal),
            };
            Rule { limit: Limit::new(origin, name, "*", ordinal, random.once_in(4), params), place, key }
        });
        Self { keys: KEYS.map(|key| Key::new("", &key).unwrap()), rules: rules.collect() }
    }

    /// Generates up to six levels, root first. They share one cost, as in a check, or each has its own.
    pub(crate) fn levels(&self, random: &mut Random) -> Vec<(&Rule, i64)> {
        let mut rules: Vec<_> = (0..random.below(7)).map(|_| &self.rules[random.below(self.rules.len())]).collect();
        rules.sort_by_key(|rule| rule.place.path.len());
        let least = rules.iter().map(|rule| rule.most()).min().unwrap_or(1);
        let all = cost(random, least);
        let differ = random.once_in(3);
        rules.into_iter().map(|rule| (rule, if differ { cost(random, rule.most()) } else { all })).collect()
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
            .map(|(rule, cost)| Level::new(&self.keys[rule.key], rule.place.path.len() as u8, 2, &rule.limit, cost))
            .collect();
        let theirs = rules().zip(&ours).map(|((rule, cost), level)| model::Level {
            place: rule.place.clone(),
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

/// Generates a cost for a limit of `most` units at once.
fn cost(random: &mut Random, most: i64) -> i64 {
    match random.below(16) {
        0 => 0,
        1..4 => 1,
        4..6 => random.within(1, 5),
        6 => random.within(5, 20),
        7..9 => most,
        9..13 => random.within(0, most),
        13 => -random.within(1, 3),
        14 => -random.within(1, 30),
        _ => random.magnitude(1 << 32),
    }
}

/// States in a map, with room for a fixed number.
#[derive(Clone)]
pub(crate) struct Store {
    places: Vec<StateKey>,
    room: usize,
    /// Whether a request without room is allowed, and its state not stored.
    lets_pass: bool,
    /// The stored states, each with its expiry.
    pub(crate) states: HashMap<StateKey, (State, Micros)>,
    now: Micros,
}

impl Store {
    pub(crate) fn new(room: usize) -> Self {
        Self { places: Vec::new(), room, lets_pass: false, states: HashMap::new(), now: 0 }
    }

    pub(crate) fn letting_pass(room: usize) -> Self {
        Self { lets_pass: true, ..Self::new(room) }
    }

    /// Prepares for a request; with `forget`, drops expired states.
    pub(crate) fn hold(&mut self, request: &model::Request, forget: bool) {
        self.places = request.levels.iter().map(|level| level.place.clone()).collect();
        self.now = request.now;
        self.states.retain(|_, (_, until)| !forget || *until > request.now);
    }

    pub(crate) fn memory(&self) -> Memory {
        self.states.clone()
    }
}

impl States for Store {
    fn get(&self, index: usize) -> Option<&State> {
        self.states.get(&self.places[index]).filter(|(_, until)| *until > self.now).map(|(state, _)| state)
    }

    fn has_place(&self, index: usize) -> bool {
        self.states.contains_key(&self.places[index])
    }

    fn has_room(&self, count: usize) -> bool {
        self.lets_pass || self.states.len() + count <= self.room
    }

    fn reserve(&mut self, count: usize) -> bool {
        self.has_room(count)
    }

    fn put(&mut self, index: usize, state: State, reset_after: Micros) {
        if self.lets_pass && !self.has_place(index) && self.states.len() == self.room {
            return;
        }
        self.states.insert(self.places[index].clone(), (state, self.now + reset_after));
        assert!(self.states.len() <= self.room, "a state was put for which no room was reserved");
    }
}
