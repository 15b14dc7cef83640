use std::{collections::HashSet, sync::Arc};

use smallvec::SmallVec;
use weir_core::{
    algorithm::Bounds,
    domain::{Clock, Key, ManualClock, Micros, time::SECOND},
    plan::Level,
};

use super::*;
use crate::Policy;

const POLICY: &str = "
schema:
  user:
    children:
      '*':
        limits: [{ token_bucket: { capacity: 10, count: 10, period: 60s }, name: per-user }]
        children:
          trade: { limits: [{ fixed_window: { count: 4, period: 1h } }, { token_bucket: { capacity: 2, count: 2, period: 2s } }] }
";

fn policy() -> Policy {
    crate::parse(POLICY, &crate::Rules::default()).unwrap()
}

fn one(pattern: &str, change: Change) -> Override {
    let segments = pattern.split('/').filter(|segment| !segment.is_empty());
    Override {
        id: format!("{pattern}!").into(),
        domain: "".into(),
        pattern: segments.map(Into::into).collect(),
        change,
        reason: "a test".into(),
        author: "me".into(),
        set_at: 0,
        start: 0,
        end: None,
    }
}

fn limits(text: &str) -> Change {
    Change::Limits(LimitChanges::parse(text, &Bounds::default()).unwrap())
}

/// Returns the limits that a request meets: the maximum of each level, with `~` in shadow, and the
/// id of the override; for a ban its end.
fn met(overrides: Vec<Override>, key: &str, factor: f64) -> (Vec<String>, String) {
    met_at(overrides, key, factor, Arc::new(ManualClock::new(0)))
}

fn met_at(overrides: Vec<Override>, key: &str, factor: f64, clock: Arc<dyn Clock>) -> (Vec<String>, String) {
    let mut compiled = Overrides::new(clock);
    overrides.into_iter().for_each(|one| compiled.put(Arc::new(one)));
    let policy = policy().overridden(compiled);
    let key = Key::new("", &key.split('/').collect::<Vec<_>>()).unwrap();
    let mut levels = policy.domain("").unwrap().levels(&key, 1, factor).unwrap();
    let active = policy.overrides().active("", key.segments());
    let by = match &active {
        None => String::new(),
        Some(active) => match active.ban() {
            Some(ban) => format!("{} {:?}", ban.id, ban.ban.unwrap().ends_after),
            None => active.change(&mut levels, factor, false).map(|by| by.id.to_owned()).unwrap_or_default(),
        },
    };
    (shown(&levels), by)
}

