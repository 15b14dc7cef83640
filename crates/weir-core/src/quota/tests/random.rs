//! Random events.

use proptest::prelude::*;

use super::*;

/// An event of a trace.
#[derive(Clone, Debug)]
enum Event {
    Join(u64, bool),
    Leave(usize),
    Demand(usize, u64),
    /// The quarters of the limit that are there to divide.
    Budget(u64),
    /// Whether lower assignments are lost.
    LoseCuts(bool),
    /// Number of ticks.
    Pass(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3_000_u64, any::<bool>()).prop_map(|(demand, again)| Event::Join(demand, again)),
        (0..12_usize).prop_map(Event::Leave),
        (0..12_usize, 0..3_000_u64).prop_map(|(index, demand)| Event::Demand(index, demand)),
        (0..5_u64).prop_map(Event::Budget),
        any::<bool>().prop_map(Event::LoseCuts),
        prop_oneof![1..8_u32, 8..120_u32].prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// [`Simulation::step`] compares the rates that may be in use with the budget at every step.
    #[test]
    fn assigned_rates_never_exceed_the_limit(
        requests in prop_oneof![1..20_u64, 20..2_000_u64],
        events in prop::collection::vec(event(), 1..40),
    ) {
        let (mut simulation, bucket) = Simulation::new(requests);
        for event in events {
            match event {
                Event::Join(demand, again) if simulation.holders.len() < 12 => {
                    simulation.join(bucket, demand, if again { REPORT } else { 0 });
                }
                Event::Leave(index) if index < simulation.holders.len() => simulation.leave(index),
                Event::Demand(index, demand) if index < simulation.holders.len() => {
                    simulation.holders[index].demand = demand;
                }
                Event::Budget(quarters) => {
                    let &(level, limit, _) = &simulation.limits[0];
                    simulation.divider.set_budget(level, limit / 4 * quarters, simulation.now);
                }
                Event::LoseCuts(loses_cuts) => simulation.loses_cuts = loses_cuts,
                Event::Pass(ticks) => (0..ticks).for_each(|_| simulation.step()),
                _ => {}
            }
        }
        let seconds = simulation.now as f64 / SECOND as f64;
        // A full token bucket counts against the limit for the fill time after its start.
        let fill = simulation.divider.steps(bucket).unwrap().fill_seconds as Micros * SECOND;
        let starts = simulation.holders.iter().flat_map(|holder| &holder.starts);
        let bursts: u64 = starts.filter(|(at, _)| at + fill + LAG > simulation.now).map(|(_, burst)| burst).sum();
        let max = requests as f64 * seconds + bursts as f64 + 1.0;
        prop_assert!(simulation.admitted() <= max, "{} of {max}", simulation.admitted());
        // Lasting demand is divided fairly.
        let &(level, limit, _) = &simulation.limits[0];
        simulation.divider.set_budget(level, limit, simulation.now);
        simulation.loses_cuts = false;
        simulation.run(40);
        let living: Vec<_> = simulation.holders.iter().filter(|holder| !holder.has_left).collect();
        let assigned: u64 = living.iter().map(|holder| holder.rate).sum();
        // With a longer fill time the bursts still count.
        if simulation.divider.steps(bucket).unwrap().fill_seconds == 1 && !living.is_empty() {
            prop_assert!(assigned >= limit - limit / 32, "{} of {}", assigned, limit);
        }
        // Each holder demands a tenth more than its hits.
        let fair = max_min(requests, &living.iter().map(|holder| holder.demand * 11 / 10).collect::<Vec<_>>());
        for (holder, fair) in living.iter().zip(fair) {
            // Allows for the hysteresis, the steps, and the floors of the others.
            let min = (fair as f64 * 0.95 - 1.0) * REQUEST as f64;
            prop_assert!(holder.rate as f64 >= min, "{} of {fair} among {:?}", holder.rate, simulation.rates());
        }
    }
}
