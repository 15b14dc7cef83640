//! The Lua halves, run in this process by Lua 5.1, which Redis embeds.

use std::collections::HashMap;

use mlua::{Function, Lua, MultiValue, Table, Value};

use crate::{
    algorithm::{LIST, LUA_PRELUDE, Params, Spent, State},
    domain::{Decision, Micros, StepInput, time::DAY},
};

/// Numbers as the Lua half takes and returns them. A decision is: allowed, limit, remaining, retry
/// (-1 for none), reset, wait, never.
pub(crate) type Numbers = Vec<f64>;

/// The definitions of a file, with their names.
type Defined = Vec<(String, Value)>;

/// The Lua half of every algorithm.
pub(crate) struct Halves {
    steps: HashMap<&'static str, Function>,
    charges: HashMap<&'static str, Function>,
    nexts: HashMap<&'static str, Function>,
    shared: Defined,
    lua: Lua,
}

/// As in Redis, where globals would outlive the call.
const FORBID_GLOBALS: &str = "
    local function forbid(_, name) error('the global ' .. name, 2) end
    setmetatable(_G, {__index = forbid, __newindex = forbid})
";

impl Halves {
    /// Loads each file separately, with the shared definitions in scope, so that an error names file and line.
    pub(crate) fn new() -> Self {
        let lua = Lua::new();
        lua.load(FORBID_GLOBALS).exec().unwrap();
        let mut shared = Defined::new();
        for (file, text) in LUA_PRELUDE {
            let defined = load(&lua, file, text, &shared).unwrap();
            shared.extend(defined);
        }
        let (mut steps, mut charges, mut nexts) = (HashMap::new(), HashMap::new(), HashMap::new());
        for entry in LIST {
            let name = entry.name;
            let defined = load(&lua, &format!("{name}.lua"), entry.lua, &shared).unwrap();
            assert!(defined.iter().all(|(own, _)| own.starts_with(name)), "{name}.lua defines {defined:?}");
            let function = |wanted: &str| {
                defined.iter().find(|(own, _)| own == wanted).and_then(|(_, value)| value.as_function().cloned())
            };
            let step = function(name).unwrap_or_else(|| panic!("{name}.lua has no `local function {name}`"));
            steps.insert(name, step);
            charges.extend(function(&format!("{name}_charge")).map(|charge| (name, charge)));
            nexts.extend(function(&format!("{name}_next")).map(|next| (name, next)));
        }
        Self { steps, charges, nexts, shared, lua }
    }

    /// Returns a function of a further file, which has the shared definitions in scope.
    pub(crate) fn extended(&self, file: &str, text: &str, name: &str) -> Function {
        named(&load(&self.lua, file, text, &self.shared).unwrap(), name)
    }

    /// Creates a level for `hold.lua` without spent or held units; the caller must set its phase.
    pub(crate) fn level(&self, params: &Params) -> Table {
        let level = self.lua.create_table().unwrap();
        level.set("step", &self.steps[params.name()]).unwrap();
        level.set("charge", &self.charges[params.name()]).unwrap();
        ["p", "base"].into_iter().for_each(|name| level.set(name, params.lua_params()).unwrap());
        level.set("s", false).unwrap();
        level.set("ledger", self.lua.create_table().unwrap()).unwrap();
        level
    }

    /// Creates a list of a text followed by numbers.
    pub(crate) fn list(&self, first: &str, rest: &Numbers) -> Table {
        let list = self.lua.create_sequence_from(rest.iter().copied()).unwrap();
        list.raw_insert(1, first).unwrap();
        list
    }

    /// Returns the state without `units` of those spent at a mark; see [`UndoRule::ByMark`].
    ///
    /// [`UndoRule::ByMark`]: crate::algorithm::UndoRule::ByMark
    pub(crate) fn without(&self, state: &State, mark: f64, units: i64) -> State {
        let left: Numbers = named(&self.shared, "runs_without").call((state.encode(), mark, units as f64)).unwrap();
        State::decode(state.algorithm(), &left).unwrap()
    }