fn shown(levels: &SmallVec<[Level<'_>; 4]>) -> Vec<String> {
    let most = |level: &Level<'_>| level.params().step(None, &level.peek()).0.limit;
    let shown = |level: &Level<'_>| format!("{}{}", most(level), if level.limit.shadow { "~" } else { "" });
    levels.iter().map(shown).collect()
}

#[test]
fn each_change_changes_the_levels_at_its_pattern_and_below() {
    let trade = "user/alex/trade";
    for (pattern, change, key, expected, by) in [
        ("", Change::Factor(0.5), trade, &["20", "8", "4"][..], "!"),
        ("user/alex", Change::Factor(0.5), trade, &["20", "8", "4"], "user/alex!"),
        ("user/alex/trade", Change::Factor(0.5), trade, &["10", "8", "4"], "user/alex/trade!"),
        ("user/alex", Change::Factor(0.5), "user/sam/trade", &["10", "4", "2"], ""),
        ("user/*", Change::Shadow, trade, &["10~", "4~", "2~"], "user/*!"),
        ("user/alex", Change::Unlimited, trade, &[], "user/alex!"),
        ("user/alex/trade", Change::Unlimited, trade, &["10"], "user/alex/trade!"),
        ("user/alex/trade/eur", Change::Unlimited, trade, &["10", "4", "2"], ""),
        ("user/alex/trade/eur", Change::Unlimited, "user/alex/trade/eur", &["10", "4", "2"], ""),
        ("user/alex", Change::Ban, trade, &["10", "4", "2"], "user/alex! None"),
        (
            "user/*",
            limits("{ token_bucket: { capacity: 6, count: 1, period: 1s } }"),
            trade,
            &["6", "4", "6"],
            "user/*!",
        ),
        (
            "user/*",
            limits("[{ name: per-user, token_bucket: { capacity: 6, count: 1, period: 1s } }]"),
            trade,
            &["6", "4", "2"],
            "user/*!",
        ),
        (
            "user/*",
            limits("[{ name: per-user, fixed_window: { count: 5, period: 1s } }]"),
            trade,
            &["10", "4", "2"],
            "",
        ),
    ] {
        let of = met(vec![one(pattern, change.clone())], key, 1.0);
        assert_eq!(
            (of.0.iter().map(String::as_str).collect::<Vec<_>>(), &*of.1),
            (expected.to_vec(), by),
            "{pattern} {change:?}"
        );
    }
}

#[test]
fn factors_of_request_and_override_multiply() {
    assert_eq!(met(vec![one("user/alex", Change::Factor(0.1))], "user/alex", 0.5).0, ["200"]);
    assert_eq!(met(vec![one("user/alex", Change::Shadow)], "user/alex", 0.5).0, ["20~"]);
}

#[test]
fn the_longest_then_the_most_exact_pattern_acts_at_each_level() {
    let overrides = |patterns: &[(&str, f64)]| -> Vec<Override> {
        patterns.iter().map(|(pattern, factor)| one(pattern, Change::Factor(*factor))).collect()
    };
    for (patterns, expected, by) in [
        (&[("user/*", 0.5), ("user/alex", 0.1)][..], &["100", "40", "20"][..], "user/alex!"),
        (&[("*/alex", 0.5), ("user/*", 0.1)], &["100", "40", "20"], "user/*!"),
        (&[("user/alex", 0.5), ("user/*/trade", 0.1)], &["20", "40", "20"], "user/*/trade!"),
        (&[("user/*/trade", 0.5), ("user/alex/*", 0.1)], &["10", "40", "20"], "user/alex/*!"),
        (&[("", 0.5), ("user/alex/trade", 0.1)], &["20", "40", "20"], "user/alex/trade!"),
    ] {
        let of = met(overrides(patterns), "user/alex/trade", 1.0);
        assert_eq!(
            (of.0.iter().map(String::as_str).collect::<Vec<_>>(), &*of.1),
            (expected.to_vec(), by),
            "{patterns:?}"
        );
    }
}

#[test]
fn a_ban_acts_whatever_else_does() {
    let other = one("user/alex/trade", Change::Unlimited);
    assert_eq!(met(vec![other, one("user/*", Change::Ban)], "user/alex/trade", 1.0).1, "user/*! None");
}

#[test]
fn of_several_bans_the_one_that_lasts_longest_is_answered() {
    let ban = |pattern, end: Option<Micros>| Override { end, ..one(pattern, Change::Ban) };
    for (bans, expected) in [
        ([ban("user/alex", Some(60)), ban("user/alex/trade", None)], "user/alex/trade! None"),
        ([ban("user/alex", Some(60)), ban("user/*", None)], "user/*! None"),
        ([ban("user", Some(60)), ban("user/alex", Some(90))], "user/alex! Some(90)"),
        ([ban("user", None), ban("user/alex", Some(90))], "user! None"),
    ] {
        assert_eq!(met(bans.to_vec(), "user/alex/trade", 1.0).1, expected);
    }
}

#[test]
fn an_override_acts_from_its_start_to_its_end() {
    let clock = Arc::new(ManualClock::new(0));
    let ban = Override { start: 10 * SECOND, end: Some(20 * SECOND), ..one("user/alex", Change::Ban) };
    for (at, expected) in [
        (0, String::new()),
        (10 * SECOND, format!("user/alex! {:?}", Some(10 * SECOND))),
        (20 * SECOND - 1, format!("user/alex! {:?}", Some(1 as Micros))),
        (20 * SECOND, String::new()),
    ] {
        clock.set(at);
        assert_eq!(
            met_at(vec![ban.clone()], "user/alex", 1.0, Arc::clone(&clock) as Arc<dyn Clock>).1,
            expected,
            "{at}"
        );
    }
    // An override that was set without a start acts although the clock has stepped back.
    clock.set(0);
    let at_once = Override { set_at: ban.start, ..ban };
    let (_, active) = met_at(vec![at_once], "user/alex", 1.0, clock as Arc<dyn Clock>);
    assert_eq!(active, format!("user/alex! {:?}", Some(20 * SECOND)));
}

#[test]
fn a_changed_limit_keeps_its_counts_unless_its_time_base_is_another() {
    let policy = policy();
    let (_, per_user) = policy.limits().find(|(_, limit)| &*limit.name == "per-user").unwrap();
    for (change, same) in [
        (Change::Factor(0.1), true),
        (Change::Shadow, true),
        (limits("{ token_bucket: { capacity: 6, count: 1, period: 1s } }"), true),
    ] {
        let changed = change.of(per_user).unwrap();
        assert_eq!(changed.ident() == per_user.ident(), same, "{change:?}");
        assert_eq!((&changed.name, changed.index), (&per_user.name, per_user.index));
    }
}

#[test]
fn a_factor_that_leaves_the_bounds_changes_nothing() {
    assert_eq!(met(vec![one("user/alex", Change::Factor(1e-6))], "user/alex/trade", 1.0).0[1], "4000000");
    let tiny = one("user/alex", Change::Factor(1e6));
    let effects = effects(&policy(), &tiny);
    assert!(effects.iter().all(|effect| effect.before != effect.after), "{effects:?}");
}

#[test]
fn effects_list_the_changed_limits_below_the_pattern() {
    let effects_of = |pattern: &str, change| -> Vec<_> {
        effects(&policy(), &one(pattern, change)).into_iter().map(|effect| (effect.limit, effect.after)).collect()
    };
    assert_eq!(effects_of("user/alex", Change::Ban).len(), 3);
    assert_eq!(effects_of("user/alex/read", Change::Ban), []);
    let unmet =
        "[{ name: nope, gcra: { burst: 1, count: 1, period: 1s } }, { smooth_bursty: { count: 1, period: 1s } }]";
    assert_eq!(effects_of("user/alex", limits(unmet)), []);
    let [fixed, bucket] = &effects_of("user/*/trade", Change::Factor(0.5))[..] else { panic!("two limits") };
    assert_eq!((&*fixed.0, &*fixed.1), ("user/*/trade#fixed_window0", "fixed_window { count: 8, period: 1h }"));
    assert_eq!(
        (&*bucket.0, &*bucket.1),
        ("user/*/trade#token_bucket0", "token_bucket { capacity: 4, count: 4, period: 2s }")
    );
}

#[test]
fn any_segment_is_every_child_of_the_policy() {
    let limits = "limits: [{ name: most, fixed_window: { count: 3, period: 1h } }]";
    let policy = format!(
        "schema: {{ user: {{ children: {{ alex: {{ {limits}, children: {{ trade: {{ {limits} }} }} }}, sam: {{ {limits} }}, '*': {{ \
         children: {{ trade: {{ {limits} }} }} }} }} }} }}"
    );
    let policy = crate::parse(&policy, &crate::Rules::default()).unwrap();
    for (pattern, expected) in [("user/*", 4), ("user/*/trade", 2), ("*/alex", 2), ("user/tom", 1), ("*/*/*/*", 0)] {
        assert_eq!(effects(&policy, &one(pattern, Change::Unlimited)).len(), expected, "{pattern}");
    }
    let limits = (1..=16).map(|burst| format!("[{burst}, 1, 60]")).collect::<Vec<_>>().join(", ");
    let policy = ["a", "b", "c"].map(|name| format!("{name}: {{ limits: [{limits}] }}")).join(", ");
    let policy = crate::parse(&format!("schema: {{ {policy} }}"), &crate::Rules::default()).unwrap();
    assert_eq!(effects(&policy, &one("", Change::Unlimited)).len(), MAX_EFFECTS);
}

#[test]
fn changed_limits_share_no_state() {
    let text = "schema: { a: { limits: [{ fixed_window: { count: 5, period: 1s } }, { fixed_window: { count: 9, period: 1m } }] } }";
    let mut compiled = Overrides::new(Arc::new(ManualClock::new(0)));
    compiled.put(Arc::new(one("", limits("{ fixed_window: { count: 50, period: 1s } }"))));
    let policy = crate::parse(text, &crate::Rules::default()).unwrap().overridden(compiled);
    let key = Key::new("", &["a"]).unwrap();
    let idents =
        |levels: &SmallVec<[Level<'_>; 4]>| -> Vec<_> { levels.iter().map(|it| it.limit.ident().to_vec()).collect() };
    let mut levels = policy.domain("").unwrap().levels(&key, 1, 1.0).unwrap();
    let before = idents(&levels);
    policy.overrides().active("", key.segments()).unwrap().change(&mut levels, 1.0, false);
    let after = idents(&levels);
    assert_eq!(before[0], after[0], "a limit of the same period keeps its state");
    assert!(!before.contains(&after[1]), "{after:?}");
}

#[test]
fn with_kept_the_states_that_limits_had_stay_in_the_plan() {
    let other_period = limits("{ fixed_window: { count: 9, period: 1d } }");
    let same_period = limits("{ fixed_window: { count: 9, period: 1h } }");
    let factor = Change::Factor(0.5);
    for (changes, kept, expected) in [
        (&[("user", other_period.clone())][..], false, &["10", "9", "2"][..]),
        (&[("user", other_period.clone())], true, &["10", "9", "2", "4"]),
        (&[("user", same_period.clone())], true, &["10", "9", "2"]),
        (&[("user", Change::Unlimited)], true, &["10", "4", "2"]),
        (&[("user", other_period.clone()), ("user/alex", Change::Ban)], true, &["10", "9", "2", "4"]),
        (&[("user/*", other_period.clone()), ("user/alex", Change::Ban)], true, &["10", "9", "2", "4"]),
        (&[("user", other_period.clone()), ("user/alex", factor.clone())], true, &["20", "8", "4", "9"]),
        (&[("user/*", other_period.clone()), ("user/alex", factor.clone())], true, &["20", "8", "4", "9"]),
        (&[("user/*", other_period.clone()), ("user/alex", factor)], false, &["20", "8", "4"]),
        (&[("user", other_period.clone()), ("user/alex", Change::Unlimited)], true, &["10", "4", "2", "9"]),
        (&[("user", other_period.clone()), ("user/alex", other_period.clone())], true, &["10", "9", "2", "4"]),
        (&[("user", other_period), ("user/alex", same_period)], true, &["10", "9", "2", "9"]),
    ] {
        let mut compiled = Overrides::new(Arc::new(ManualClock::new(0)));
        changes.iter().for_each(|(pattern, change)| compiled.put(Arc::new(one(pattern, change.clone()))));
        let policy = policy().overridden(compiled);
        let key = Key::new("", &["user", "alex", "trade"]).unwrap();
        let mut levels = policy.domain("").unwrap().levels(&key, 1, 1.0).unwrap();
        policy.overrides().active("", key.segments()).unwrap().change(&mut levels, 1.0, kept);
        assert_eq!(shown(&levels), expected, "{changes:?} {kept}");
        let states: HashSet<_> = levels.iter().map(|level| level.limit.ident()).collect();
        assert_eq!(states.len(), levels.len(), "each state once: {changes:?} {kept}");
    }
}

#[test]
fn the_other_states_of_a_limit_in_a_plan_are_bounded() {
    let path = ["a", "b", "c", "d", "e"];
    let limit = "limits: [{ fixed_window: { count: 4, period: 1h } }]".to_owned();
    let node = path.iter().rev().fold(limit, |below, name| format!("children: {{ {name}: {{ {below} }} }}"));
    let policy = crate::parse(&node.replacen("children", "schema", 1), &crate::Rules::default()).unwrap();
    let mut compiled = Overrides::new(Arc::new(ManualClock::new(0)));
    // All patterns of five segments that match the key, each with a time base of its own.
    for mask in 0..1 << path.len() {
        let segments = path.iter().enumerate().map(|(at, name)| if mask >> at & 1 == 1 { *name } else { "*" });
        let change = limits(&format!("{{ fixed_window: {{ count: 9, period: {}h }} }}", mask + 2));
        compiled.put(Arc::new(one(&segments.collect::<Vec<_>>().join("/"), change)));
    }
    let (policy, key) = (policy.overridden(compiled), Key::new("", &path).unwrap());
    let mut levels = policy.domain("").unwrap().levels(&key, 1, 1.0).unwrap();
    policy.overrides().active("", key.segments()).unwrap().change(&mut levels, 1.0, true);
    assert_eq!(levels.len(), 1 + 16);
}

#[test]
fn aliases_in_limits_are_bounded() {
    let mut text = "a: &a [x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, before) in [("b", "a"), ("c", "b"), ("d", "c")] {
        text += &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 8].join(", "));
    }
    let error = LimitChanges::parse(&text, &Bounds::default()).unwrap_err().to_string();
    assert!(error.contains("more than 2000 values"), "{error}");
}

