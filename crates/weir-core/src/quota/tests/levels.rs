//! Nested limits.

use super::{REQUEST, Simulation};

#[test]
fn buckets_below_one_limit_share_it() {
    let (mut simulation, one) = Simulation::new(1_000);
    let parent = simulation.limits[0].0;
    let children = [(); 2].map(|()| {
        let level = simulation.divider.add_level(Some(parent), 800 * REQUEST);
        simulation.divider.set_budget(level, 800 * REQUEST, 0);
        (level, simulation.divider.add_bucket(level))
    });
    simulation.limits[0].2 = vec![one, children[0].1, children[1].1];
    simulation.limits.extend(children.map(|(level, bucket)| (level, 800 * REQUEST, vec![bucket])));
    simulation.join(children[0].1, 2_000, 0);
    simulation.run(20);
    assert_eq!(simulation.rates(), [800]);
    simulation.join(children[1].1, 2_000, 0);
    simulation.join(one, 100, 0);
    simulation.run(20);
    let rates = simulation.rates();
    assert!((430..=460).contains(&rates[0]) && (430..=460).contains(&rates[1]) && rates[2] >= 100, "{rates:?}");
}

#[test]
fn levels_without_buckets_are_removed_with_their_parents() {
    let (mut simulation, bucket) = Simulation::new(100);
    let root = simulation.limits[0].0;
    let [middle, other] = [(); 2].map(|()| simulation.divider.add_level(Some(root), REQUEST));
    let low = simulation.divider.add_level(Some(middle), REQUEST);
    assert_eq!(simulation.divider.remove_empty_levels(), [low, middle, other].into());
    assert_eq!(simulation.divider.remove_empty_buckets(), [bucket]);
    assert_eq!(simulation.divider.remove_empty_levels(), [root].into());
}

#[test]
fn limits_share_an_inserted_parent_until_it_is_removed() {
    let (mut simulation, one) = Simulation::new(1_000);
    let mut lower = vec![simulation.limits[0].0];
    let mut buckets = vec![one];
    for _ in 0..2 {
        let level = simulation.divider.add_level(None, 1_000 * REQUEST);
        simulation.divider.set_budget(level, 1_000 * REQUEST, 0);
        let bucket = simulation.divider.add_bucket(level);
        simulation.limits.push((level, 1_000 * REQUEST, vec![bucket]));
        lower.push(level);
        buckets.push(bucket);
    }
    for bucket in &buckets {
        simulation.join(*bucket, 5_000, 0);
    }
    simulation.run(20);
    assert_eq!(simulation.rates(), [1_000; 3]);
    let above = simulation.divider.add_level(None, 500 * REQUEST);
    simulation.divider.set_budget(above, 500 * REQUEST, simulation.now);
    lower.iter().for_each(|level| simulation.divider.set_parent(*level, Some(above), simulation.now));
    assert_eq!(simulation.divider.rate_and_demand(one).map(|(rate, _)| rate), Some(500 * REQUEST));
    simulation.run(2);
    // The new limit is checked from now on.
    simulation.limits.push((above, 500 * REQUEST, buckets.clone()));
    simulation.run(20);
    assert!(simulation.rates().iter().all(|rate| (150..=180).contains(rate)), "{:?}", simulation.rates());
    simulation.limits.pop();
    lower.iter().for_each(|level| simulation.divider.set_parent(*level, None, simulation.now));
    simulation.run(20);
    assert_eq!(simulation.rates(), [1_000; 3]);
    assert_eq!(simulation.divider.remove_empty_levels(), [above].into());
}
