//! Conservation of units: those that an owner spends from leases are charged to each level, or outstanding there.

use std::collections::BTreeMap;

use weir_core::domain::Micros;

use super::keyspace::Held;

/// One owner's units of one level, since the owner last held none.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Units that the owner has spent.
    spent: u64,
    /// Units that the store has charged: settled or burnt.
    charged: u64,
}

/// The accounts by level path and owner.
#[derive(Default)]
pub struct Accounts(BTreeMap<(Vec<u8>, Vec<u8>), Account>);

/// Returns the owner of a lease; `None` for a reservation.
fn owner_of(held: &Held) -> Option<&[u8]> {
    held.id.get(..size_of::<u64>())
}

impl Accounts {
    /// Records a change of a level's holds.
    ///
    /// # Errors
    /// A renewal took effect twice, or after a later one.
    pub fn changed(&mut self, now: Micros, path: &[u8], before: &[Held], after: &[Held]) -> Result<(), String> {
        for owner in before.iter().filter_map(owner_of) {
            let is_own = |held: &&Held| owner_of(held) == Some(owner);
            if before.iter().filter(is_own).all(|held| held.deadline <= now) {
                // None of these units may be spent any more.
                self.0.remove(&(path.to_vec(), owner.to_vec()));
            }
        }
        for old in before {
            let Some(owner) = owner_of(old) else { continue };
            let is_burnt = old.deadline <= now;
            let next = after.iter().find(|next| next.id == old.id).filter(|_| !is_burnt);
            if let Some(next) = next.filter(|next| next.sequence <= old.sequence && *next != old) {
                return Err(format!("a renewal has counted twice, or after a later one: {old:?} became {next:?}"));
            }
            let charged =
                if is_burnt { old.units } else { next.map_or(0, |next| next.spent.saturating_sub(old.spent)) };
            if let Some(account) = self.0.get_mut(&(path.to_vec(), owner.to_vec())) {
                account.charged += charged;
            }
        }
        for owner in after.iter().filter_map(owner_of) {
            self.0.entry((path.to_vec(), owner.to_vec())).or_default();
        }
        Ok(())
    }

    /// Records a spent unit, while `outstanding` units are outstanding.
    ///
    /// # Errors
    /// The owner has spent more units than are charged or outstanding.
    pub fn spend(&mut self, path: &[u8], owner: u64, outstanding: u64) -> Result<(), String> {
        let account = self.0.entry((path.to_vec(), owner.to_be_bytes().to_vec())).or_default();
        account.spent += 1;
        if account.spent > account.charged + outstanding {
            return Err(format!("spent more than was granted: {account:?}, {outstanding} outstanding"));
        }
        Ok(())
    }

    /// Clears all accounts, since a store that has lost data does not know its grants.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

#[test]
fn spent_units_are_charged_or_outstanding() {
    let held = |sequence, spent, units, deadline| Held {
        id: [7_u64.to_be_bytes(), [0; 8]].concat(),
        sequence,
        spent,
        units,
        granted: units,
        deadline,
    };
    let mut accounts = Accounts::default();
    let (first, second) = ([held(1, 0, 2, 10)], [held(2, 2, 1, 20)]);
    accounts.changed(0, b"k", &[], &first).expect("a grant");
    (0..2).for_each(|_| accounts.spend(b"k", 7, 2).expect("granted"));
    accounts.changed(5, b"k", &first, &second).expect("the next renewal");
    accounts.spend(b"k", 7, 1).expect("granted");
    accounts.changed(6, b"k", &second, &[held(2, 2, 3, 20)]).expect_err("the same renewal");
    accounts.changed(6, b"k", &second, &first).expect_err("an overtaken renewal");
    accounts.changed(20, b"k", &second, &[held(3, 5, 1, 30)]).expect("burnt, and granted anew");
    accounts.spend(b"k", 7, 1).expect("granted");
    accounts.spend(b"k", 7, 1).expect_err("more than was granted");
}
