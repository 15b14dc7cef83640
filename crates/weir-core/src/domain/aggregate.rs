//! Aggregation of the decisions of several levels: the min-remaining / max-retry rule.

use super::decision::Decision;

/// The decision over all levels of a request, except those in shadow mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Allowed if no level refuses. `limit` and `remaining` are the minimum over the levels, 0 without levels.
    /// `retry_after`, `next_after` (of the levels with nothing left), `reset_after` and, if allowed, `wait` are the
    /// maximum. The values may come from different levels; `binding` names one.
    pub decision: Decision,
    /// The index of the level that decided. For a refusal, a level with `never` comes first, then the greatest
    /// `retry_after`; for an allowed request, the least `remaining`. Ties go to the deepest level. `None` without
    /// levels.
    pub binding: Option<usize>,
}

impl Default for Summary {
    /// The summary of a request without limits.
    fn default() -> Self {
        Self { decision: Decision::pass(0, 0, 0), binding: None }
    }
}

/// Combines the decisions of a request's levels, root first. Each comes with whether its level is in shadow mode;
/// those levels are ignored.
pub fn aggregate<'a>(levels: impl IntoIterator<Item = (&'a Decision, bool)>) -> Summary {
    let Summary { decision: mut all, mut binding } = Summary::default();
    let (mut bound, mut always_empty): (Option<&Decision>, bool) = (None, false);
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
        if level.remaining == 0 {
            always_empty |= level.next_after.is_none();
            all.next_after = all.next_after.max(level.next_after);
        }
        all.reset_after = all.reset_after.max(level.reset_after);
        all.wait = all.wait.max(level.wait);
        if bound.is_none_or(|before| binds_over(level, before)) {
            bound = Some(level);
            binding = Some(index);
        }
    }
    if all.never {
        all.retry_after = None;
    }
    if always_empty {
        all.next_after = None;
    }
    if !all.allowed {
        all.wait = 0;
    }
    Summary { decision: all, binding }
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
    fn the_refusing_level_binds_and_reset_is_the_maximum() {
        let user = Decision::pass(16, 0, 31);
        let trade = Decision::refuse(6, 0, Some(1), 8);
        let Summary { decision: all, binding } = aggregate([(&user, false), (&trade, false)]);
        assert_eq!((all.allowed, all.limit, all.remaining), (false, 6, 0));
        assert_eq!((all.retry_after, all.reset_after, binding), (Some(1), 31, Some(1)));
    }

    #[test]
    fn never_takes_precedence_and_has_no_retry() {
        let never = Decision::refuse(1, 1, None, 0);
        let later = Decision::refuse(9, 0, Some(99), 99);
        let Summary { decision: all, binding } = aggregate([(&never, false), (&later, false)]);
        assert_eq!((all.never, all.retry_after, binding), (true, None, Some(0)));
    }

    #[test]
    fn the_next_unit_is_that_of_the_last_level_to_have_one() {
        let empty = |next_after| Decision { next_after, ..Decision::pass(3, 0, 9) };
        let (some, soon, later, never) = (Decision::pass(3, 1, 9), empty(Some(2)), empty(Some(5)), empty(None));
        for (levels, expected) in [(&[some][..], None), (&[later, some, soon], Some(5)), (&[later, never, soon], None)]
        {
            let all = aggregate(levels.iter().map(|level| (level, false)));
            assert_eq!(all.decision.next_after, expected, "{levels:?}");
        }
    }

    #[test]
    fn ties_bind_the_deepest_level_and_shadows_are_excluded() {
        let level = Decision::pass(5, 4, 1);
        let shadow = Decision::refuse(1, 0, Some(5), 9);
        let Summary { decision: all, binding } = aggregate([(&level, false), (&level, false), (&shadow, true)]);
        assert_eq!((all.allowed, binding, all.limit, all.reset_after), (true, Some(1), 5, 1));
        assert_eq!(aggregate([(&shadow, true)]).binding, None);
    }
}
