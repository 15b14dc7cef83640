//! The oracle of a limit: replays its history against its definition.

use weir_core::{
    domain::Micros,
    testing::{LimitDefinition, Oracle},
};

/// An event in the history of one limit.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// A unit was admitted, by a lease or by the store.
    Admitted { leased: bool },
    /// The limit changed, on all replicas by this time.
    Changed { to: LimitDefinition, by: Micros },
    /// The store discarded the spent units.
    Reset,
    /// The store lost its writes after `since`. It does not know of this many granted units, which may be spent until
    /// `until`.
    Lost { since: Micros, granted: u64, until: Micros },
}

/// An entry of the history that still counts.
#[derive(Clone, Copy)]
enum Entry {
    Unit {
        leased: bool,
    },
    Changed {
        to: LimitDefinition,
        by: Micros,
    },
    /// The store caps the state at the limit's own maximum.
    Clamped,
}

/// Lease units unknown to the store, spent after `since` and by `until`.
struct Excuse {
    since: Micros,
    until: Micros,
    units: u64,
}

/// Replays the history of a limit in order of time. Returns the number of admitted units, or the unit that exceeds the
/// limit.
///
/// Lease units that a loss excuses are not counted, but only if they would exceed the limit; of several candidates the
/// last one is excused, since no other has as much effect on later decisions.
pub fn judge(definition: LimitDefinition, marks: &mut [(Micros, Mark)]) -> Result<u64, String> {
    marks.sort_by_key(|(at, _)| *at);
    let mut oracle = Oracle::new(definition);
    let mut history: Vec<(Micros, Entry)> = Vec::new();
    let mut excuses: Vec<Excuse> = Vec::new();
    let mut admitted = 0;
    'marks: for (at, mark) in marks.iter().copied() {
        match mark {
            Mark::Admitted { leased } => {
                admitted += 1;
                while !oracle.admits(at) {
                    if leased && is_excused(&mut excuses, at) {
                        continue 'marks;
                    }
                    let may_go = |(at, entry): &(Micros, Entry)| {
                        matches!(entry, Entry::Unit { leased: true }) && is_excused(&mut excuses, *at)
                    };
                    let Some(last) = history.iter().rposition(may_go) else {
                        return Err(format!("unit {admitted} at {at} is beyond {:?}", oracle.definition()));
                    };
                    history.remove(last);
                    oracle = replay(definition, &history);
                }
                oracle.count(at);
                history.push((at, Entry::Unit { leased }));
            }
            Mark::Changed { to, by } => {
                oracle.change(to, by);
                history.push((at, Entry::Changed { to, by }));
            }
            Mark::Reset => {
                oracle.forget();
                history.retain(|(_, entry)| matches!(entry, Entry::Changed { .. }));
            }
            Mark::Lost { since, granted, until } => {
                // The store's decisions since then are lost; units paid by leases are not, except for the excused ones.
                history.retain(|(at, entry)| match entry {
                    Entry::Unit { leased } => *at <= since || *leased && since > Micros::MIN,
                    Entry::Clamped => *at <= since,
                    Entry::Changed { .. } => true,
                });
                history.push((at, Entry::Clamped));
                excuses.push(Excuse { since, until, units: granted });
                oracle = replay(definition, &history);
            }
        }
    }
    Ok(admitted)
}

/// Uses an excuse for a lease unit, if there is one.
fn is_excused(excuses: &mut [Excuse], at: Micros) -> bool {
    let own = excuses.iter_mut().find(|excuse| excuse.units > 0 && excuse.since < at && at <= excuse.until);
    own.map(|excuse| excuse.units -= 1).is_some()
}

fn replay(definition: LimitDefinition, history: &[(Micros, Entry)]) -> Oracle {
    let mut oracle = Oracle::new(definition);
    for (at, entry) in history {
        match *entry {
            Entry::Unit { .. } => oracle.count(*at),
            Entry::Changed { to, by } => oracle.change(to, by),
            Entry::Clamped => oracle.clamp(),
        }
    }
    oracle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_excuses_what_was_decided_and_granted_since() {
        let bucket = LimitDefinition::Bucket { capacity: 2, count: 1, period: 1_000 };
        let [by_store, by_lease] = [false, true].map(|leased| Mark::Admitted { leased });
        let lost = |granted| Mark::Lost { since: 5, granted, until: 100 };
        let judged = |marks: &[(Micros, Mark)]| judge(bucket, &mut marks.to_vec()).is_ok();
        assert!(!judged(&[(1, by_store), (6, by_store), (20, by_store)]));
        assert!(judged(&[(1, by_store), (6, by_store), (10, lost(0)), (20, by_store)]));
        assert!(!judged(&[(1, by_store), (6, by_lease), (10, lost(0)), (20, by_store)]));
        assert!(judged(&[(1, by_store), (6, by_lease), (10, lost(1)), (20, by_store)]));
        assert!(judged(&[(1, by_store), (2, by_store), (10, lost(1)), (20, by_lease)]));
        assert!(!judged(&[(1, by_store), (2, by_store), (10, lost(1)), (200, by_lease)]));
        assert!(judged(&[(1, by_store), (2, by_store), (3, Mark::Reset), (20, by_store)]));
    }
}
