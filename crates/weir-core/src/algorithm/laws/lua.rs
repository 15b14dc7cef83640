//! The Lua halves, run in this process by the Lua that Redis embeds (5.1).

use std::{collections::HashMap, fmt::Write};

use mlua::{Function, Lua, Table};

use crate::{
    algorithm::{LIST, LUA_PRELUDE, Params, State},
    domain::{Ask, Decision},
};

/// A decision in Lua's form: allowed, limit, remaining, retry (-1 for none), reset, wait, never.
pub type Words = Vec<f64>;

/// The Lua half of every algorithm, out of one script.
pub struct Halves {
    steps: HashMap<&'static str, Function>,
    _lua: Lua,
}

impl Halves {
    /// Builds the script as a store does: the prelude, then every half, all of them `local function`s.
    pub fn new() -> Self {
        let mut script = LUA_PRELUDE.concat();
        let mut names = String::new();
        for entry in LIST {
            script.push_str(entry.lua);
            write!(names, "{0} = {0}, ", entry.name).unwrap();
        }
        write!(script, "return {{{names}}}").unwrap();
        let lua = Lua::new();
        let table: Table = lua.load(script).eval().unwrap();
        let steps = LIST.iter().map(|entry| (entry.name, table.get(entry.name).unwrap())).collect();
        Self { steps, _lua: lua }
    }

    /// The Lua half of [`Params::step`]: the decision, and the new state where it changed.
    pub fn step(&self, params: &Params, state: Option<&State>, ask: &Ask) -> (Words, Option<Words>) {
        let state = state.map(State::lua_state);
        let max_wait = ask.max_wait.unwrap_or(-1) as f64;
        let (now, cost, phase) = (ask.now as f64, ask.cost as f64, ask.phase as f64);
        self.steps[params.name()].call((params.lua_params(), state, now, cost, max_wait, phase)).unwrap()
    }

    /// Panics unless both halves give the same decision, in whole numbers that a double holds, and the same state.
    pub fn assert_same(&self, params: &Params, state: Option<&State>, ask: &Ask, rust: (&Decision, Option<&State>)) {
        let (decision, next) = self.step(params, state, ask);
        let place = || format!("{params:?} {state:?} {ask:?}");
        assert_bits(&decision, &words(rust.0), &place);
        let exact = |word: &f64| word.fract() == 0.0 && word.abs() < (1i64 << 53) as f64;
        assert!(decision.iter().all(exact), "{decision:?} is not exact: {}", place());
        match (&next, rust.1.map(State::lua_state)) {
            (None, None) => {}
            (Some(lua), Some(rust)) => assert_bits(lua, &rust, &place),
            (lua, rust) => panic!("the new state is {lua:?} in Lua, {rust:?} in Rust: {}", place()),
        }
    }
}

fn assert_bits(lua: &[f64], rust: &[f64], place: &impl Fn() -> String) {
    let bits = |words: &[f64]| words.iter().map(|word| word.to_bits()).collect::<Vec<_>>();
    assert!(bits(lua) == bits(rust), "Lua {lua:?}, Rust {rust:?}: {}", place());
    let finite = |word: &f64| word.is_finite() && word.abs() < (1i64 << 53) as f64;
    assert!(lua.iter().all(finite), "{lua:?} is not exact: {}", place());
}

/// A decision of the Rust half in Lua's form.
pub fn words(decision: &Decision) -> Words {
    let flag = |flag| f64::from(u8::from(flag));
    let Decision { allowed, limit, remaining, retry_after, reset_after, wait, never } = *decision;
    let retry = retry_after.unwrap_or(-1);
    vec![flag(allowed), limit as f64, remaining as f64, retry as f64, reset_after as f64, wait as f64, flag(never)]
}
