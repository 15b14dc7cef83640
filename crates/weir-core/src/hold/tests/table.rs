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
    limit: (u64, u64),
    holders: usize,
    load: Load,
    faults: Faults,
    /// Lower bounds: thousandths of the units that one exact limiter admits, and checks per call.
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
    row("4 holders x 3,000/s, limit ample", (20_000, 20_000), 4, Load::Planned(|_, _| 3_000), (999, 100)),
    row("4 x 3,000/s at 10,000/s", (10_000, 10_000), 4, Load::Planned(|_, _| 3_000), (996, 100)),
    row("3 times over 5,000/s, burst 1 s", (5_000, 5_000), 4, Load::Planned(|_, _| 3_750), (995, 18)),
    row("3 times over 5,000/s, burst 0.1 s", (5_000, 500), 4, Load::Planned(|_, _| 3_750), (995, 16)),
    row(
        "90/10, the large one moves each second",
        (10_000, 10_000),
        2,
        Load::Planned(|holder, at| if (at / SECOND) as usize % 2 == holder { 10_800 } else { 1_200 }),
        (995, 100),
    ),
    row("16 holders at 1.2 times", (10_000, 10_000), 16, Load::Planned(|_, _| 750), (996, 30)),
    row("64 holders x 250/s, limit ample", (30_000, 30_000), 64, Load::Planned(|_, _| 250), (999, 10)),
    row(
        "bursts of 8,000/s, one holder at a time",
        (7_000, 700),
        4,
        Load::Planned(|holder, at| if (at / 200_000) as usize % 4 == holder { 8_000 } else { 0 }),
        (985, 8),
    ),
    Row {
        faults: Faults { crash_every: 166_000, ..FAIR },
        ..row("6 crashes a second at 1.2 times", (10_000, 10_000), 4, Load::Planned(|_, _| 3_000), (960, 23))
    },
];

/// Returns a row without faults, for a limit of units a second and units in a burst.
const fn row(name: &'static str, limit: (u64, u64), holders: usize, load: Load, min: (u64, u64)) -> Row {
    Row { name, limit, holders, load, faults: FAIR, min }
}

const LENGTH: Micros = 4 * SECOND;

#[test]
fn a_fleet_gets_what_one_limiter_would_give() {
    let mut worse = Vec::new();
    for row in ROWS {
        let (params, definition) = bucket(row.limit.0, row.limit.1);
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
