//! A nested limit over a hash map: a user may send a burst of 3 requests, and 2 of each action.

use std::collections::HashMap;

use weir_core::{
    algorithm::{Bounds, ParamError, Params, State, find},
    domain::{Micros, StepInput},
};

fn gcra(burst: &str) -> Result<Params, ParamError> {
    let fields: &[(&str, &str)] = &[("burst", burst), ("count", "1"), ("period", "1s")];
    let entry = find("gcra").ok_or_else(|| ParamError::new("gcra", "not in the list"))?;
    (entry.parse)(fields, &Bounds::default())
}

fn main() -> Result<(), ParamError> {
    let (user, action) = (gcra("2")?, gcra("1")?);
    let mut states: HashMap<&str, State> = HashMap::new();
    let mut check = |now: Micros| {
        let input = StepInput { now, cost: 1, max_wait: None, phase: 0 };
        let levels = [("user/alex", &user), ("user/alex/trade", &action)];
        let steps = levels.map(|(key, params)| (key, params.step(states.get(key), &input)));
        let allowed = steps.iter().all(|(_, (decision, _))| decision.allowed);
        if allowed {
            states.extend(steps.into_iter().filter_map(|(key, (_, next))| Some((key, next?))));
        }
        allowed
    };
    for at_ms in [0, 1, 2, 1_000, 1_001] {
        println!("{at_ms:>5} ms  {}", if check(at_ms * 1_000) { "allowed" } else { "refused" });
    }
    Ok(())
}
