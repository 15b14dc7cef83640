//! The long-run rate of a limit: `limit` units per `window`, divided by the factor.

use super::trace::examples;
use crate::{
    algorithm::Params,
    domain::{Micros, StepInput},
};

const WINDOWS: i64 = 16;

fn limit(params: &Params) -> u64 {
    params.step(None, &StepInput { now: 0, cost: 0, max_wait: Some(0), phase: 0 }).0.limit
}

/// Returns the units granted within [`WINDOWS`] windows to a client that takes everything as soon as it is available,
/// and has exhausted the limit before.
fn sustained(params: &Params) -> u64 {
    let mut input = StepInput { now: 1_790_000_000_000_000, cost: 0, max_wait: Some(0), phase: 0 };
    let (mut state, mut granted, mut end): (_, _, Option<Micros>) = (None, 0, None);
    while end.is_none_or(|end| input.now < end) {
        let remaining = params.step(state.as_ref(), &StepInput { cost: 0, ..input }).0.remaining;
        input.cost = remaining.max(1) as i64;
        let (decision, next) = params.step(state.as_ref(), &input);
        if decision.allowed {
            granted += if end.is_some() { input.cost.unsigned_abs() } else { 0 };
            state = next;
        } else {
            end = end.or(Some(input.now + WINDOWS * params.window()));
            input.now += decision.retry_after.unwrap();
        }
    }
    granted
}

/// Within a tenth: buckets release their units up to one resolution late, and units are whole.
#[test]
fn a_window_grants_the_limit_in_the_long_run() {
    for (entry, params) in examples() {
        let params = params.sparing_denied().unwrap_or(params);
        let limit = limit(&params);
        if (100..=1_000).contains(&limit) {
            let (granted, expected) = (sustained(&params), limit * WINDOWS.unsigned_abs());
            let off = granted.abs_diff(expected);
            assert!(off * 10 <= expected, "{} {}: {granted}, not {expected}", entry.name, params.describe());
        }
    }
}

/// Returns the limit, and the long-run rate in units per second.
fn size(params: &Params) -> [f64; 2] {
    let limit = limit(params) as f64;
    [limit, limit / params.window() as f64 * 1e6]
}

/// For limits of which rounding up is a small part.
#[test]
fn a_factor_divides_the_burst_and_the_long_run_rate() {
    for (entry, params) in examples() {
        assert_eq!(params.scale(1.0).as_ref(), Ok(&params), "{}", params.describe());
        for factor in [0.25, 0.5, 2.0, 3.0] {
            let Ok(scaled) = params.scale(factor) else { continue };
            for (before, after) in size(&params).into_iter().zip(size(&scaled)) {
                let min = before / factor;
                let max = if factor < 1.0 { min } else { before };
                let is_near = (min * 0.95..=max * 1.05).contains(&after);
                let context = || format!("{} {} by {factor}: {after}, not {min}", entry.name, params.describe());
                assert!(is_near || limit(&params) < 100, "{}", context());
            }
        }
    }
}
