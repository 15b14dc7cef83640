//! Limits that never refuse what another limit admits.

use crate::{
    algorithm::Params,
    domain::StepInput,
    testing::{self, Random},
};

fn parse(name: &str, parameters: &[(&str, String)]) -> Params {
    let parameters: Vec<_> = parameters.iter().map(|(name, text)| (*name, text.as_str())).collect();
    testing::parse(name, &parameters)
}

/// Small limits of every algorithm that has a rate bound, of which many divide each other and many do not.
fn small() -> Vec<Params> {
    let mut all = Vec::new();
    for (count, period) in [1, 2, 5].into_iter().flat_map(|count| [3, 6, 10].map(|period| (count, period))) {
        let (count, period) = (count.to_string(), format!("{period}us"));
        let with = |more: &[(&'static str, &str)]| {
            let more = more.iter().map(|(name, text)| (*name, (*text).to_owned()));
            [("count", count.clone()), ("period", period.clone())].into_iter().chain(more).collect::<Vec<_>>()
        };
        for units in ["1", "2", "5", "11"] {
            all.push(parse("gcra", &with(&[("burst", units)])));
            all.push(parse("token_bucket", &with(&[("capacity", units)])));
        }
        for phase in ["true", "false"] {
            all.push(parse("fixed_window", &with(&[("per_key_phase", phase)])));
        }
        all.push(parse("sliding_log", &with(&[])));
        all.push(parse("sliding_log", &with(&[("min_interval", "2us")])));
        all.push(parse("fixed_window", &with(&[("charge_denied", "true")])));
    }
    all
}

/// Whether `child` refuses a request that `parent` admits, of a client that takes everything available. Other
/// clients, which `child` does not limit, use the parent too.
fn refuses(parent: &Params, child: &Params, random: &mut Random) -> bool {
    let mut below = |bound: usize| random.below(bound) as i64;
    let phases = [parent, child].map(|params| params.phase_period().map_or(0, |period| below(period as usize)));
    let (mut above, mut state, mut now) = (None, None, 1_000_000);
    for _ in 0..200 {
        let input = StepInput { now, cost: 1 + below(4) * below(2), max_wait: None, phase: phases[0] };
        let (decision, next) = parent.step(above.as_ref(), &input);
        if decision.allowed {
            if below(8) > 0 {
                let (decision, next) = child.step(state.as_ref(), &StepInput { phase: phases[1], ..input });
                if !decision.allowed {
                    return true;
                }
                state = next.or(state);
            }
            above = next.or(above);
        } else {
            now += 1 + below(2) * below(12);
        }
    }
    false
}

#[test]
fn an_idle_limit_never_refuses_what_the_other_one_admits() {
    let (all, mut random) = (small(), Random::new(7));
    let (mut implied, mut binding, mut missed) = (0, 0, 0);
    for (parent, child) in all.iter().flat_map(|parent| all.iter().map(move |child| (parent, child))) {
        let is_implied = child.is_implied_by(parent);
        let refuses = (0..4).any(|_| refuses(parent, child, &mut random));
        assert!(!(is_implied && refuses), "{} refuses beside {}", child.describe(), parent.describe());
        implied += u32::from(is_implied);
        binding += u32::from(refuses);
        missed += u32::from(!is_implied && !refuses);
    }
    // Limits that are neither implied nor found to bind: phases that may yet meet, and requests that were not tried.
    assert!(
        implied > 1_000 && binding > 4_000 && missed * 3 < implied,
        "{implied} implied, {binding} binding, {missed} neither"
    );
}

#[test]
fn rate_and_burst_are_both_compared() {
    let limit = |text: &str| {
        let (name, parameters) = text.split_once(' ').unwrap();
        let pair = |part: &str| part.split_once('=').map(|(name, text)| (name.to_owned(), text.to_owned())).unwrap();
        let parameters: Vec<_> = parameters.split(' ').map(pair).collect();
        let parameters: Vec<_> = parameters.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        parse(name, &parameters)
    };
    for (child, parent, expected) in [
        ("gcra burst=9 count=1 period=1s", "gcra burst=9 count=1 period=1s", true),
        ("gcra burst=9 count=60 period=1m", "token_bucket capacity=10 count=1 period=1s", true),
        // One of the two, rate or burst, is tighter.
        ("gcra burst=8 count=1 period=1s", "gcra burst=9 count=1 period=1s", false),
        ("gcra burst=99 count=59 period=1m", "gcra burst=9 count=1 period=1s", false),
        ("gcra burst=0 count=1 period=1ms", "fixed_window count=1000 period=1h", false),
        ("fixed_window count=60 period=1m", "gcra burst=0 count=1 period=1s", true),
        ("fixed_window count=59 period=1m", "gcra burst=0 count=1 period=1s", false),
        ("fixed_window count=60 period=1m", "gcra burst=1 count=1 period=1s", false),
        ("fixed_window count=100 period=1m", "fixed_window count=100 period=1m", true),
        ("fixed_window count=100 period=1m", "fixed_window count=100 period=1h", true),
        ("fixed_window count=5999 period=1h", "fixed_window count=100 period=1m", false),
        ("fixed_window count=6000 period=1h", "fixed_window count=100 period=1m", true),
        ("fixed_window count=6000 period=1h per_key_phase=true", "fixed_window count=100 period=1m", false),
        ("fixed_window count=6100 period=1h per_key_phase=true", "fixed_window count=100 period=1m", true),
        ("sliding_log count=100 period=1m", "fixed_window count=100 period=1m", false),
        ("sliding_log count=200 period=1m", "fixed_window count=100 period=1m", true),
        ("fixed_window count=100 period=1m", "sliding_log count=100 period=1m", true),
        ("token_bucket capacity=100 count=100 period=1m", "sliding_log count=100 period=1m", true),
        // Charged for requests that the other one refuses, and bound by more than a rate.
        ("fixed_window count=100 period=1m charge_denied=true", "fixed_window count=1 period=1m", false),
        ("fixed_window count=100 period=1m", "fixed_window count=1 period=1m charge_denied=true", true),
        ("sliding_log count=100 period=1m min_interval=1ms", "sliding_log count=1 period=1m", false),
        // These have no rate bound.
        ("sliding_window count=100 period=1m", "fixed_window count=1 period=1m", false),
        ("fixed_window count=100 period=1m", "cycle count=1 period=1m", false),
    ] {
        assert_eq!(limit(child).is_implied_by(&limit(parent)), expected, "{child} beside {parent}");
    }
}