    /// Returns the window boundaries for the Lua half: a key's phase, or the edges from a replica whose clock is up
    /// to a day off.
    pub(crate) fn phase(&self, params: &Params, now: Micros, phase: Micros) -> Value {
        let off = (now.rem_euclid(3) - 1) * DAY;
        match params.edges(|| now + off) {
            Some(edges) => Value::Table(self.lua.create_sequence_from(edges.map(|edge| edge as f64)).unwrap()),
            None => Value::Number(phase as f64),
        }
    }

    /// Calls the Lua half of [`Params::step`]. Returns the decision, and the next state if it changed.
    pub(crate) fn step(&self, params: &Params, state: Option<&State>, input: &StepInput) -> (Numbers, Option<Numbers>) {
        let state = state.map(State::encode);
        let max_wait = input.max_wait.unwrap_or(-1) as f64;
        let (now, cost, phase) = (input.now as f64, input.cost as f64, self.phase(params, input.now, input.phase));
        self.steps[params.name()].call((params.lua_params(), state, now, cost, max_wait, phase)).unwrap()
    }

    /// Returns the time until a unit is left in this state, which has none after a decision (-1: no wait helps), as
    /// computed by `charge.lua`.
    fn next_after(&self, params: &Params, state: Option<&Numbers>, input: &StepInput, decided: &Numbers) -> f64 {
        let (p, max_wait) = (params.lua_params(), input.max_wait.unwrap_or(-1) as f64);
        let (now, phase) = (input.now as f64, self.phase(params, input.now, input.phase));
        if let Some(next) = self.nexts.get(params.name()) {
            return next.call((p, state.cloned(), now, max_wait, phase)).unwrap();
        }
        if input.cost == 1 && decided[0] == 0.0 {
            return decided[3];
        }
        let step: (Numbers, Option<Numbers>) =
            self.steps[params.name()].call((p, state.cloned(), now, 1.0, max_wait, phase)).unwrap();
        step.0[3]
    }

    /// Panics unless the Lua half of [`Params::charge`] returns the same state.
    pub(crate) fn assert_same_charge(
        &self,
        params: &Params,
        state: Option<&State>,
        Spent { units, held }: Spent,
        input: &StepInput,
    ) {
        let context = || format!("{units} units charged, {held} of them held: {params:?} {state:?} {input:?}");
        let rust = params.charge(state, Spent { units, held }, input.now, input.phase).map(|state| state.encode());
        let charge = self.charges.get(params.name()).unwrap_or_else(|| panic!("no charge: {}", context()));
        let phase = self.phase(params, input.now, input.phase);
        let (now, units, held) = (input.now as f64, units as f64, held as f64);
        let arguments = (params.lua_params(), state.map(State::encode), now, units, phase, held);
        let lua: Option<Numbers> = charge.call(arguments).unwrap();
        match (&lua, &rust) {
            (None, None) => {}
            (Some(lua), Some(rust)) => assert_bits(lua, rust, &context),
            _ => panic!("the new state is {lua:?} in Lua, {rust:?} in Rust: {}", context()),
        }
    }

    /// Panics unless both halves return the same decision, in integers that a double holds, and the same state.
    pub(crate) fn assert_same(
        &self,
        params: &Params,
        state: Option<&State>,
        input: &StepInput,
        rust: (&Decision, Option<&State>),
    ) {
        let (decision, next) = self.step(params, state, input);
        let context = || format!("{params:?} {state:?} {input:?}");
        assert_bits(&decision, &numbers(rust.0), &context);
        let exact = |number: &f64| number.fract() == 0.0 && number.abs() < (1i64 << 53) as f64;
        assert!(decision.iter().all(exact), "{decision:?} is not exact: {}", context());
        if rust.0.remaining == 0 {
            let after = next.clone().or(state.map(State::encode));
            let later = self.next_after(params, after.as_ref(), input, &decision);
            assert_bits(&[later], &[rust.0.next_after.unwrap_or(-1) as f64], &context);
        }
        match (&next, rust.1.map(State::encode)) {
            (None, None) => {}
            (Some(lua), Some(rust)) => assert_bits(lua, &rust, &context),
            (lua, rust) => panic!("the new state is {lua:?} in Lua, {rust:?} in Rust: {}", context()),
        }
    }
}

