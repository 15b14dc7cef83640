//! Property: the Envoys of all replicas together never use more than the limit, regardless of faults of replicas and
//! their store. [`Simulation::pass`] checks it at every step.

mod bounds;
mod simulation;

use simulation::Simulation;

const LIMIT: f64 = 1_000.0;

fn policy(on_store_failure: &str) -> String {
    format!(
        "domain: api\non_store_failure: {on_store_failure}\nschema: {{ user: {{ children: {{ alex: {{ limits: [{{ token_bucket: \
         {{ capacity: 1000, count: 1000, period: 1s }} }}] }} }} }} }}"
    )
}

/// Starts replicas whose Envoys have these demands.
async fn simulation(rule: &str, demands: &[&[f64]]) -> Simulation {
    let mut simulation = Simulation::new(&policy(rule), demands.len());
    for (replica, demands) in demands.iter().enumerate() {
        demands.iter().for_each(|demand| simulation.join(replica, *demand));
    }
    simulation.pass(20, LIMIT).await;
    simulation
}

#[tokio::test(start_paused = true)]
async fn replicas_divide_a_limit_by_demand() {
    let mut simulation = simulation("local", &[&[5_000.0], &[5_000.0]]).await;
    assert!(simulation.rates().iter().all(|rate| *rate >= 450.0), "{:?}", simulation.rates());
    for turn in [0, 1, 0] {
        (simulation.envoys[turn].demand, simulation.envoys[1 - turn].demand) = (900.0, 50.0);
        simulation.pass(14, LIMIT).await;
        let rates = simulation.rates();
        assert!(rates[turn] >= 850.0 && rates[1 - turn] >= 40.0, "{rates:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_shares_of_a_killed_replica_are_not_reassigned_before_they_expire() {
    let mut simulation = simulation("local", &[&[5_000.0], &[5_000.0]]).await;
    let gone = simulation.rates()[1];
    // Its Envoys report to no replica.
    simulation.kill(1, 1);
    simulation.pass(8, LIMIT).await;
    assert!(simulation.rates()[1] == gone && gone >= 450.0, "{:?}", simulation.rates());
    simulation.pass(15, LIMIT).await;
    assert!(simulation.rates()[0] >= 990.0, "{:?}", simulation.rates());
}

#[tokio::test(start_paused = true)]
async fn a_restart_costs_little_more_than_the_rest_of_the_assignments() {
    for (name, demands, restarted, instead) in [
        ("the busier one of two", &[&[1080.0][..], &[60.0, 60.0]][..], 0, 1),
        ("the other one", &[&[60.0], &[1080.0, 60.0]], 0, 1),
        ("the only one", &[&[1080.0, 60.0, 60.0]], 0, 0),
        ("the only one of equals", &[&[400.0, 400.0, 400.0]], 0, 0),
    ] {
        let restart = async |is_killed: bool| {
            let mut simulation = simulation("local", demands).await;
            if is_killed {
                simulation.kill(restarted, instead);
            } else {
                simulation.stop(restarted, instead).await;
            }
            simulation.start(restarted);
            simulation.pass(30, LIMIT).await
        };
        // A stopped replica keeps nothing beyond the 7 s assigned to its Envoys; the holds of a killed one expire after
        // 20 s.
        for (is_killed, least) in [(false, 0.87), (true, 0.62)] {
            let used = restart(is_killed).await;
            assert!(used >= least, "{name}, killed: {is_killed}: {used}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_shares_follow_on_store_failure() {
    for (rule, stays) in [("local", true), ("allow", true), ("deny", false), ("error", false)] {
        let mut simulation = simulation(rule, &[&[900.0], &[50.0]]).await;
        let before = simulation.rates();
        (0..2).for_each(|replica| simulation.cut(replica, true));
        simulation.pass(10, LIMIT).await;
        assert_eq!(simulation.rates(), before, "{rule}");
        simulation.pass(20, LIMIT).await;
        assert_eq!(simulation.rates(), if stays { before } else { vec![0.0, 0.0] }, "{rule}");
        // The store restarts empty.
        simulation.empty_the_store();
        (0..2).for_each(|replica| simulation.cut(replica, false));
        simulation.pass(6, LIMIT).await;
        (simulation.envoys[0].demand, simulation.envoys[1].demand) = (50.0, 900.0);
        simulation.pass(15, LIMIT).await;
        assert!(simulation.rates()[0] >= 40.0 && simulation.rates()[1] >= 850.0, "{rule}: {:?}", simulation.rates());
    }
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_limits_that_were_not_divided_before_follow_on_store_failure() {
    for (rule, rate) in [("local", LIMIT), ("allow", LIMIT), ("deny", 0.0), ("error", 0.0)] {
        let mut new = simulation(rule, &[&[]]).await;
        new.cut(0, true);
        new.join(0, 900.0);
        let mut restarted = simulation(rule, &[&[900.0]]).await;
        restarted.kill(0, 0);
        restarted.start(0);
        restarted.cut(0, true);
        let mut renamed = simulation(rule, &[&[900.0]]).await;
        renamed.cut(0, true);
        renamed.reload(&policy(rule).replace("limits: [{", "limits: [{ name: other,"));
        for (name, mut simulation) in [("new", new), ("restarted", restarted), ("renamed", renamed)] {
            simulation.pass(30, LIMIT).await;
            assert_eq!(simulation.rates(), [rate], "{rule}, {name}");
            simulation.cut(0, false);
            simulation.pass(10, LIMIT).await;
            assert!(simulation.rates()[0] >= 0.99 * LIMIT, "{rule}, {name}: {:?}", simulation.rates());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_lost_renewal_is_not_an_outage() {
    let mut simulation = simulation("local", &[&[5_000.0], &[]]).await;
    simulation.cut(1, true);
    simulation.join(1, 5_000.0);
    simulation.pass(1, LIMIT).await;
    simulation.cut(1, false);
    simulation.pass(15, LIMIT).await;
    assert!(simulation.rates().iter().all(|rate| *rate >= 450.0), "{:?}", simulation.rates());
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_what_shares_follow_in_an_outage() {
    for (before, after, stays) in [("local", "deny", false), ("error", "allow", true)] {
        let mut simulation = simulation(before, &[&[900.0]]).await;
        simulation.reload(&policy(after));
        simulation.pass(3, LIMIT).await;
        let rates = simulation.rates();
        simulation.cut(0, true);
        simulation.pass(30, LIMIT).await;
        assert_eq!(simulation.rates(), if stays { rates } else { vec![0.0] }, "{before}, then {after}");
        simulation.reload(&policy(after).replace("1000", "500"));
        simulation.pass(3, LIMIT).await;
        assert!(simulation.rates()[0] <= 500.0, "{before}, then {after}: {:?}", simulation.rates());
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_anchor_divides_no_limit_twice() {
    let mut simulation = simulation("local", &[&[900.0], &[900.0]]).await;
    simulation.reload(&policy("local").replace("domain: api", "domain: api\nanchor: 1"));
    simulation.pass(3, LIMIT).await;
    // It divides the limit only at the new place.
    simulation.kill(1, 1);
    simulation.start(1);
    simulation.pass(40, LIMIT).await;
    assert!(simulation.rates().iter().all(|rate| *rate >= 450.0), "{:?}", simulation.rates());
}

#[tokio::test(start_paused = true)]
async fn a_replica_cut_off_from_the_store_withdraws_its_shares_before_another_one_gets_them() {
    for rule in ["deny", "error"] {
        let mut simulation = simulation(rule, &[&[900.0], &[900.0]]).await;
        simulation.cut(0, true);
        simulation.pass(30, LIMIT).await;
        assert!(simulation.rates()[0] == 0.0 && simulation.rates()[1] >= 900.0, "{rule}: {:?}", simulation.rates());
        simulation.cut(0, false);
        simulation.pass(15, LIMIT).await;
        assert!(simulation.rates().iter().all(|rate| *rate >= 450.0), "{rule}: {:?}", simulation.rates());
    }
}
