//! What is counted, and what is answered.

use super::table::Case;

const TEN: &str = "
domain: d
descriptors:
  - { key: k, rate_limit: { unit: minute, requests_per_unit: 10 } }
  - { key: zero, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: missing, rate_limit: { unit: minute } }
  - { key: most, rate_limit: { unit: hour, requests_per_unit: 4294967295 } }
  - { key: named, rate_limit: { name: by-name, unit: hour, requests_per_unit: 2 } }
";

const UNITS: &str = "
domain: d
descriptors:
  - { key: second, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: minute, rate_limit: { unit: Minute, requests_per_unit: 1 } }
  - { key: hour, rate_limit: { unit: HOUR, requests_per_unit: 1 } }
  - { key: day, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: week, rate_limit: { unit: week, requests_per_unit: 1 } }
  - { key: month, rate_limit: { unit: month, requests_per_unit: 1 } }
  - { key: year, rate_limit: { unit: year, requests_per_unit: 1 } }
";

const REPLACES: &str = "
domain: d
descriptors:
  - { key: a, rate_limit: { name: a, unit: minute, requests_per_unit: 5, replaces: [{ name: b }] } }
  - { key: b, rate_limit: { name: b, unit: minute, requests_per_unit: 1, replaces: [{ name: c }] } }
  - { key: c, rate_limit: { name: c, unit: minute, requests_per_unit: 1 } }
  - { key: free, rate_limit: { name: free, unlimited: true, replaces: [{ name: c }, { name: b }] } }
  - { key: eager, rate_limit: { unit: minute, requests_per_unit: 5, replaces: [{ name: free }, { name: nobody }] } }
";

const SOFT: &str = "
domain: d
descriptors:
  - { key: shadow, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: hard, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: q1, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: q2, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: both, quota_mode: true, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: free, rate_limit: { unlimited: true } }
";

const MORE: &str = "
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
";

