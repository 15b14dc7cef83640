//! State identity among the limits of one node.

use super::super::{Limit, Origin, identify};
use crate::{
    algorithm::{Bounds, LIST, Params},
    testing::{Random, cases, parse},
};

/// A limit as written: name, shadow mode, parameters.
type Written = (Option<&'static str>, bool, Params);

fn idents(written: &[Written]) -> Vec<Vec<u8>> {
    let made = written.iter().enumerate().map(|(index, (name, shadow, params))| {
        let ordinal = written[..index].iter().filter(|(.., other)| other.name() == params.name()).count();
        Limit::new(Origin::Policy, *name, "*", ordinal, *shadow, params.clone())
    });
    let mut limits: Vec<_> = made.collect();
    identify(&mut limits);
    limits.iter().map(|limit| limit.ident().to_vec()).collect()
}

fn alone(limit: &Written) -> Vec<u8> {
    idents(std::slice::from_ref(limit)).remove(0)
}

/// Generates up to six limits of one algorithm, all with different parameters; few have a name.
fn siblings(random: &mut Random) -> Vec<Written> {
    let entry = &LIST[random.below(LIST.len())];
    let parse = |fields: &&[(&str, &str)]| (entry.parse)(fields, &Bounds::default()).unwrap();
    let mut names = ["a", "b"].into_iter();
    let mut all: Vec<Written> = Vec::new();
    for params in entry.examples.iter().map(parse) {
        let params = params.scale(random.pick(&[1.0, 2.0, 0.5])).unwrap_or(params);
        let name = if random.once_in(6) { names.next() } else { None };
        if all.len() < 6 && random.once_in(2) && all.iter().all(|(.., other)| *other != params) {
            all.insert(random.below(all.len() + 1), (name, random.once_in(4), params));
        }
    }
    all
}

#[test]
fn sibling_limits_have_distinct_idents_in_any_order() {
    cases(2_000, |random| {
        let mut random = random.clone();
        let mut written = siblings(&mut random);
        let before = idents(&written);
        for (index, ident) in before.iter().enumerate() {
            assert!(!before[..index].contains(ident), "two have one count: {written:?}");
            let is_named = written[index].0.is_some();
            assert!(!is_named || *ident == alone(&written[index]), "a name does not suffice: {written:?}");
        }
        let mut moved: Vec<_> = written.iter().cloned().zip(before).collect();
        for index in (1..moved.len()).rev() {
            moved.swap(index, random.below(index + 1));
        }
        written = moved.iter().map(|(limit, _)| limit.clone()).collect();
        let after = idents(&written);
        assert!(moved.iter().map(|(_, ident)| ident).eq(&after), "the order matters: {moved:?} {after:?}");
    });
}

#[test]
fn removing_a_limit_moves_only_the_count_of_its_successor() {
    let mut kept = 0;
    cases(2_000, |random| {
        let mut random = random.clone();
        let mut written = siblings(&mut random);
        if written.is_empty() {
            return;
        }
        let mut before = idents(&written);
        let index = random.below(written.len());
        let (gone, ident) = (written.remove(index), before.remove(index));
        let is_first = gone.0.is_none() && ident == alone(&gone);
        for ((limit, before), after) in written.iter().zip(before).zip(idents(&written)) {
            let apart = |limit: &Written| (limit.2.time_base(), limit.2.sibling_period());
            let may_move = is_first && limit.2.time_base() == gone.2.time_base();
            if gone.0.is_some() || !(may_move || apart(limit) == apart(&gone)) {
                assert_eq!(before, after, "{limit:?} moves without {gone:?}");
                kept += 1;
            }
        }
    });
    assert!(kept > 1_000, "{kept}");
}

#[test]
fn a_single_limit_is_identified_by_algorithm_and_time_base() {
    for entry in LIST {
        let parse = |fields: &&[(&str, &str)]| (None, false, (entry.parse)(fields, &Bounds::default()).unwrap());
        let all: Vec<Written> = entry.examples.iter().map(parse).collect();
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
            assert_eq!(alone(one) == alone(other), one.2.time_base() == other.2.time_base(), "{one:?}, {other:?}");
        }
    }
}

#[test]
fn the_longest_enforced_period_is_numbered_first() {
    let gcra = |period| parse("gcra", &[("burst", "9"), ("count", "10"), ("period", period)]);
    let window = |count| parse("fixed_window", &[("count", count), ("period", "1m")]);
    let written = [
        (None, false, gcra("1s")),
        (None, true, gcra("1d")),
        (None, false, gcra("1h")),
        (None, false, window("100")),
        (None, true, window("9")),
        (None, false, window("50")),
        (Some("x"), false, window("5")),
    ];
    let texts: Vec<_> =
        idents(&written).iter().map(|ident| String::from_utf8_lossy(&ident[1..]).into_owned()).collect();
    let minute = "pfixed_window60000000";
    assert_eq!(texts[..3], ["pgcra1000000#0", "pgcra86400000000#0", "pgcra#0"]);
    assert_eq!(
        texts[3..],
        [format!("{minute}#1"), format!("{minute}#2"), format!("{minute}#0"), format!("{minute}=x")]
    );
}
