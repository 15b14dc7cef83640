//! Limits for tests, with their definitions.

use super::LimitDefinition;
use crate::{
    algorithm::{Bounds, Params, find, params::MAX_PERIOD},
    domain::time::SECOND,
};

/// Parses a limit's parameters as a file would write them, with the widest bounds.
pub fn parse(algorithm: &str, fields: &[(&str, &str)]) -> Params {
    (find(algorithm).unwrap().parse)(fields, &Bounds { max_period: MAX_PERIOD }).unwrap()
}

/// Returns a limit of `rate` units a second, and `capacity` in a burst.
pub fn bucket(rate: u64, capacity: u64) -> (Params, LimitDefinition) {
    let (count, burst) = (rate.to_string(), capacity.to_string());
    let params = parse("token_bucket", &[("capacity", &burst), ("count", &count), ("period", "1s")]);
    (params, LimitDefinition::Bucket { capacity, count: rate, period: SECOND })
}

/// Returns limits of a few hundred units a second, so that they are reached soon: the limits of one
/// request each, from the root.
pub fn limits() -> Vec<Vec<(Params, LimitDefinition)>> {
    let fields = [("count", "150"), ("period", "200ms")];
    let window = LimitDefinition::Window { count: 150, period: 200_000 };
    let any_span = LimitDefinition::AnySpan { count: 150, period: 200_000 };
    let rate = |at_once, count| LimitDefinition::Rate { at_once, count, period: SECOND };
    vec![
        vec![bucket(700, 100)],
        vec![bucket(1_000, 300), bucket(700, 100)],
        vec![(
            parse("gcra", &[("burst", "49"), ("count", "700"), ("period", "1s")]),
            LimitDefinition::Bucket { capacity: 50, count: 700, period: SECOND },
        )],
        vec![(parse("leaky_bucket", &[("size", "60"), ("drip_rate", "1ms")]), rate(61, 1_000))],
        vec![(parse("leaky_bucket", &[("size", "60"), ("drip_size", "7"), ("drip_rate", "10ms")]), rate(67, 700))],
        vec![(parse("fixed_window", &fields), window)],
        vec![(parse("sliding_log", &fields), any_span)],
        vec![(parse("sliding_buckets", &[fields[0], fields[1], ("resolution", "20ms")]), any_span)],
        vec![(parse("sliding_window", &fields), window)],
        vec![(parse("decay", &[("max", "100"), ("resolution", "50ms"), ("decay", "1.5")]), rate(134, 667))],
    ]
}
