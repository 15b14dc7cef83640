//! Nested limits.

use super::{REQUEST, World};

#[test]
fn buckets_below_one_limit_share_it() {
    let (mut world, one) = World::new(1_000);
    let parent = world.limits[0].0;
    let children = [(); 2].map(|()| {
        let level = world.divider.add_level(Some(parent), 800 * REQUEST);
        world.divider.set_budget(level, 800 * REQUEST, 0);
        (level, world.divider.add_bucket(level))
    });
    world.limits[0].2 = vec![one, children[0].1, children[1].1];
    world.limits.extend(children.map(|(level, bucket)| (level, 800 * REQUEST, vec![bucket])));
    world.join(children[0].1, 2_000, 0);
    world.run(20);
    assert_eq!(world.rates(), [800]);
    world.join(children[1].1, 2_000, 0);
    world.join(one, 100, 0);
    world.run(20);
    let rates = world.rates();
    assert!((430..=460).contains(&rates[0]) && (430..=460).contains(&rates[1]) && rates[2] >= 100, "{rates:?}");
}

#[test]
fn levels_without_buckets_go_with_those_above_them() {
    let (mut world, bucket) = World::new(100);
    let root = world.limits[0].0;
    let [middle, other] = [(); 2].map(|()| world.divider.add_level(Some(root), REQUEST));
    let low = world.divider.add_level(Some(middle), REQUEST);
    assert_eq!(world.divider.remove_empty_levels(), [low, middle, other].into());
    assert_eq!(world.divider.remove_empty_buckets(), [bucket]);
    assert_eq!(world.divider.remove_empty_levels(), [root].into());
}

#[test]
fn limits_share_one_that_is_put_above_them_until_it_is_gone() {
    let (mut world, one) = World::new(1_000);
    let mut lower = vec![world.limits[0].0];
    let mut buckets = vec![one];
    for _ in 0..2 {
        let level = world.divider.add_level(None, 1_000 * REQUEST);
        world.divider.set_budget(level, 1_000 * REQUEST, 0);
        let bucket = world.divider.add_bucket(level);
        world.limits.push((level, 1_000 * REQUEST, vec![bucket]));
        lower.push(level);
        buckets.push(bucket);
    }
    for bucket in &buckets {
        world.join(*bucket, 5_000, 0);
    }
    world.run(20);
    assert_eq!(world.rates(), [1_000; 3]);
    let above = world.divider.add_level(None, 500 * REQUEST);
    world.divider.set_budget(above, 500 * REQUEST, world.now);
    lower.iter().for_each(|level| world.divider.set_parent(*level, Some(above), world.now));
    assert_eq!(world.divider.rate_and_demand(one).map(|(rate, _)| rate), Some(500 * REQUEST));
    world.run(2);
    // The new limit is checked from now on.
    world.limits.push((above, 500 * REQUEST, buckets.clone()));
    world.run(20);
    assert!(world.rates().iter().all(|rate| (150..=180).contains(rate)), "{:?}", world.rates());
    world.limits.pop();
    lower.iter().for_each(|level| world.divider.set_parent(*level, None, world.now));
    world.run(20);
    assert_eq!(world.rates(), [1_000; 3]);
    assert_eq!(world.divider.remove_empty_levels(), [above].into());
}
