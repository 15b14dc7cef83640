//! Several levels, one answer: the min-remaining / max-retry rule.

use super::{decision::Decision, time::Micros};

/// The answer over all levels that count. Its numbers may come from different levels; `binding` names one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// No counting level refuses.
    pub allowed: bool,
    /// The least limit; 0 without levels.
    pub limit: u64,
    /// The least remaining; 0 without levels.
    pub remaining: u64,
    /// The greatest retry of the refusing levels; `None` when allowed or never.
    pub retry_after: Option<Micros>,
    /// The greatest reset.
    pub reset_after: Micros,
    /// The greatest wait; 0 when refused.
    pub wait: Micros,
    /// A level refuses for ever.
    pub never: bool,
    /// The index of the level that decided: refused, a never first, else the greatest retry; allowed, the least
    /// remaining; ties to the deepest. `None` where no level counts.
    pub binding: Option<usize>,
}

impl Default for Summary {
    /// That of a request that meets no limit.
    fn default() -> Self {
        Self {
            allowed: true,
            limit: 0,
            remaining: 0,
            retry_after: None,
            reset_after: 0,
            wait: 0,
            never: false,
            binding: None,
        }
    }
}

/// Combines the decisions of a request's levels, root first. A level marked as shadow stands outside.
pub fn aggregate<'a>(levels: impl IntoIterator<Item = (&'a Decision, bool)>) -> Summary {
    let mut all = Summary::default();
    let mut bound: Option<&Decision> = None;
    for (index, (level, shadow)) in levels.into_iter().enumerate() {
        if shadow {
            continue;
        }
        let first = bound.is_none();
        all.allowed &= level.allowed;
        all.never |= level.never;
        all.limit = if first { level.limit } else { all.limit.min(level.limit) };
        all.remaining = if first { level.remaining } else { all.remaining.min(level.remaining) };
        all.retry_after = all.retry_after.max(level.retry_after);
        all.reset_after = all.reset_after.max(level.reset_after);
        all.wait = all.wait.max(level.wait);
        if bound.is_none_or(|before| binds_over(level, before)) {
            bound = Some(level);
            all.binding = Some(index);
        }
    }
    if all.never {
        all.retry_after = None;
    }
    if !all.allowed {
        all.wait = 0;
    }
    all
}

/// Whether `level` binds rather than `before`, a level above it.
fn binds_over(level: &Decision, before: &Decision) -> bool {
    match (level.allowed, before.allowed) {
        (true, true) => level.remaining <= before.remaining,
        (false, false) => (level.never, level.retry_after) >= (before.never, before.retry_after),
        (level_allowed, _) => !level_allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_sixteen_mixes_levels_and_binds_the_refusing_one() {
        let user = Decision::pass(16, 0, 31);
        let trade = Decision::refuse(6, 0, Some(1), 8);
        let all = aggregate([(&user, false), (&trade, false)]);
        assert_eq!((all.allowed, all.limit, all.remaining), (false, 6, 0));
        assert_eq!((all.retry_after, all.reset_after, all.binding), (Some(1), 31, Some(1)));
    }

    #[test]
    fn never_comes_first_and_has_no_retry() {
        let never = Decision::refuse(1, 1, None, 0);
        let later = Decision::refuse(9, 0, Some(99), 99);
        let all = aggregate([(&never, false), (&later, false)]);
        assert_eq!((all.never, all.retry_after, all.binding), (true, None, Some(0)));
    }

    #[test]
    fn ties_go_to_the_deepest_and_shadow_stands_outside() {
        let level = Decision::pass(5, 4, 1);
        let shadow = Decision::refuse(1, 0, Some(5), 9);
        let all = aggregate([(&level, false), (&level, false), (&shadow, true)]);
        assert_eq!((all.allowed, all.binding, all.limit, all.reset_after), (true, Some(1), 5, 1));
        assert_eq!(aggregate([(&shadow, true)]).binding, None);
    }
}