const ALL: &str = "
domain: d
charge: all_or_nothing
descriptors:
  - { key: a, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: b, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: q, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: s, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
";

/// As ours are written: every limit on the way counts.
const NATIVE: &str = "
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
";

const NATIVE_ALL: &str = "
domain: d
schema:
  user: { children: { '*': { limits: [{ fixed_window: { count: 2, period: 60s } }] } } }
  path: { children: { '*': { limits: [{ fixed_window: { count: 1, period: 60s } }] } } }
";

pub const CASES: &[Case] = &[
    Case(
        "hits count down to the limit and no further",
        TEN,
        "0 | k=a | pass OK 10/minute 9 60s
         0.5 | k=a *8 | pass OK 10/minute 1 60s
         1 | k=a | pass OK 10/minute 0 59s
         59.5 | k=a | refuse OVER 10/minute 0 1s
         59.999999 | k=a | refuse OVER 10/minute 0 1s
         60 | k=a | pass OK 10/minute 9 60s",
    ),
    Case(
        "several hits at once pass if all of them fit",
        TEN,
        "0 | k=a *10 | pass OK 10/minute 0 60s\n0 | k=b *11 | refuse OVER 10/minute 0 60s",
    ),
    Case(
        "denied hits count",
        TEN,
        "0 | k=a *8 | pass OK 10/minute 2 60s
         0 | k=a *5 | refuse OVER 10/minute 0 60s
         0 | k=a | refuse OVER 10/minute 0 60s
         0 | k=a *-3 | pass OK 10/minute 0 60s
         0 | k=a | refuse OVER 10/minute 0 60s
         60 | k=a | pass OK 10/minute 9 60s",
    ),
    Case(
        "no hits peek: over only where more was counted than fits",
        TEN,
        "0 | k=a *0 | pass OK 10/minute 10 60s
         10 | k=a *10 | pass OK 10/minute 0 50s
         10 | k=a *0 | pass OK 10/minute 0 50s
         10 | k=a | refuse OVER 10/minute 0 50s
         10 | k=a *0 | refuse OVER 10/minute 0 50s
         60 | k=a *0 | pass OK 10/minute 10 60s",
    ),
    Case(
        "negative hits give back, to none at most, and always pass",
        TEN,
        "0 | k=a *-5 | pass OK 10/minute 10 60s
         0 | k=a *4 | pass OK 10/minute 6 60s
         0 | k=a *-1 | pass OK 10/minute 7 60s
         30 | k=a *-99 | pass OK 10/minute 10 30s
         30 | k=a *12 | refuse OVER 10/minute 0 30s
         30 | k=a *-3 | pass OK 10/minute 1 30s
         30 | k=a | pass OK 10/minute 0 30s",
    ),
    Case(
        "beyond 2^32 hits count as that",
        TEN,
        "0 | k=a *9223372036854775807 | refuse OVER 10/minute 0 60s
         0 | k=a *-9223372036854775808 | pass OK 10/minute 10 60s
         0 | most=a *9223372036854775807 | refuse OVER 4294967295/hour 0 3600s
         0 | most=a *-2 | pass OK 4294967295/hour 1 3600s",
    ),
    Case("a large limit is shown whole", TEN, "0 | most=a *4294967294 | pass OK 4294967295/hour 1 3600s"),
    Case(
        "a limit of none lets nothing through",
        TEN,
        "0 | zero=a | refuse OVER 0/minute 0 60s
         10 | zero=a *0 | refuse OVER 0/minute 0 50s
         10 | zero=b *0 | pass OK 0/minute 0 50s
         10 | zero=b *-1 | pass OK 0/minute 0 50s
         60 | zero=a | refuse OVER 0/minute 0 60s",
    ),
    Case("a number that is not said is none", TEN, "0 | missing=a | refuse OVER 0/minute 0 60s"),
    Case("a name is shown", TEN, "0 | named=a | pass OK by-name:2/hour 1 3600s"),
    Case(
        "the same descriptor twice counts twice, in order",
        TEN,
        "0 | k=a *4; k=a *4 | pass OK 10/minute 6 60s; OK 10/minute 2 60s
         0 | k=a *2; k=a | refuse OK 10/minute 0 60s; OVER 10/minute 0 60s
         0 | k=a *0; k=a *0 | refuse OVER 10/minute 0 60s; OVER 10/minute 0 60s",
    ),
    Case(
        "every descriptor is counted, whatever the others say",
        TEN,
        "0 | k=a *11; k=b; k=c | refuse OVER 10/minute 0 60s; OK 10/minute 9 60s; OK 10/minute 9 60s
         0 | k=b; k=a; x=y | refuse OK 10/minute 8 60s; OVER 10/minute 0 60s; OK -
         0 | k=b | pass OK 10/minute 7 60s",
    ),
    Case(
        "seconds",
        UNITS,
        "0.5 | second=a | pass OK 1/second 0 1s\n0.9 | second=a | refuse OVER 1/second 0 1s\n1 | second=a | pass OK 1/second 0 1s",
    ),
    Case(
        "minutes",
        UNITS,
        "1 | minute=a | pass OK 1/minute 0 59s\n59 | minute=a | refuse OVER 1/minute 0 1s\n60 | minute=a | pass OK 1/minute 0 60s",
    ),
    Case(
        "hours",
        UNITS,
        "0 | hour=a | pass OK 1/hour 0 3600s\n3599 | hour=a | refuse OVER 1/hour 0 1s\n3600 | hour=a | pass OK 1/hour 0 3600s",
    ),
    Case(
        "days",
        UNITS,
        "0 | day=a | pass OK 1/day 0 86400s\n86399 | day=a | refuse OVER 1/day 0 1s\n86400 | day=a | pass OK 1/day 0 86400s",
    ),
    Case(
        "weeks",
        UNITS,
        "0 | week=a | pass OK 1/week 0 604800s\n604799 | week=a | refuse OVER 1/week 0 1s\n604800 | week=a | pass OK 1/week 0 604800s",
    ),
    Case(
        "months",
        UNITS,
        "0 | month=a | pass OK 1/month 0 2592000s\n2591999 | month=a | refuse OVER 1/month 0 1s\n2592000 | month=a | pass OK 1/month 0 2592000s",
    ),
    Case(
        "years",
        UNITS,
        "0 | year=a | pass OK 1/year 0 31536000s\n31535999 | year=a | refuse OVER 1/year 0 1s\n31536000 | year=a | pass OK 1/year 0 31536000s",
    ),
    Case(
        "weeks begin where the epoch's do",
        UNITS,
        "-1 | week=a | pass OK 1/week 0 1s\n0 | week=a | pass OK 1/week 0 604800s",
    ),
    Case(
        "time until the reset is rounded up",
        UNITS,
        "0.000001 | minute=a | pass OK 1/minute 0 60s\n1.5 | minute=b | pass OK 1/minute 0 59s",
    ),
    Case(
        "an override stands in place of the rule, with a count of its own",
        TEN,
        "0 | k=a | pass OK 10/minute 9 60s
         0 | k=a limit 2/minute | pass OK 2/minute 1 60s
         0 | k=a limit 2/minute | pass OK 2/minute 0 60s
         0 | k=a limit 2/minute | refuse OVER 2/minute 0 60s
         0 | k=a | pass OK 10/minute 8 60s",
    ),
    Case(
        "an override counts by its unit, whatever its number",
        TEN,
        "0 | k=a limit 2/minute *2 | pass OK 2/minute 0 60s
         0 | k=a limit 2/hour | pass OK 2/hour 1 3600s
         0 | k=a limit 5/minute | pass OK 5/minute 2 60s
         0 | k=a limit 1/minute *0 | refuse OVER 1/minute 0 60s",
    ),
    Case(
        "an override needs no rule",
        TEN,
        "0 | x=y, z=1 limit 1/day | pass OK 1/day 0 86400s\n0 | x=y, z=2 limit 1/day | pass OK 1/day 0 86400s\n0 | x=y, z=1 limit 1/day | refuse OVER 1/day 0 86400s",
    ),
    Case("an override needs a domain", TEN, "0 | @e k=a limit 0/day | pass OK -"),
    Case("an override needs an entry", TEN, "0 | limit 0/day | pass OK -"),
    Case("an override of none lets nothing through", TEN, "0 | k=a limit 0/second | refuse OVER 0/second 0 1s"),
    Case(
        "an override takes refunds, and counts what is denied",
        TEN,
        "0 | k=a limit 2/day *3 | refuse OVER 2/day 0 86400s\n0 | k=a limit 2/day *-2 | pass OK 2/day 1 86400s",
    ),
    Case(
        "an override tells empty values apart",
        TEN,
        "0 | k= limit 1/day | pass OK 1/day 0 86400s\n0 | k=, = limit 1/day | pass OK 1/day 0 86400s\n0 | =k limit 1/day | pass OK 1/day 0 86400s\n0 | k= limit 1/day | refuse OVER 1/day 0 86400s",
    ),
    Case(
        "an override is not softened by its rule",
        SOFT,
        "0 | shadow=a limit 0/day | refuse OVER 0/day 0 86400s\n0 | q1=a limit 0/day; q2=a | refuse OVER 0/day 0 86400s; OK 2/minute 1 60s\n0 | free=a limit 0/day | refuse OVER 0/day 0 86400s",
    ),
    Case(
        "an override has no name, and replaces nothing",
        REPLACES,
        "0 | a=1 limit 3/day; b=1 | pass OK 3/day 2 86400s; OK b:1/minute 0 60s\n0 | a=2; b=2 limit 1/day | pass OK a:5/minute 4 60s; OK 1/day 0 86400s",
    ),
    Case(
        "an override and its rule count apart in one request",
        TEN,
        "0 | k=a; k=a limit 10/minute | pass OK 10/minute 9 60s; OK 10/minute 9 60s",
    ),
    Case(
        "a limit that is replaced is neither counted nor shown",
        REPLACES,
        "0 | a=1; b=1 | pass OK a:5/minute 4 60s; OK -
         0 | b=1; a=1 | pass OK -; OK a:5/minute 3 60s
         0 | b=1 | pass OK b:1/minute 0 60s
         0 | b=1 | refuse OVER b:1/minute 0 60s
         0 | b=1; a=1 | pass OK -; OK a:5/minute 2 60s",
    ),
    Case(
        "what is replaced replaces all the same",
        REPLACES,
        "0 | a=1; b=1; c=1 | pass OK a:5/minute 4 60s; OK -; OK -",
    ),
    Case(
        "what only another request meets is not replaced",
        REPLACES,
        "0 | c=1 | pass OK c:1/minute 0 60s\n0 | a=1; c=1 | refuse OK a:5/minute 4 60s; OVER c:1/minute 0 60s",
    ),
    Case("what is unlimited replaces too", REPLACES, "0 | free=1; c=1; b=1 | pass OK unlimited; OK -; OK -"),
    Case("what is unlimited stays so", REPLACES, "0 | eager=1; free=1 | pass OK 5/minute 4 60s; OK unlimited"),
    Case(
        "every descriptor of a name is replaced",
        REPLACES,
        "0 | b=1; b=2; a=1 | pass OK -; OK -; OK a:5/minute 4 60s",
    ),
    Case(
        "unlimited hits are not counted",
        SOFT,
        "0 | free=a *4294967296; free=a *-1; free=a *0 | pass OK unlimited; OK unlimited; OK unlimited",
    ),
    Case(
        "what is over in the shadow passes, and counts",
        SOFT,
        "0 | shadow=a | pass OK 1/minute 0 60s
         0 | shadow=a | pass OK 1/minute 0 60s
         0 | shadow=a *-1 | pass OK 1/minute 0 60s
         0 | shadow=a *-1 | pass OK 1/minute 1 60s",
    ),
    Case("a shadow hides no other", SOFT, "0 | shadow=a *2; hard=a *2 | refuse OK 1/minute 0 60s; OVER 1/minute 0 60s"),
    Case(
        "a shadow takes refunds whatever the others say",
        SOFT,
        "0 | shadow=a; hard=a | pass OK 1/minute 0 60s; OK 1/minute 0 60s\n0 | shadow=a *-1; hard=a | refuse OK 1/minute 1 60s; OVER 1/minute 0 60s",
    ),
    Case("a quota alone refuses", SOFT, "0 | q1=a | pass OK 1/minute 0 60s\n0 | q1=a | refuse OVER 1/minute 0 60s"),
    Case(
        "quotas refuse when all of them are over",
        SOFT,
        "0 | q1=a; q2=a | pass OK 1/minute 0 60s; OK 2/minute 1 60s
         0 | q1=a; q2=a | pass OVER 1/minute 0 60s; OK 2/minute 0 60s
         0 | q1=a; q2=a | refuse OVER 1/minute 0 60s; OVER 2/minute 0 60s
         0 | q1=a; q2=b | pass OVER 1/minute 0 60s; OK 2/minute 1 60s",
    ),
    Case(
        "a quota that is over refuses beside others that are no quotas",
        SOFT,
        "0 | q1=a *2; hard=a; x=y | refuse OVER 1/minute 0 60s; OK 1/minute 0 60s; OK -",
    ),
    Case(
        "what is no quota refuses by itself",
        SOFT,
        "0 | q1=a; q2=a; hard=a *2 | refuse OK 1/minute 0 60s; OK 2/minute 1 60s; OVER 1/minute 0 60s",
    ),
    Case(
        "a quota in the shadow is never over",
        SOFT,
        "0 | both=a *2; q1=a *2 | pass OK 1/minute 0 60s; OVER 1/minute 0 60s",
    ),
    Case(
        "a quota is counted by calls, and not by peeks",
        SOFT,
        "0 | q2=a *0 | pass OK 2/minute 2 60s\n0 | q2=a *5 | refuse OVER 2/minute 0 60s\n0 | q2=a *0 | refuse OVER 2/minute 0 60s",
    ),
    Case(
        "with quota mode on, everything limited is a quota",
        SOFT,
        "0 | quota! hard=a; hard=b | pass OK 1/minute 0 60s; OK 1/minute 0 60s
         0 | quota! hard=a; hard=c | pass OVER 1/minute 0 60s; OK 1/minute 0 60s
         0 | quota! hard=a; hard=b | refuse OVER 1/minute 0 60s; OVER 1/minute 0 60s
         0 | quota! hard=a; x=y | pass OVER 1/minute 0 60s; OK -
         0 | quota! hard=a; free=y | refuse OVER 1/minute 0 60s; OK unlimited
         0 | quota! free=y | pass OK unlimited",
    ),
    Case(
        "a period of any length",
        MORE,
        "0 | half=a *2 | pass OK 2/? 0 30s\n29 | half=a | refuse OVER 2/? 0 1s\n30 | half=a | pass OK 2/? 1 30s",
    ),
    Case(
        "several units",
        MORE,
        "0 | five=a *2 | pass OK 2/? 0 300s\n299 | five=a | refuse OVER 2/? 0 1s\n300 | five=a | pass OK 2/? 1 300s",
    ),
    Case("a period that is a unit is shown as one", MORE, "0 | sixty=a | pass OK 2/minute 1 60s"),
    Case(
        "a burst instead of a window",
        MORE,
        "0.5 | burst=a | pass OK 2/? 1 1s
         0.5 | burst=a | pass OK 2/? 0 2s
         0.5 | burst=a | refuse OVER 2/? 0 1s
         0.5 | burst=a *0 | pass OK 2/? 0 2s
         1.5 | burst=a | pass OK 2/? 0 2s
         1.5 | burst=a *3 | refuse OVER 2/? 0 2s",
    ),
    Case(
        "an algorithm in full",
        MORE,
        "0 | bucket=a *3 | pass OK 3/? 0 30s
         0 | bucket=a | refuse OVER 3/? 0 10s
         10 | bucket=a | pass OK 3/? 0 30s",
    ),
    Case(
        "an algorithm by name is as it is elsewhere",
        MORE,
        "0 | kind=a *2 | pass OK 2/minute 0 60s\n0 | kind=a *9 | refuse OVER 2/minute 0 60s\n0 | kind=a *-1 | pass OK 2/minute 1 60s",
    ),
    Case(
        "several limits on one descriptor are all counted, and the binding one is shown",
        MORE,
        "0 | two=a | pass OK burst:2/second 1 1s
         0 | two=a | pass OK burst:2/second 0 1s
         0 | two=a | refuse OVER burst:2/second 0 1s
         1 | two=a | refuse OVER 3/hour 0 3599s
         2 | two=a *-3 | pass OK 3/hour 2 3598s",
    ),
    Case(
        "of several limits those that are replaced do not count",
        MORE,
        "0 | either=a | pass OK old:1/minute 0 60s
         0 | either=a; new=a | pass OK 5/hour 3 3600s; OK 9/minute 8 60s
         0 | either=a | refuse OVER old:1/minute 0 60s",
    ),
    Case(
        "all or nothing: a refusal charges nothing, what is denied neither",
        ALL,
        "0 | a=1; b=1 | pass OK 3/minute 2 60s; OK 1/minute 0 60s
         0 | a=1; b=1 | refuse OK 3/minute 2 60s; OVER 1/minute 0 60s
         0 | a=1 *3 | refuse OVER 3/minute 2 60s
         0 | a=1 *2 | pass OK 3/minute 0 60s",
    ),
    Case(
        "all or nothing: twice the same must fit together",
        ALL,
        "0 | a=1 *2; a=1 *2 | refuse OVER 3/minute 3 60s; OVER 3/minute 3 60s\n0 | a=1 *2; a=1 | pass OK 3/minute 0 60s; OK 3/minute 0 60s",
    ),
    Case(
        "all or nothing: a quota that is over stops no other",
        ALL,
        "0 | q=1; a=1 | pass OK 1/minute 0 60s; OK 3/minute 2 60s
         0 | q=1; q=2; a=1 | pass OVER 1/minute 0 60s; OK 1/minute 0 60s; OK 3/minute 1 60s
         0 | q=1; q=2 | refuse OVER 1/minute 0 60s; OVER 1/minute 0 60s",
    ),
    Case(
        "all or nothing: a shadow stops nothing, and is charged with the others",
        ALL,
        "0 | s=1; a=1 | pass OK 1/minute 0 60s; OK 3/minute 2 60s
         0 | s=1; a=1 | pass OK 1/minute 0 60s; OK 3/minute 1 60s
         0 | s=2; a=1 *9 | refuse OK 1/minute 1 60s; OVER 3/minute 1 60s
         0 | s=2 | pass OK 1/minute 0 60s",
    ),
    Case(
        "all or nothing: overrides too",
        ALL,
        "0 | a=1 limit 1/day; b=1 *2 | refuse OK 1/day 1 86400s; OVER 1/minute 1 60s\n0 | a=1 limit 1/day *2 | refuse OVER 1/day 1 86400s\n0 | a=1 limit 1/day | pass OK 1/day 0 86400s",
    ),
    Case(
        "in a native domain every limit on the way counts, and the binding one is shown",
        NATIVE,
        "0 | user=a | pass OK per-user:5/hour 4 3600s
         0 | user=a, action=trade | pass OK user/*/action/trade#gcra0:2/? 1 10s
         0 | user=a, action=trade *2 | refuse OVER user/*/action/trade#gcra0:2/? 1 10s
         0 | user=a, action=other | pass OK per-user:5/hour 0 3600s
         0 | user=a, action=trade | refuse OVER per-user:5/hour 0 3600s
         0 | user=b, action=trade, more=1 | pass OK user/*/action/trade#gcra0:2/? 1 10s
         0 | team=b | pass OK -",
    ),
    Case(
        "a native domain's counts are those of its own calls",
        NATIVE,
        "0 | check user/a *2 | passed 3 left\n0 | user=a | pass OK per-user:5/hour 2 3600s\n0 | check user/a/action/trade | passed 1 left",
    ),
    Case(
        "a native shadow stands outside",
        NATIVE,
        "0 | watched=a *5 | pass OK -\n0 | watched=a; user=a | pass OK -; OK per-user:5/hour 4 3600s",
    ),
    Case(
        "an override in a native domain",
        NATIVE,
        "0 | user=a limit 1/day *2 | refuse OVER 1/day 0 86400s\n0 | user=a | pass OK per-user:5/hour 4 3600s",
    ),
    Case(
        "a native domain says itself what a refusal charges",
        NATIVE_ALL,
        "0 | path=/; user=a | pass OK path/*#fixed_window0:1/minute 0 60s; OK user/*#fixed_window0:2/minute 1 60s
         0 | path=/; user=a | refuse OVER path/*#fixed_window0:1/minute 0 60s; OK user/*#fixed_window0:2/minute 1 60s
         0 | user=a | pass OK user/*#fixed_window0:2/minute 0 60s",
    ),
    Case(
        "a native domain takes empty values",
        NATIVE_ALL,
        "0 | user= | pass OK user/*#fixed_window0:2/minute 1 60s\n0 | user= *2 | refuse OVER user/*#fixed_window0:2/minute 1 60s",
    ),
];
