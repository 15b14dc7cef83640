//! The authority in Lua, compared with the one in Rust.

use mlua::{Function, Table};

use super::{
    simulation::START,
    store::{Limits, Store},
};
use crate::{
    algorithm::{
        Params,
        properties::{
            examples,
            lua::{Halves, numbers},
        },
    },
    domain::Micros,
    hold::{Grant, HoldId, LUA, Ledgers as _, Renewal, RenewalTotals},
    plan::States as _,
    testing::{DishonestOwner, OnPanic, cases},
};

/// The script's decision: all or nothing.
const DECIDE: &str = "
local function renew_one(levels, now, cost, renewal)
  return hold_renew(levels, now, renewal, function()
    local decisions, states, passes = {}, {}, true
    for index, level in ipairs(levels) do
      decisions[index], states[index] = hold_step(level, now, cost, -1)
      if decisions[index][1] == 0 then passes = false end
    end
    for index, level in ipairs(levels) do
      if passes or decisions[index][1] == 0 then
        level.s = states[index] or level.s
      else
        decisions[index] = hold_step(level, now, 0, -1)
      end
    end
    return decisions
  end)
end
";

type Answer = (Vec<Vec<f64>>, [f64; 9]);

struct Both<'a> {
    halves: &'a Halves,
    renew: &'a Function,
    limits: Limits,
    store: Store,
    levels: Vec<Table>,
}

impl<'a> Both<'a> {
    fn new(halves: &'a Halves, renew: &'a Function, params: &Params) -> Self {
        let limits = Limits::new(&[params.clone(), params.clone()]);
        let levels: Vec<Table> = limits.plan(0).levels().iter().map(|_| halves.level(params)).collect();
        Self { halves, renew, limits, store: Store::new(false), levels }
    }

    fn renew(&mut self, now: Micros, cost: i64, renewal: &Renewal) -> Grant {
        let (decisions, grant) = self.store.renew(&self.limits, now, cost, renewal);
        let Renewal { id, sequence, spent, kept, want, ttl } = *renewal;
        let terms = [sequence, spent, kept, want, ttl.unsigned_abs()].map(|number| number as f64);
        let terms = self.halves.list(&format!("{}/{}", id.owner, id.number), &terms.to_vec());
        for (table, level) in self.levels.iter().zip(self.limits.plan(0).levels()) {
            table.set("phase", self.halves.phase(level.params(), now, level.phase())).unwrap();
        }
        let (lua, lua_grant): Answer = self.renew.call((self.levels.clone(), now as f64, cost as f64, terms)).unwrap();
        let rust: Vec<_> = decisions.iter().map(numbers).collect();
        assert_eq!(lua, rust);
        let Grant { units, free, is_kept, is_recalled, refused_for, settled, .. } = grant;
        let RenewalTotals { granted, spent, returned, burnt } = settled;
        let flags = [is_kept, is_recalled].map(u64::from);
        let of_rust = [units, free, flags[0], flags[1], refused_for.unsigned_abs(), granted, spent, returned, burnt];
        assert_eq!(lua_grant, of_rust.map(|number| number as f64));
        for (index, level) in self.levels.clone().iter().enumerate() {
            self.assert_same_level(index, level);
        }
        grant
    }

    fn assert_same_level(&mut self, index: usize, level: &Table) {
        if let Some(state) = self.store.get(index) {
            assert_eq!(level.get::<Vec<f64>>("s").unwrap(), state.encode());
        }
        let ledger = self.store.take_ledger(index);
        let lua: Vec<Table> = level.get("ledger").unwrap();
        assert_eq!(lua.len(), ledger.holds().len());
        for (lua, hold) in lua.iter().zip(ledger.holds()) {
            let id: String = lua.get(1).unwrap();
            assert_eq!(id, format!("{}/{}", hold.id.owner, hold.id.number));
            let of_lua: Vec<f64> = (2..=6).map(|at| lua.get(at).unwrap()).collect();
            let numbers = [hold.sequence, hold.spent, hold.units, hold.granted, hold.deadline.unsigned_abs()];
            assert_eq!(of_lua, numbers.map(|number| number as f64));
        }
        self.store.put_ledger(index, ledger);
    }
}

#[test]
fn rust_and_lua_agree_on_renewals() {
    let halves = Halves::new();
    let renew = halves.extended("hold.lua", &format!("{LUA}{DECIDE}"), "renew_one");
    cases(5, |seed| {
        for (index, (_, params)) in examples().enumerate().filter(|(_, (_, params))| params.holdable().is_ok()) {
            let mut random = seed.fork(index as u64);
            let mut both = Both::new(&halves, &renew, &params);
            let (mut owners, mut now) = ([DishonestOwner::default(); 3], START);
            for step in 0..40 {
                let _context = OnPanic(|| format!("{params:?}, step {step}"));
                now += random.pick(&[0, 1, random.clone().magnitude(400_000), random.clone().magnitude(1 << 30)]);
                let owner = random.below(owners.len());
                let limit = params.window().clamp(1, 1_000);
                let id = HoldId { owner: owner as u64, number: 0 };
                let renewal = owners[owner].renewal(id, limit, &mut random);
                let cost = random.pick(&[0, 0, 1, 1, 3, -1, -2]);
                let grant = both.renew(now, cost, &renewal);
                owners[owner].answered(&renewal, &grant);
            }
        }
    });
}
