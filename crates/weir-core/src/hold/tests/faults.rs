//! With any fault at any time, and every algorithm that supports holds, admission never exceeds the limit. And each
//! deliberate mutation of the protocol is found.

use super::{
    model::{assert_within, find_violation, run},
    mutations::Mutation,
    simulation::{Case, Faults, Load},
    table::{FAIR, bucket, parse},
};
use crate::{
    algorithm::Params,
    domain::time::SECOND,
    testing::{LimitDefinition, Random, cases},
};

/// All faults at once; holders that are cut off repeatedly, with slow messages; and slow messages alone.
const FAULTS: [Faults; 3] = [
    Faults {
        lose: 10,
        duplicate: 10,
        delay: 10,
        crash_every: 400_000,
        pause_every: 200_000,
        partition_every: 130_000,
        reset_every: 230_000,
        ..FAIR
    },
    Faults { lose: 20, delay: 3, pause_every: 300_000, partition_every: 80_000, ..FAIR },
    Faults { lose: 20, delay: 3, ..FAIR },
];

/// Limits of a few hundred units a second with their definitions, so that each is reached within a second.
fn limits() -> Vec<(Vec<Params>, Vec<LimitDefinition>)> {
    let one = |params, definition| (vec![params], vec![definition]);
    let (small, small_definition) = bucket(700, 100);
    let (wide, wide_definition) = bucket(1_000, 300);
    vec![
        one(small.clone(), small_definition),
        (vec![wide, small], vec![wide_definition, small_definition]),
        one(
            parse("gcra", &[("burst", "49"), ("count", "700"), ("period", "1s")]),
            LimitDefinition::Bucket { capacity: 50, count: 700, period: SECOND },
        ),
        one(
            parse("leaky_bucket", &[("size", "60"), ("drip_rate", "1ms")]),
            LimitDefinition::Rate { at_once: 61, count: 1_000, period: SECOND },
        ),
        one(
            parse("leaky_bucket", &[("size", "60"), ("drip_size", "7"), ("drip_rate", "10ms")]),
            LimitDefinition::Rate { at_once: 67, count: 700, period: SECOND },
        ),
        one(
            parse("fixed_window", &[("count", "150"), ("period", "200ms")]),
            LimitDefinition::Window { count: 150, period: 200_000 },
        ),
        one(
            parse("sliding_log", &[("count", "150"), ("period", "200ms")]),
            LimitDefinition::AnySpan { count: 150, period: 200_000 },
        ),
        one(
            parse("sliding_buckets", &[("count", "150"), ("period", "200ms"), ("resolution", "20ms")]),
            LimitDefinition::AnySpan { count: 150, period: 200_000 },
        ),
        one(
            parse("sliding_window", &[("count", "150"), ("period", "200ms")]),
            LimitDefinition::Window { count: 150, period: 200_000 },
        ),
        one(
            parse("decay", &[("max", "100"), ("resolution", "50ms"), ("decay", "1.5")]),
            LimitDefinition::Rate { at_once: 134, count: 667, period: SECOND },
        ),
    ]
}

fn case(params: Vec<Params>, mutation: Option<Mutation>, faults: Faults) -> Case {
    Case { params, holders: 3, load: Load::Wild, length: SECOND, faults, mutation }
}

#[test]
fn no_fault_lets_more_pass_than_the_limit() {
    for (params, definitions) in limits() {
        for faults in FAULTS {
            let case = case(params.clone(), None, faults);
            cases(4, |seed: &Random| assert_within(&case, &definitions, &run(&case, seed)));
        }
    }
}

const MUTATIONS: [Mutation; 14] = [
    Mutation::SpendAfterDeadline,
    Mutation::StartTtlAtReply,
    Mutation::CompareWallClocks,
    Mutation::DrainOutstanding,
    Mutation::ResetDropsHolds,
    Mutation::RefundExpiredHolds,
    Mutation::KeepReturnedUnits,
    Mutation::AcceptLateReply,
    Mutation::KeepBurntUnits,
    Mutation::AcceptStaleRenewal,
    Mutation::AcceptDuplicateRenewal,
    Mutation::RecordHalfTheGrant,
    Mutation::HoldLastLevelOnly,
    Mutation::DropSpentUnits,
];

/// Maximum number of runs to find a mutation.
const MAX_RUNS: u64 = 1_000;

#[test]
fn every_break_of_the_protocol_is_found() {
    let mut missed = Vec::new();
    for mutation in MUTATIONS {
        let limits = limits();
        let found = (0..MAX_RUNS).find_map(|number| {
            let (params, definitions) = &limits[number as usize % limits.len()];
            let faults = FAULTS[number as usize / limits.len() % FAULTS.len()];
            let case = case(params.clone(), Some(mutation), faults);
            let outcome = run(&case, &Random::new(number));
            find_violation(&case, definitions, &outcome).map(|(units, _)| (number + 1, units))
        });
        println!("{mutation:?}: {found:?} (runs, units before it)");
        missed.extend(found.is_none().then_some(mutation));
    }
    assert!(missed.is_empty(), "not found in {MAX_RUNS} runs: {missed:?}");
}
