//! `charge: over_limit_only`: the behaviour of envoyproxy/ratelimit with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT.

use std::{collections::HashMap, sync::Arc};

use futures_util::FutureExt;
use weir::{limiter::Limiter, telemetry::Metrics};
use weir_core::{domain::ManualClock, testing::cases};

use super::{
    stores,
    table::{START, ask, policy},
};

pub const TABLE: &str = "
domain: d
charge: over_limit_only
descriptors:
  - { key: key2, rate_limit: { unit: minute, requests_per_unit: 20 } }
  - { key: key3, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: key4, rate_limit: { unit: hour, requests_per_unit: 15 } }
  - { key: key5, rate_limit: { unit: hour, requests_per_unit: 14 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
= what is not over is not charged beside what is, as in their unit test
0 | key4=v *10; key5=v *10 | pass OK 15/hour 5 3600s; OK 14/hour 4 3600s
0 | key4=v; key5=v | pass OK 15/hour 4 3600s; OK 14/hour 3 3600s
0 | key4=v *2; key5=v *2 | pass OK 15/hour 2 3600s; OK 14/hour 1 3600s
0 | key4=v *2; key5=v *2 | refuse OK 15/hour 2 3600s; OVER 14/hour 0 3600s
0 | key4=v *0; key5=v *0 | refuse OK 15/hour 2 3600s; OVER 14/hour 0 3600s
= the remaining limit stays, as in their integration test
0 | key2=v *10; key3=v *10 | pass OK 20/minute 10 60s; OK 10/hour 0 3600s
0 | key2=v; key3=v | refuse OK 20/minute 10 60s; OVER 10/hour 0 3600s
0 | key2=v; key3=v | refuse OK 20/minute 10 60s; OVER 10/hour 0 3600s
0 | key2=v | pass OK 20/minute 9 60s
= the hit that overflows is charged
0 | key3=v *8 | pass OK 10/hour 2 3600s
0 | key3=v *3; key2=v | refuse OVER 10/hour 0 3600s; OK 20/minute 20 60s
0 | key3=v | refuse OVER 10/hour 0 3600s
3600 | key3=v | pass OK 10/hour 9 3600s
= all that are over are charged
0 | key2=v *21; key3=v *11; key4=v | refuse OVER 20/minute 0 60s; OVER 10/hour 0 3600s; OK 15/hour 15 3600s
0 | key2=v | refuse OVER 20/minute 0 60s
0 | key3=v | refuse OVER 10/hour 0 3600s
= the same descriptor twice is read before it is charged
0 | key3=v *9 | pass OK 10/hour 1 3600s
0 | key3=v; key3=v | refuse OK 10/hour 0 3600s; OVER 10/hour 0 3600s
0 | key3=w *8 | pass OK 10/hour 2 3600s
0 | key3=w; key3=w *5 | refuse OK 10/hour 2 3600s; OVER 10/hour 0 3600s
0 | key3=u *8 | pass OK 10/hour 2 3600s
0 | key3=u *5; key3=u | refuse OVER 10/hour 0 3600s; OVER 10/hour 0 3600s
= a shadow that is over keeps the others from being charged
0 | shadow=v; key2=v | pass OK 1/minute 0 60s; OK 20/minute 19 60s
0 | shadow=v; key2=v | pass OK 1/minute 0 60s; OK 20/minute 19 60s
= overrides are limits like others
0 | key3=v limit 0/day; key2=v | refuse OVER 0/day 0 86400s; OK 20/minute 20 60s
";

/// The algorithm of envoyproxy/ratelimit: all counts are read; if some hits exceed their limits, only these are added.
fn theirs(counts: &mut HashMap<&'static str, u64>, asked: &[(&'static str, u64)]) -> String {
    let limit = |key: &str| match key {
        "key2" => 20,
        "key3" => 10,
        "key4" => 15,
        _ => 14,
    };
    let unit = |key: &str| if key == "key2" { ("minute", 60) } else { ("hour", 3600) };
    let near: Vec<bool> = asked.iter().map(|(key, hits)| counts.get(key).unwrap_or(&0) + hits > limit(key)).collect();
    let is_near = near.contains(&true);
    let mut statuses = Vec::new();
    for ((key, hits), near) in asked.iter().zip(near) {
        let count = counts.entry(key).or_default();
        *count += if near || !is_near { *hits } else { 0 };
        let ((unit, reset), limit) = (unit(key), limit(key));
        let (code, left) = if *count > limit { ("OVER", 0) } else { ("OK", limit - *count) };
        statuses.push(format!("{code} {limit}/{unit} {left} {reset}s"));
    }
    let overall = if statuses.iter().any(|status| status.starts_with("OVER")) { "refuse" } else { "pass" };
    format!("{overall} {}", statuses.join("; "))
}

#[test]
fn random_requests_are_charged_as_by_envoyproxy_ratelimit() {
    let (file, _) = TABLE.split_once("\n= ").expect("cases");
    cases(300, |seed| {
        let mut random = seed.clone();
        let clock = Arc::new(ManualClock::default());
        clock.set(START);
        let limiter = Limiter::new(stores::memory(clock), policy(&[file]), Metrics::new());
        let mut counts = HashMap::new();
        for _ in 0..12 {
            let count = 1 + random.below(4);
            let mut one = || (random.pick(&["key2", "key3", "key4", "key5"]), random.below(6) as u64);
            let asked: Vec<_> = (0..count).map(|_| one()).collect();
            let request: Vec<_> = asked.iter().map(|(key, hits)| format!("{key}=v *{hits}")).collect();
            let answer = ask(&limiter, &request.join("; ")).now_or_never().expect("memory answers at once");
            assert_eq!(answer, theirs(&mut counts, &asked), "{request:?}");
        }
    });
}