#[test]
fn a_stored_bucket_that_becomes_two_limits_stays_in_force() {
    let bucket = "{ max: 600, duration: 3600000, minInterval: 1500 }";
    assert!(LimitChanges::parse(bucket, &Bounds::default()).is_err());
    let stored = LimitChanges::parse_stored(bucket, &Bounds::default()).unwrap();
    assert_eq!(stored.targets().collect::<Vec<_>>(), [(None, "leaky_bucket"), (None, "gcra")]);
    let twice = "[{ gcra: [0, 1, 1] }, { gcra: [0, 1, 2] }]";
    assert!(LimitChanges::parse_stored(twice, &Bounds::default()).is_err());
}

#[test]
fn bounds_name_the_field() {
    let long = "x".repeat(1_025);
    for (change, field) in [
        (Override { pattern: vec!["a".into(); 33].into(), ..one("", Change::Ban) }, "key"),
        (Override { pattern: ["a".into(), "".into()].into(), ..one("", Change::Ban) }, "key[1]"),
        (one(&long, Change::Ban), "key[0]"),
        (Override { domain: long.as_str().into(), ..one("", Change::Ban) }, "domain"),
        (Override { reason: "".into(), ..one("", Change::Ban) }, "reason"),
        (Override { reason: long.as_str().into(), ..one("", Change::Ban) }, "reason"),
        (one("", Change::Factor(0.0)), "factor"),
        (one("", Change::Factor(f64::NAN)), "factor"),
        (Override { end: Some(0), ..one("", Change::Ban) }, "end"),
    ] {
        assert_eq!(change.check_bounds().unwrap_err().field(), field);
    }
    for text in
        ["", "[]", "7", "{ gcra: { burst: 5 } }", "{ name: x }", "{ gcra: [1], depth: 2 }", "{", &"[".repeat(20_000)]
    {
        assert_eq!(LimitChanges::parse(text, &Bounds::default()).unwrap_err().field(), "limits", "{text}");
    }
    let gcra = "gcra: { burst: 0, count: 1, period: 1s }";
    let never = "limits[1] never applies, since limits[0] is for the same limits: name them";
    let long = format!("{{ {gcra} }} # {}", "x".repeat(MAX_LIMITS_BYTES));
    for (text, expected) in [
        (long, "limits can have at most 16384 bytes"),
        (format!("{{ {gcra}, shadow: true }}"), "limits[0] changes parameters alone, not `shadow` or `lease`"),
        (format!("[{{ {gcra} }}, {{ {gcra}, name: a }}]"), never),
        (format!("[{{ {gcra}, name: a }}, {{ {gcra}, name: a }}]"), never),
        (format!("[{{ {gcra}, name: a }}, {{ {gcra} }}]"), ""),
        ("{ max: 600, duration: 3600000, minInterval: 1500, name: a }".to_owned(), ""),
        ("{ max: 600, duration: 3600000 }".to_owned(), ""),
        (
            "[{ max: 600, duration: 3600000, minInterval: 1500 }]".to_owned(),
            "limits[0] is two limits, and the second would change every gcra: add the bucket's `name` in the policy; if it \
             has none, write both with the names that `weir limits explain` prints: [{ name: …, leaky_bucket: { size: 600, \
             drip_rate: 6s } }, { name: …, gcra: { burst: 0, count: 1, period: 1500ms } }]",
        ),
    ] {
        let error = LimitChanges::parse(&text, &Bounds::default()).err();
        assert_eq!(error.map(|error| error.to_string()).unwrap_or_default(), expected, "{text}");
    }
}
