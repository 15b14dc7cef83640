//! Extensions of their file format, and domains in the native format.

pub const MORE: &str = "
domain: d
descriptors:
  - { key: half, rate_limit: { period: 30s, requests_per_unit: 2 } }
  - { key: five, rate_limit: { unit: minute, unit_multiplier: 5, requests_per_unit: 2 } }
  - { key: sixty, rate_limit: { period: 60s, requests_per_unit: 2 } }
  - { key: burst, rate_limit: { unit: second, requests_per_unit: 1, algorithm: gcra, burst: 1 } }
  - { key: bucket, rate_limit: { algorithm: { token_bucket: { capacity: 3, count: 1, period: 10s } } } }
  - { key: kind, rate_limit: { unit: minute, requests_per_unit: 2, algorithm: fixed_window } }
  - key: two
    rate_limit:
      - { unit: second, requests_per_unit: 2, name: burst }
      - { unit: hour, requests_per_unit: 3 }
  - key: either
    rate_limit:
      - { unit: minute, requests_per_unit: 1, name: old }
      - { unit: hour, requests_per_unit: 5 }
  - { key: new, rate_limit: { unit: minute, requests_per_unit: 9, replaces: [{ name: old }] } }
= a period of any length
0 | half=a *2 | pass OK 2/? 0 30s
29 | half=a | refuse OVER 2/? 0 1s
30 | half=a | pass OK 2/? 1 30s
= several units
0 | five=a *2 | pass OK 2/? 0 300s
299 | five=a | refuse OVER 2/? 0 1s
300 | five=a | pass OK 2/? 1 300s
= a period that is a unit is shown as one
0 | sixty=a | pass OK 2/minute 1 60s
= a burst instead of a window
0.5 | burst=a | pass OK 2/? 1 1s
0.5 | burst=a | pass OK 2/? 0 2s
0.5 | burst=a | refuse OVER 2/? 0 1s
0.5 | burst=a *0 | pass OK 2/? 0 2s
1.5 | burst=a | pass OK 2/? 0 2s
1.5 | burst=a *3 | refuse OVER 2/? 0 2s
= an algorithm in full
0 | bucket=a *3 | pass OK 3/? 0 30s
0 | bucket=a | refuse OVER 3/? 0 10s
10 | bucket=a | pass OK 3/? 0 30s
= an algorithm by name is as it is elsewhere
0 | kind=a *2 | pass OK 2/minute 0 60s
0 | kind=a *9 | refuse OVER 2/minute 0 60s
0 | kind=a *-1 | pass OK 2/minute 1 60s
= several limits on one descriptor are all counted, and the binding one is shown
0 | two=a | pass OK burst:2/second 1 1s
0 | two=a | pass OK burst:2/second 0 1s
0 | two=a | refuse OVER burst:2/second 0 1s
1 | two=a | refuse OVER 3/hour 0 3599s
2 | two=a *-3 | pass OK 3/hour 2 3598s
= of several limits those that are replaced do not count
0 | either=a | pass OK old:1/minute 0 60s
0 | either=a; new=a | pass OK 5/hour 3 3600s; OK 9/minute 8 60s
0 | either=a | refuse OVER old:1/minute 0 60s
";

pub const ALL: &str = "
domain: d
charge: all_or_nothing
descriptors:
  - { key: a, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: b, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: q, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: s, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
= all or nothing: a refusal charges nothing, what is denied neither
0 | a=1; b=1 | pass OK 3/minute 2 60s; OK 1/minute 0 60s
0 | a=1; b=1 | refuse OK 3/minute 2 60s; OVER 1/minute 0 60s
0 | a=1 *3 | refuse OVER 3/minute 2 60s
0 | a=1 *2 | pass OK 3/minute 0 60s
= all or nothing: twice the same must fit together
0 | a=1 *2; a=1 *2 | refuse OVER 3/minute 3 60s; OVER 3/minute 3 60s
0 | a=1 *2; a=1 | pass OK 3/minute 0 60s; OK 3/minute 0 60s
= all or nothing: a quota that is over stops no other
0 | q=1; a=1 | pass OK 1/minute 0 60s; OK 3/minute 2 60s
0 | q=1; q=2; a=1 | pass OVER 1/minute 0 60s; OK 1/minute 0 60s; OK 3/minute 1 60s
0 | q=1; q=2 | refuse OVER 1/minute 0 60s; OVER 1/minute 0 60s
= all or nothing: a shadow stops nothing, and is charged with the others
0 | s=1; a=1 | pass OK 1/minute 0 60s; OK 3/minute 2 60s
0 | s=1; a=1 | pass OK 1/minute 0 60s; OK 3/minute 1 60s
0 | s=2; a=1 *9 | refuse OK 1/minute 1 60s; OVER 3/minute 1 60s
0 | s=2 | pass OK 1/minute 0 60s
= all or nothing: overrides too
0 | a=1 limit 1/day; b=1 *2 | refuse OK 1/day 1 86400s; OVER 1/minute 1 60s
0 | a=1 limit 1/day *2 | refuse OVER 1/day 1 86400s
0 | a=1 limit 1/day | pass OK 1/day 0 86400s
";

/// A native domain: every limit on the path is charged.
pub const NATIVE: &str = "
domain: d
charge: independent
schema:
  user:
    children:
      '*':
        limits: [{ fixed_window: { count: 5, period: 1h }, name: per-user }]
        children:
          action:
            children:
              trade:
                limits: [{ gcra: { burst: 1, count: 1, period: 10s } }]
  watched:
    children:
      '*':
        limits: [{ fixed_window: { count: 1, period: 60s }, shadow: true }]
= in a native domain every limit on the way counts, and the binding one is shown
0 | user=a | pass OK per-user:5/hour 4 3600s
0 | user=a, action=trade | pass OK user/*/action/trade#gcra0:2/? 1 10s
0 | user=a, action=trade *2 | refuse OVER user/*/action/trade#gcra0:2/? 1 10s
0 | user=a, action=other | pass OK per-user:5/hour 0 3600s
0 | user=a, action=trade | refuse OVER per-user:5/hour 0 3600s
0 | user=b, action=trade, more=1 | pass OK user/*/action/trade#gcra0:2/? 1 10s
0 | team=b | pass OK -
= a native domain's counts are those of its own calls
0 | check user/a *2 | passed 3 left
0 | user=a | pass OK per-user:5/hour 2 3600s
0 | check user/a/action/trade | passed 1 left
= a native shadow stands outside
0 | watched=a *5 | pass OK -
0 | watched=a; user=a | pass OK -; OK per-user:5/hour 4 3600s
= an override in a native domain
0 | user=a limit 1/day *2 | refuse OVER 1/day 0 86400s
0 | user=a | pass OK per-user:5/hour 4 3600s
";

pub const NATIVE_ALL: &str = "
domain: d
schema:
  user: { children: { '*': { limits: [{ fixed_window: { count: 2, period: 60s } }] } } }
  path: { children: { '*': { limits: [{ fixed_window: { count: 1, period: 60s } }] } } }
= a native domain says itself what a refusal charges
0 | path=/; user=a | pass OK path/*#fixed_window0:1/minute 0 60s; OK user/*#fixed_window0:2/minute 1 60s
0 | path=/; user=a | refuse OVER path/*#fixed_window0:1/minute 0 60s; OK user/*#fixed_window0:2/minute 1 60s
0 | user=a | pass OK user/*#fixed_window0:2/minute 0 60s
= a native domain takes empty values
0 | user= | pass OK user/*#fixed_window0:2/minute 1 60s
0 | user= *2 | refuse OVER user/*#fixed_window0:2/minute 1 60s
";
