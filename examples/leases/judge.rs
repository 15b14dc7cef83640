//! Judges admitted checks by the limits. Independent of the code under test.

use std::fmt;

use super::{
    Outcome,
    load::{Answer, Nanos},
};

/// Nanoseconds per second.
const SECOND: i64 = 1_000_000_000;
/// Resolution of the store's clock, in nanoseconds: an interval seems longer to the store by at most this.
const RESOLUTION: Nanos = 1_000;

/// A limit: no window of `t` seconds admits more than `capacity + per_second * t` units.
#[derive(Clone, Copy)]
pub struct Limit {
    pub name: &'static str,
    pub capacity: i64,
    pub per_second: i64,
}

/// A limit, and the answers that it covers.
pub struct Level {
    pub limit: Limit,
    pub covers: fn(&Answer) -> bool,
}

/// The verdict on a round.
pub struct Verdict {
    answered: usize,
    degraded: usize,
    admitted: usize,
    /// Units certainly admitted beyond a limit, for the level with the most.
    pub over: i64,
    level: &'static str,
    /// Share of the admitted units that leases paid for.
    pub leased: f64,
    /// Admitted units, relative to those that one exact limiter would have admitted of the same checks.
    utilisation: f64,
}

impl Verdict {
    pub fn of(levels: &[Level], answers: &[Answer]) -> Self {
        let admitted: Vec<_> = answers.iter().filter(|answer| answer.allowed).collect();
        let excess = |level: &Level| {
            let covered = admitted.iter().filter(|answer| (level.covers)(answer));
            (excess(level.limit, covered.map(|answer| (answer.sent, answer.received)).collect()), level.limit.name)
        };
        let (over, level) = levels.iter().map(excess).max().unwrap_or_default();
        let by_store: Vec<_> = answers.iter().filter(|answer| !answer.degraded).collect();
        let leased = admitted.iter().filter(|answer| answer.leased).count();
        Self {
            answered: answers.len(),
            degraded: answers.len() - by_store.len(),
            admitted: admitted.len(),
            over,
            level,
            leased: leased as f64 / admitted.len().max(1) as f64,
            utilisation: admitted.len() as f64 / exactly(levels, by_store).max(1) as f64,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answered, degraded, admitted, over, level, leased, utilisation } = self;
        let level = if *over > 0 { level } else { "any limit" };
        write!(
            f,
            "{answered:>6} answered, {degraded:>5} degraded, {admitted:>5} admitted, {over} over {level}, {:.1} % of one exact \
             limiter, {:.0} % leased",
            utilisation * 100.0,
            leased * 100.0
        )
    }
}

/// Returns the minimum number of units admitted beyond a limit in the worst window; 0: there may be none. Each unit was
/// admitted between two times, so it is certainly in a window that contains both.
fn excess(limit: Limit, mut admitted: Vec<(Nanos, Nanos)>) -> i64 {
    admitted.sort_unstable_by_key(|(_, received)| *received);
    let worst_from = |start: Nanos| {
        let within = admitted.iter().filter(|(sent, _)| *sent >= start);
        let until = |(units, (_, received)): (i64, &(Nanos, Nanos))| {
            (units - limit.capacity) * SECOND - limit.per_second * (received + RESOLUTION - start)
        };
        (1..).zip(within).map(until).max()
    };
    let worst = admitted.iter().filter_map(|(sent, _)| worst_from(*sent)).max().unwrap_or(0).max(0);
    // A fraction of a unit beyond the limit counts as one unit.
    worst / SECOND + i64::from(worst % SECOND > 0)
}

/// Returns how many of these checks one exact limiter would have admitted, if each had reached it when it was sent.
fn exactly(levels: &[Level], mut checks: Vec<&Answer>) -> usize {
    checks.sort_unstable_by_key(|check| check.sent);
    let mut left: Vec<_> = levels.iter().map(|level| level.limit.capacity * SECOND).collect();
    let (mut admitted, mut last) = (0, 0);
    for check in checks {
        for (left, Level { limit, .. }) in left.iter_mut().zip(levels) {
            *left = (*left + limit.per_second * (check.sent - last)).min(limit.capacity * SECOND);
        }
        last = check.sent;
        let covers: Vec<_> = levels.iter().map(|level| (level.covers)(check)).collect();
        if left.iter().zip(&covers).all(|(left, covers)| !covers || *left >= SECOND) {
            left.iter_mut().zip(&covers).for_each(|(left, covers)| *left -= if *covers { SECOND } else { 0 });
            admitted += 1;
        }
    }
    admitted
}

/// Checks that the judge finds no excess in the units that one exact limiter admits, and finds a
/// single unit more, wherever it is.
///
/// # Errors
/// The judge is wrong.
pub fn self_test() -> Outcome<()> {
    let limit = Limit { name: "", capacity: 50, per_second: 1_000 };
    // With a resolution of one microsecond, like the store's clock.
    let exact: Vec<_> = (0..50).map(|_| 0).chain((1..2_000).map(|number| number * SECOND / 1_000)).collect();
    let excess_of = |times: &[Nanos]| excess(limit, times.iter().map(|time| (*time, time + RESOLUTION)).collect());
    for at in [None, Some(0), Some(700), Some(exact.len() - 1)] {
        let times: Vec<_> = exact.iter().copied().chain(at.map(|index| exact[index])).collect();
        let (found, expected) = (excess_of(&times), i64::from(at.is_some()));
        if found != expected {
            return Err(format!("the judge finds {found} of {expected} too many at {at:?}").into());
        }
    }
    Ok(())
}
