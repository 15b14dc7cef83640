//! Each algorithm as its formulas say, on exact fractions.

use weir_core::domain::Decision;

use super::{fraction::Fraction, generate::Rule};

/// What a limit remembers of a key: what was spent, never what is left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// The theoretical arrival time, and the limit that made it: the time of one unit, and the most units.
    Arrival {
        at: Fraction,
        maker: (Fraction, i128),
    },
    Window {
        start: i128,
        used: i128,
    },
}

impl State {
    /// The moment from which the key is as if never seen.
    pub fn ends(&self, rule_period: i128) -> i128 {
        match self {
            Self::Arrival { at, .. } => at.ceil(),
            Self::Window { used: 0, .. } => i128::MIN,
            Self::Window { start, .. } => start + rule_period,
        }
    }
}

/// A rule's name and what gives its states their meaning; a change of it starts afresh.
pub fn kind(rule: &Rule) -> (&'static str, i64) {
    match rule {
        Rule::Gcra { .. } => ("gcra", 0),
        Rule::TokenBucket { .. } => ("token_bucket", 0),
        Rule::FixedWindow { period, .. } => ("fixed_window", *period),
    }
}

/// The rule divided by a factor: what counts rounds up.
pub fn scale(rule: &Rule, factor: f64) -> Rule {
    let scaled = |value: u64, least: u64| ((value as f64 / factor).ceil() as u64).max(least);
    match *rule {
        Rule::Gcra { burst, count, period } => Rule::Gcra { burst: scaled(burst, 0), count: scaled(count, 1), period },
        Rule::TokenBucket { capacity, count, period } => {
            Rule::TokenBucket { capacity: scaled(capacity, 1), count: scaled(count, 1), period }
        }
        Rule::FixedWindow { count, period, charge_denied } => {
            Rule::FixedWindow { count: scaled(count, 1), period, charge_denied }
        }
    }
}

fn pass(limit: i128, remaining: i128, reset: i128) -> Decision {
    decision(true, limit, remaining, None, reset)
}

fn decision(allowed: bool, limit: i128, remaining: i128, retry: Option<i128>, reset: i128) -> Decision {
    Decision {
        allowed,
        limit: limit as u64,
        remaining: remaining.max(0) as u64,
        retry_after: retry.map(|retry| retry as i64),
        next_after: None,
        reset_after: reset.max(0) as i64,
        wait: 0,
        never: !allowed && retry.is_none(),
    }
}

/// One limit asked for `cost` at `now`: its answer, and its state if the answer is put into effect.
pub fn step(rule: &Rule, state: Option<State>, now: i64, cost: i64) -> (Decision, Option<State>) {
    let (decision, next) = judge(rule, state, now, cost);
    // Where nothing is left, that is when a refused request for one unit would pass.
    let next_after = if decision.remaining == 0 { judge(rule, next, now, 1).0.retry_after } else { None };
    (Decision { next_after, ..decision }, next)
}

fn judge(rule: &Rule, state: Option<State>, now: i64, cost: i64) -> (Decision, Option<State>) {
    let (now, cost) = (i128::from(now), i128::from(cost));
    match *rule {
        Rule::Gcra { burst, count, period } => arrival(i128::from(burst) + 1, count, period, state, now, cost),
        Rule::TokenBucket { capacity, count, period } => arrival(i128::from(capacity), count, period, state, now, cost),
        Rule::FixedWindow { count, period, charge_denied } => {
            window(i128::from(count), i128::from(period), charge_denied, state, now, cost)
        }
    }
}

fn arrival(
    most: i128,
    count: u64,
    period: i64,
    state: Option<State>,
    now: i128,
    cost: i128,
) -> (Decision, Option<State>) {
    let (count, period) = (i128::from(count), i128::from(period));
    let each = Fraction::new(period, count);
    let depth = each.times(most);
    let present = Fraction::whole(now);
    // What another limit made is at most what this one could have made.
    let furthest = present.plus(depth);
    let (known, is_cut) = match state {
        Some(State::Arrival { at, maker }) if maker == (each, most) => (Some(at), false),
        Some(State::Arrival { at, .. }) if Fraction::whole(at.ceil()) > furthest => (Some(furthest), true),
        Some(State::Arrival { at, .. }) => (Some(Fraction::whole(at.ceil())), false),
        _ => (None, false),
    };
    let remaining = |at: Fraction| present.plus(depth).minus(at).divided_by(each).floor();
    let reset = |at: Fraction| at.minus(present).ceil();
    let keep = |at: Fraction| Some(State::Arrival { at, maker: (each, most) });
    if cost < 0 {
        let Some(known) = known else { return (pass(most, most, 0), None) };
        let at = known.minus(each.times(-cost)).max(present);
        return (pass(most, remaining(at), reset(at)), keep(at));
    }
    let base = known.unwrap_or(present).max(present);
    let new = base.plus(each.times(cost));
    let early = new.minus(depth).minus(present);
    if cost > most || early > Fraction::whole(0) {
        let retry = (cost <= most).then(|| early.ceil());
        let state = if is_cut { keep(base) } else { state };
        return (decision(false, most, remaining(base), retry, reset(base)), state);
    }
    (pass(most, remaining(new), reset(new)), if cost > 0 { keep(new) } else { state })
}

fn window(
    count: i128,
    period: i128,
    charge_denied: bool,
    state: Option<State>,
    now: i128,
    cost: i128,
) -> (Decision, Option<State>) {
    let current = now - now.rem_euclid(period);
    let (start, used) = match state {
        // One of which nothing is used any more is as if never seen (law 2), also when it lies ahead.
        Some(State::Window { start, used }) if start >= current && used > 0 => (start, used),
        _ => (current, 0),
    };
    let left = start + period - now;
    let reset = |used: i128| if used > 0 { left } else { 0 };
    let keep = |used: i128| Some(State::Window { start, used });
    if cost < 0 {
        let used = (used + cost).max(0);
        return (pass(count, count - used, reset(used)), state.and(keep(used)));
    }
    let allowed = used + cost <= count;
    let charged = cost > 0 && (allowed || charge_denied);
    let used = if charged { (used + cost).min(1 << 52) } else { used };
    let answer = if allowed {
        pass(count, count - used, reset(used))
    } else {
        decision(false, count, count - used, (cost <= count).then_some(left), reset(used))
    };
    (answer, if charged { keep(used) } else { state })
}
