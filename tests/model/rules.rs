//! The algorithms by their formulas, with exact fractions.

use weir_core::domain::Decision;

use super::{fraction::Fraction, generate::Rule};

/// The time of one unit, and the most units.
pub type Meter = (Fraction, i128);

/// The theoretical arrival time of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    at: Fraction,
    /// The limit with and without the request's factor: the time of one unit, and the most units.
    maker: [Meter; 2],
    /// Whether others know the limit, and charge it: since it has written the state in addition to
    /// others.
    is_known: bool,
    /// Until when it is kept with others: an hour after its own units have refilled.
    until: i128,
}

impl Arrival {
    /// Returns the furthest arrival time that the limit could have made by `now`, with or without the factor.
    fn furthest([(each, most), (base_each, base_most)]: [Meter; 2], now: Fraction) -> Fraction {
        let (scaled, unscaled) = (now.plus(each.times(most)), base_each.times(base_most).ceil());
        let unscaled = now.plus(Fraction::whole(unscaled));
        if (each, most) != (base_each, base_most) && unscaled > scaled { unscaled } else { scaled }
    }

    /// Returns the arrival time after another limit has charged, at most the furthest that this one could have made.
    fn charged(self, units: i128, now: Fraction) -> Self {
        if !self.is_known || units <= 0 {
            return self;
        }
        let begin = if self.at > now { self.at } else { now };
        let (next, furthest) = (begin.plus(self.maker[0].0.times(units)), Self::furthest(self.maker, now));
        let next = if next > furthest { furthest } else { next };
        Self { at: if next > self.at { next } else { self.at }, ..self }
    }
}

/// The state of one key under a limit: the units spent, never the units left.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The arrival time of the limit that wrote the state, then of up to three others that wrote it
    /// before.
    Arrivals(Vec<Arrival>),
    Window {
        start: i128,
        used: i128,
    },
}

impl State {
    /// Returns the time from which the key counts as unused.
    pub fn ends(&self, rule_period: i128) -> i128 {
        match self {
            Self::Arrivals(all) => {
                let others = all[1..].iter().map(|other| other.at.ceil().min(other.until - 3_600_000_000));
                others.fold(all[0].at.ceil(), i128::max)
            }
            Self::Window { used: 0, .. } => i128::MIN,
            Self::Window { start, .. } => start + rule_period,
        }
    }
}

/// Returns the rule's name and time base. If either changes, states start from zero.
pub fn kind(rule: &Rule) -> (&'static str, i64) {
    match rule {
        Rule::Gcra { .. } => ("gcra", 0),
        Rule::TokenBucket { .. } => ("token_bucket", 0),
        Rule::FixedWindow { period, .. } => ("fixed_window", *period),
    }
}

/// Divides the counts of a rule by a factor and rounds up.
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

/// Decides `cost` at `now` by one limit, which is `base` without the request's factor. Returns its answer, and the state
/// to store if the answer is committed.
pub fn step(rule: &Rule, base: &Rule, state: Option<State>, now: i64, cost: i64) -> (Decision, Option<State>) {
    let (decision, next) = judge(rule, base, state, now, cost);
    // If no unit is left, `next_after` is the retry time of a request for one unit.
    let next_after = if decision.remaining == 0 { judge(rule, base, next.clone(), now, 1).0.retry_after } else { None };
    (Decision { next_after, ..decision }, next)
}

fn judge(rule: &Rule, base: &Rule, state: Option<State>, now: i64, cost: i64) -> (Decision, Option<State>) {
    let (now, cost) = (i128::from(now), i128::from(cost));
    match (rule, meter(rule), meter(base)) {
        (_, Some(meter), Some(base)) => arrival([meter, base], state, now, cost),
        (Rule::FixedWindow { count, period, charge_denied }, ..) => {
            window(i128::from(*count), i128::from(*period), *charge_denied, state, now, cost)
        }
        _ => panic!("a factor changes no algorithm"),
    }
}

fn meter(rule: &Rule) -> Option<Meter> {
    let (most, count, period) = match *rule {
        Rule::Gcra { burst, count, period } => (burst + 1, count, period),
        Rule::TokenBucket { capacity, count, period } => (capacity, count, period),
        Rule::FixedWindow { .. } => return None,
    };
    Some((Fraction::new(period.into(), count.into()), most.into()))
}

fn arrival(limit: [Meter; 2], state: Option<State>, now: i128, cost: i128) -> (Decision, Option<State>) {
    let [(each, most), base] = limit;
    let depth = each.times(most);
    let present = Fraction::whole(now);
    // A state that another limit wrote is cut to the furthest that this limit could have written, with or without the
    // factor. An arrival time that this limit wrote under another factor rounds up.
    let furthest = Arrival::furthest(limit, present);
    let all = match state {
        Some(State::Arrivals(all)) => all,
        _ => Vec::new(),
    };
    let own = all.iter().find(|arrival| arrival.maker[1] == base);
    let known = own.map(|own| if own.maker == limit { own.at } else { Fraction::whole(own.at.ceil()) });
    let others = || all.iter().filter(|other| other.maker[1] != base);
    let rest = others().map(|arrival| arrival.at.ceil()).max();
    let (known, is_cut) = match (known, rest.map(Fraction::whole)) {
        (Some(known), Some(rest)) if own.is_some_and(|own| !own.is_known) => {
            let taken = if rest > furthest { furthest } else { rest };
            let taken = if known > taken { known } else { taken };
            (Some(taken), rest > taken)
        }
        (None, Some(rest)) => (Some(if rest > furthest { furthest } else { rest }), rest > furthest),
        (known, _) => (known, false),
    };
    let remaining = |at: Fraction| present.plus(depth).minus(at).divided_by(each).floor();
    let reset = |at: Fraction| at.minus(present).ceil();
    // The other limits keep their arrival times, and those that are known are charged as well. Of more than three, the
    // one that is kept for the shortest time is forgotten.
    let keep = |at: Fraction, charged: i128| {
        let mut others: Vec<_> =
            others().filter(|other| other.until > now).map(|other| other.charged(charged, present)).collect();
        if others.len() > 3 {
            // Of equal ones the first.
            let nearest = (0..others.len()).min_by_key(|at| others[*at].until).unwrap_or_default();
            others.remove(nearest);
        }
        let is_known = !others.is_empty();
        let ends = if is_known { at.ceil().max(now + furthest.minus(present).ceil()) } else { at.ceil() };
        let own = Arrival { at, maker: limit, is_known, until: ends + 3_600_000_000 };
        Some(State::Arrivals([own].into_iter().chain(others).collect()))
    };
    let unchanged = || (!all.is_empty()).then(|| State::Arrivals(all.clone()));
    if cost < 0 {
        let Some(known) = known else { return (pass(most, most, 0), None) };
        let at = known.minus(each.times(-cost)).max(present);
        return (pass(most, remaining(at), reset(at)), keep(at, cost));
    }
    let spent = known.unwrap_or(present).max(present);
    let new = spent.plus(each.times(cost));
    let early = new.minus(depth).minus(present);
    if cost > most || early > Fraction::whole(0) {
        let retry = (cost <= most).then(|| early.ceil());
        let state = if is_cut && cost > 0 { keep(spent, 0) } else { unchanged() };
        return (decision(false, most, remaining(spent), retry, reset(spent)), state);
    }
    (pass(most, remaining(new), reset(new)), if cost > 0 { keep(new, cost) } else { unchanged() })
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
        // A window without used units counts as unused (property 2), even if it starts in the future.
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
