//! What befell a limit, judged by its definition.

use weir_core::{
    domain::Micros,
    testing::{Definition, Limiter},
};

/// What befell one limit.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// A unit was admitted, by a lease or by the store.
    Admitted { leased: bool },
    /// The limit became another, everywhere by this time.
    Changed { to: Definition, by: Micros },
    /// The store forgot what was spent.
    Reset,
    /// The store lost what it had written after `since`; so many units had been granted then of which it knows no more, to be
    /// spent by `until`.
    Lost { since: Micros, granted: u64, until: Micros },
}

/// What counts of what befell a limit.
#[derive(Clone, Copy)]
enum Entry {
    Unit {
        leased: bool,
    },
    Changed {
        to: Definition,
        by: Micros,
    },
    /// The store counts no more than the limit can itself have made.
    Clamped,
}

/// Units of leases that the store does not know of, spent after `since` and by `until`.
struct Excuse {
    since: Micros,
    until: Micros,
    units: u64,
}

/// Replays what befell a limit, in the order of time: how many units it admitted, or why that were too many.
///
/// Units that a loss excuses do not count, but only where they would be too many; of all that may be, the last one, since no
/// other weighs as much from then on.
pub fn judge(definition: Definition, marks: &mut [(Micros, Mark)]) -> Result<u64, String> {
    marks.sort_by_key(|(at, _)| *at);
    let mut limiter = Limiter::new(definition);
    let mut history: Vec<(Micros, Entry)> = Vec::new();
    let mut excuses: Vec<Excuse> = Vec::new();
    let mut admitted = 0;
    'marks: for (at, mark) in marks.iter().copied() {
        match mark {
            Mark::Admitted { leased } => {
                admitted += 1;
                while !limiter.admits(at) {
                    if leased && is_excused(&mut excuses, at) {
                        continue 'marks;
                    }
                    let may_go = |(at, entry): &(Micros, Entry)| {
                        matches!(entry, Entry::Unit { leased: true }) && is_excused(&mut excuses, *at)
                    };
                    let Some(last) = history.iter().rposition(may_go) else {
                        return Err(format!("unit {admitted} at {at} is beyond {:?}", limiter.definition()));
                    };
                    history.remove(last);
                    limiter = replay(definition, &history);
                }
                limiter.count(at);
                history.push((at, Entry::Unit { leased }));
            }
            Mark::Changed { to, by } => {
                limiter.change(to, by);
                history.push((at, Entry::Changed { to, by }));
            }
            Mark::Reset => {
                limiter.forget();
                history.retain(|(_, entry)| matches!(entry, Entry::Changed { .. }));
            }
            Mark::Lost { since, granted, until } => {
                // What the store has decided since is forgotten; what leases pay for is not, but for as much as is excused.
                history.retain(|(at, entry)| match entry {
                    Entry::Unit { leased } => *at <= since || *leased && since > Micros::MIN,
                    Entry::Clamped => *at <= since,
                    Entry::Changed { .. } => true,
                });
                history.push((at, Entry::Clamped));
                excuses.push(Excuse { since, until, units: granted });
                limiter = replay(definition, &history);
            }
        }
    }
    Ok(admitted)
}

/// Spends an excuse on a unit of a lease.
fn is_excused(excuses: &mut [Excuse], at: Micros) -> bool {
    let own = excuses.iter_mut().find(|excuse| excuse.units > 0 && excuse.since < at && at <= excuse.until);
    own.map(|excuse| excuse.units -= 1).is_some()
}

fn replay(definition: Definition, history: &[(Micros, Entry)]) -> Limiter {
    let mut limiter = Limiter::new(definition);
    for (at, entry) in history {
        match *entry {
            Entry::Unit { .. } => limiter.count(*at),
            Entry::Changed { to, by } => limiter.change(to, by),
            Entry::Clamped => limiter.clamp(),
        }
    }
    limiter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_excuses_what_was_decided_and_granted_since() {
        let bucket = Definition::Bucket { capacity: 2, count: 1, period: 1_000 };
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
