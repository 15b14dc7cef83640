//! The share of a limit that a fleet of holders uses, compared with one exact limiter, and the checks per call of the
//! store.

use super::{
    model::{assert_within, run},
    simulation::{Case, Faults, Load},
};
use crate::{
    domain::{Micros, time::SECOND},
    testing::{Random, bucket, cases},
};

struct Row {
    name: &'static str,
    rate: u64,
    capacity: u64,
    holders: usize,
    load: Load,
    faults: Faults,
    /// Lower bounds: thousandths of what one exact limiter admits, and checks per call.
    min: (u64, u64),
}

pub(super) const FAIR: Faults = Faults {
    lose: 0,
    duplicate: 0,
    delay: 0,
    crash_every: 0,
    pause_every: 0,
    reset_every: 0,
    partition_every: 0,
    drift: true,
};

const ROWS: &[Row] = &[
    Row {
        name: "4 holders x 3,000/s, limit ample",
        rate: 20_000,
        capacity: 20_000,
        holders: 4,
        load: Load::Planned(|_, _| 3_000),
        faults: FAIR,
        min: (999, 100),
    },
    Row {
        name: "4 x 3,000/s at 10,000/s",
        rate: 10_000,
        capacity: 10_000,
        holders: 4,
        load: Load::Planned(|_, _| 3_000),
        faults: FAIR,
        min: (996, 100),
    },
    Row {
        name: "3 times over 5,000/s, burst 1 s",
        rate: 5_000,
        capacity: 5_000,
        holders: 4,
        load: Load::Planned(|_, _| 3_750),
        faults: FAIR,
        min: (995, 18),
    },
    Row {
        name: "3 times over 5,000/s, burst 0.1 s",
        rate: 5_000,
        capacity: 500,
        holders: 4,
        load: Load::Planned(|_, _| 3_750),
        faults: FAIR,
        min: (995, 16),
    },
    Row {
        name: "90/10, the large one moves each second",
        rate: 10_000,
        capacity: 10_000,
        holders: 2,
        load: Load::Planned(|holder, at| if (at / SECOND) as usize % 2 == holder { 10_800 } else { 1_200 }),
        faults: FAIR,
        min: (995, 100),
    },
    Row {
        name: "16 holders at 1.2 times",
        rate: 10_000,
        capacity: 10_000,
        holders: 16,
        load: Load::Planned(|_, _| 750),
        faults: FAIR,
        min: (996, 30),
    },
    Row {
        name: "64 holders x 250/s, limit ample",
        rate: 30_000,
        capacity: 30_000,
        holders: 64,
        load: Load::Planned(|_, _| 250),
        faults: FAIR,
        min: (999, 10),
    },
    Row {
        name: "bursts of 8,000/s, one holder at a time",
        rate: 7_000,
        capacity: 700,
        holders: 4,
        load: Load::Planned(|holder, at| if (at / 200_000) as usize % 4 == holder { 8_000 } else { 0 }),
        faults: FAIR,
        min: (985, 8),
    },
    Row {
        name: "6 crashes a second at 1.2 times",
        rate: 10_000,
        capacity: 10_000,
        holders: 4,
        load: Load::Planned(|_, _| 3_000),
        faults: Faults { crash_every: 166_000, ..FAIR },
        min: (960, 23),
    },
];

const LENGTH: Micros = 4 * SECOND;

#[test]
fn a_fleet_gets_what_one_limiter_would_give() {
    let mut worse = Vec::new();
    for row in ROWS {
        let (params, definition) = bucket(row.rate, row.capacity);
        let case = Case {
            params: vec![params],
            holders: row.holders,
            load: row.load,
            length: LENGTH,
            faults: row.faults,
            mutation: None,
        };
        cases(1, |seed: &Random| {
            let outcome = run(&case, seed);
            assert_within(&case, &[definition], &outcome);
            let admitted = outcome.admitted.len() as u64;
            let figures = (admitted * 1_000 / outcome.exact, outcome.checks / outcome.calls);
            println!(
                "{}: {} checks, {admitted} admitted, {:.1} % of one limiter, {} checks a call",
                row.name,
                outcome.checks,
                admitted as f64 * 100.0 / outcome.exact as f64,
                figures.1
            );
            worse.extend((figures.0 < row.min.0 || figures.1 < row.min.1).then_some((row.name, figures)));
        });
    }
    assert!(worse.is_empty(), "{worse:?}");
}