fn named(defined: &[(String, Value)], name: &str) -> Function {
    defined.iter().find(|(own, _)| own == name).unwrap().1.as_function().unwrap().clone()
}

/// Runs a file with the definitions of `shared` in scope, and returns its definitions at the top
/// level.
fn load(lua: &Lua, file: &str, text: &str, shared: &[(String, Value)]) -> mlua::Result<Defined> {
    let own: Vec<_> = text.lines().filter_map(defined).flatten().collect();
    // One more name, which no file uses, as `shared` may be empty: undeclared names must be errors.
    let seen: Vec<_> = shared.iter().map(|(name, _)| name.as_str()).chain(["and_no_more"]).collect();
    // On the first line, so that line numbers match the file.
    let source = format!("local {} = ... {text}\nreturn {}", seen.join(", "), own.join(", "));
    let values = shared.iter().map(|(_, value)| value.clone()).collect::<MultiValue>();
    let values: MultiValue = lua.load(source).set_name(format!("@{file}")).call(values)?;
    Ok(own.into_iter().map(str::to_owned).zip(values).collect())
}

/// Returns the names that a line defines at the top level of its file.
fn defined(line: &str) -> Option<Vec<&str>> {
    let rest = line.strip_prefix("local ")?;
    match rest.strip_prefix("function ") {
        Some(rest) => rest.split_once('(').map(|(name, _)| vec![name]),
        None => rest.split_once(" =").map(|(names, _)| names.split(", ").collect()),
    }
}

#[test]
fn lua_errors_name_file_and_line_and_globals_are_errors() {
    let lua = Lua::new();
    lua.load(FORBID_GLOBALS).exec().unwrap();
    let bad = "-- A comment.\nlocal function bad(p)\n  if p then return p.x.y end\n  count = 1\nend\n";
    let step = load(&lua, "bad.lua", bad, &[]).unwrap().remove(0).1.as_function().unwrap().clone();
    let error = |argument: Value| step.call::<()>(argument).unwrap_err().to_string();
    let table = Value::Table(lua.create_table().unwrap());
    assert!(error(table).contains("bad.lua:3: attempt to index field 'x'"));
    assert!(error(Value::Nil).contains("bad.lua:4: the global count"));
}

/// A store's script is the concatenation of all files, in which Lua allows 200 local names.
#[test]
fn all_lua_files_load_as_one_script() {
    let files = LUA_PRELUDE.iter().map(|(_, text)| *text).chain(LIST.iter().map(|entry| entry.lua));
    Lua::new().load(files.collect::<String>()).exec().unwrap();
}

fn assert_bits(lua: &[f64], rust: &[f64], context: &impl Fn() -> String) {
    let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    assert!(bits(lua) == bits(rust), "Lua {lua:?}, Rust {rust:?}: {}", context());
    let finite = |number: &f64| number.is_finite() && number.abs() < (1i64 << 53) as f64;
    assert!(lua.iter().all(finite), "{lua:?} is not exact: {}", context());
}

/// Converts a decision of the Rust half to Lua's form, without the time until a unit is left.
pub(crate) fn numbers(decision: &Decision) -> Numbers {
    let flag = |flag| f64::from(u8::from(flag));
    let Decision { allowed, limit, remaining, retry_after, reset_after, wait, never, .. } = *decision;
    let retry = retry_after.unwrap_or(-1);
    vec![flag(allowed), limit as f64, remaining as f64, retry as f64, reset_after as f64, wait as f64, flag(never)]
}
