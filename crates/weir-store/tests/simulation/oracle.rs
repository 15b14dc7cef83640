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

/// Replays what befell a limit, in the order of time: how many units it admitted, or why that were too many.
pub fn judge(definition: Definition, marks: &mut [(Micros, Mark)]) -> Result<u64, String> {
    marks.sort_by_key(|(at, _)| *at);
    let mut limiter = Limiter::new(definition);
    let mut history: Vec<(Micros, bool)> = Vec::new();
    let (mut excused, mut until, mut admitted) = (0, Micros::MIN, 0);
    for (at, mark) in marks.iter().copied() {
        match mark {
            Mark::Admitted { leased } => {
                admitted += 1;
                if leased && excused > 0 && at <= until {
                    excused -= 1;
                    continue;
                }
                if !limiter.admits(at) {
                    return Err(format!("unit {admitted} at {at} is beyond {:?}", limiter.definition()));
                }
                limiter.count(at);
                history.push((at, leased));
            }
            Mark::Changed { to, by } => limiter.change(to, by),
            Mark::Reset => {
                limiter.forget();
                history.clear();
            }
            Mark::Lost { since, granted, until: deadline } => {
                excused = if at <= until { excused } else { 0 } + granted;
                until = until.max(deadline);
                // What the store had decided since is forgotten, and as much of what leases paid for as was granted since.
                history.retain(|(at, leased)| *at <= since || *leased && since > Micros::MIN);
                while excused > 0 && history.last().is_some_and(|(at, _)| *at > since) {
                    history.pop();
                    excused -= 1;
                }
                limiter.forget();
                history.iter().for_each(|(at, _)| limiter.count(*at));
                limiter.clamp();
            }
        }
    }
    Ok(admitted)
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
