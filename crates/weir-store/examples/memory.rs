//! Decides ten checks of one key in memory.

use std::error::Error;

use weir_core::{
    algorithm::{Bounds, find},
    domain::{Charge, Key},
    plan::{Level, Limit, Origin, Plan},
};
use weir_store::{MemoryStore, SystemClock, memory::MemorySettings};

fn main() -> Result<(), Box<dyn Error>> {
    let fields: &[(&str, &str)] = &[("burst", "4"), ("count", "1"), ("period", "1s")];
    let gcra = (find("gcra").ok_or("not in the list")?.parse)(fields, &Bounds::default())?;
    let limit = Limit::new(Origin::Policy, None, "user/*", 0, false, gcra);
    let store = MemoryStore::new(MemorySettings::default(), SystemClock::new());
    let key = Key::new("", &["user", "alex"])?;
    for number in 1..=10 {
        let plan = Plan::new([Level::new(&key, 2, 2, &limit, 1)].into_iter().collect(), Charge::AllOrNothing, None);
        let verdict = store.verdict(&plan);
        println!("{number:>2}: {}", if verdict.decisions[0].allowed { "allowed" } else { "refused" });
    }
    Ok(())
}
