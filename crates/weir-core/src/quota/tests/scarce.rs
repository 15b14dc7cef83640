//! Buckets with fewer steps than holders.

use super::*;

#[test]
fn with_fewer_steps_than_envoys_nearly_all_are_assigned_and_the_rest_denied() {
    let (mut simulation, bucket) = Simulation::new(100);
    for _ in 0..120 {
        simulation.join(bucket, 2, 0);
    }
    simulation.run(1);
    let told = simulation.holders.iter().filter(|holder| holder.changes > 0).count();
    assert!((65..=75).contains(&told), "50 start, 20 are denied: {told}");
    simulation.run(19);
    assert_eq!(simulation.rates().iter().sum::<u64>(), 99, "the full bucket of one more would not fit");
    assert!(simulation.holders.iter().all(|holder| holder.changes > 0), "the last one is denied too");
    simulation.leave(0);
    simulation.run(20);
    assert_eq!(simulation.rates().iter().sum::<u64>(), 99);
}

#[test]
fn with_fewer_steps_than_holders_the_busiest_have_them() {
    let (mut simulation, bucket) = Simulation::new(100);
    let idle: Vec<usize> = (0..110).map(|_| simulation.join(bucket, 0, 0)).collect();
    let busy: Vec<usize> = (0..10).map(|_| simulation.join(bucket, 50, 0)).collect();
    simulation.run(30);
    assert!(busy.iter().all(|index| simulation.rates()[*index] > 0), "{:?}", simulation.rates());
    assert!(idle.iter().any(|index| simulation.rates()[*index] == 0), "{:?}", simulation.rates());
}

#[test]
fn a_step_stays_with_its_holder_while_it_has_demand() {
    let mut divider = Divider::new(QuotaTiming::default());
    let level = divider.add_level(None, 2);
    divider.set_budget(level, 2, 0);
    let bucket = divider.add_bucket(level);
    let asked = Usage { denied: 5, ..Usage::default() };
    let members: Vec<_> = (0..4).filter_map(|_| divider.join(bucket, &asked, 0)).collect();
    let mut changes = Vec::new();
    for round in 0..10 {
        divider.tick(round * REPORT, &mut changes);
        for (index, member) in members.iter().enumerate() {
            let usage = Usage { denied: 5 + 2 * index as u64, ..Usage::default() };
            divider.report(bucket, *member, &usage, round * REPORT + TICK);
            divider.tick(round * REPORT + SECOND, &mut changes);
        }
    }
    let held = |change: &&Change| change.assignment.rate > 0;
    assert_eq!((changes.iter().filter(held).count(), changes.len()), (1, 4), "{changes:?}");
}
