//! What a limit admits, by its definition, over what was really admitted and when: apart from the code under test.

use weir_core::domain::Micros;

/// A limit, defined.
#[derive(Clone, Copy, Debug)]
pub enum Definition {
    /// A bucket of `capacity` units into which `count` flow back per `period`.
    Bucket { capacity: u64, count: u64, period: Micros },
    /// At most `count` in each window that is aligned to the epoch.
    Window { count: u64, period: Micros },
    /// At most `count` within any span of this length.
    AnySpan { count: u64, period: Micros },
    /// At most so many are held at one time, whatever is admitted.
    Slots { max: u64 },
    /// At most `at_once` and what comes back at the rate, `count` per `period`, within any span of time.
    Rate { at_once: u64, count: u64, period: Micros },
}

/// One limiter that knows nothing but the definition.
#[derive(Clone, Debug)]
pub struct Limiter {
    definition: Definition,
    admitted: Vec<Micros>,
    /// Of a bucket: what is in it, in parts of a unit.
    level: i128,
    /// Of a rate: the least excess so far.
    least: i128,
    /// Until then it admits anything, as the limit has just changed.
    unjudged_until: Micros,
}

impl Limiter {
    pub fn new(definition: Definition) -> Self {
        Self { definition, admitted: Vec::new(), level: 0, least: i128::MAX, unjudged_until: Micros::MIN }
    }

    /// Whether it admits a unit.
    pub fn admits(&self, now: Micros) -> bool {
        if now < self.unjudged_until {
            return true;
        }
        match self.definition {
            Definition::Bucket { capacity, period, .. } => {
                self.drained(now) + i128::from(period) <= i128::from(capacity) * i128::from(period)
            }
            Definition::Window { count, period } => {
                let window = now.div_euclid(period);
                let used = self.admitted.iter().rev().take_while(|at| at.div_euclid(period) == window).count();
                (used as u64) < count
            }
            Definition::AnySpan { count, period } => {
                let before = self.admitted.len().checked_sub(count as usize);
                before.is_none_or(|index| now - self.admitted[index] >= period)
            }
            Definition::Slots { .. } => true,
            Definition::Rate { at_once, period, .. } => {
                let line = self.line(now);
                line - self.least.min(line) + i128::from(period) <= i128::from(at_once) * i128::from(period)
            }
        }
    }

    /// Counts a unit that was admitted.
    pub fn count(&mut self, now: Micros) {
        self.least = self.least.min(self.line(now));
        if let Definition::Bucket { period, .. } = self.definition {
            self.level = self.drained(now) + i128::from(period);
        }
        if now < self.unjudged_until {
            self.clamp();
        }
        self.admitted.push(now);
    }

    /// The limit becomes another, everywhere by this time.
    pub fn change(&mut self, definition: Definition, by: Micros) {
        (self.definition, self.unjudged_until) = (definition, by);
        self.clamp();
    }

    /// No limit counts more than it can itself have made.
    fn clamp(&mut self) {
        if let Definition::Bucket { capacity, period, .. } = self.definition {
            self.level = self.level.min(i128::from(capacity) * i128::from(period));
        }
    }

    pub fn forget(&mut self) {
        *self = Self { unjudged_until: self.unjudged_until, ..Self::new(self.definition) };
    }

    fn drained(&self, now: Micros) -> i128 {
        let (Definition::Bucket { count, .. }, Some(last)) = (self.definition, self.admitted.last()) else { return 0 };
        (self.level - i128::from(now - last) * i128::from(count)).max(0)
    }

    fn line(&self, now: Micros) -> i128 {
        let Definition::Rate { count, period, .. } = self.definition else { return 0 };
        self.admitted.len() as i128 * i128::from(period) - i128::from(now) * i128::from(count)
    }
}

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
                    return Err(format!("unit {admitted} at {at} is beyond {:?}", limiter.definition));
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
                (excused, until) = (granted, deadline);
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

    fn first_beyond(definition: Definition, admitted: &[Micros]) -> Option<usize> {
        let mut limiter = Limiter::new(definition);
        admitted.iter().position(|at| {
            let admits = limiter.admits(*at);
            limiter.count(*at);
            !admits
        })
    }

    #[test]
    fn definitions_find_what_is_one_too_many() {
        let bucket = Definition::Bucket { capacity: 2, count: 1, period: 10 };
        assert_eq!(first_beyond(bucket, &[0, 0, 10, 20]), None);
        assert_eq!(first_beyond(bucket, &[0, 0, 9]), Some(2));
        let rate = Definition::Rate { at_once: 2, count: 1, period: 10 };
        assert_eq!(first_beyond(rate, &[0, 0, 10, 20]), None);
        assert_eq!(first_beyond(rate, &[0, 0, 9]), Some(2));
        let window = Definition::Window { count: 2, period: 10 };
        assert_eq!(first_beyond(window, &[8, 9, 10, 11, 20]), None);
        assert_eq!(first_beyond(window, &[8, 9, 10, 11, 19]), Some(4));
        let any = Definition::AnySpan { count: 2, period: 10 };
        assert_eq!(first_beyond(any, &[0, 5, 10, 15]), None);
        assert_eq!(first_beyond(any, &[0, 5, 9]), Some(2));
    }

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
