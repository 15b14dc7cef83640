//! With any fault at any time, and every algorithm that supports holds, admission never exceeds the limit. And each
//! deliberate mutation of the protocol is found.

use super::{
    model::{assert_within, find_violation, run},
    mutations::Mutation,
    simulation::{Case, Faults, Load},
    table::FAIR,
};
use crate::{
    algorithm::Params,
    domain::time::SECOND,
    testing::{self, LimitDefinition, Random, cases},
};

/// All faults together; holders that are cut off repeatedly, with slow messages; and slow messages
/// alone.
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

/// The parameters and the definitions of the limits of one request each.
fn limits() -> Vec<(Vec<Params>, Vec<LimitDefinition>)> {
    testing::limits().into_iter().map(|limits| limits.into_iter().unzip()).collect()
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
