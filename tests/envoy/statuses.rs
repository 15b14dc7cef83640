//! Replaced limits, shadow mode, and quota mode.

pub const REPLACES: &str = "
domain: d
descriptors:
  - { key: a, rate_limit: { name: a, unit: minute, requests_per_unit: 5, replaces: [{ name: b }] } }
  - { key: b, rate_limit: { name: b, unit: minute, requests_per_unit: 1, replaces: [{ name: c }] } }
  - { key: c, rate_limit: { name: c, unit: minute, requests_per_unit: 1 } }
  - { key: free, rate_limit: { name: free, unlimited: true, replaces: [{ name: c }, { name: b }] } }
  - { key: eager, rate_limit: { unit: minute, requests_per_unit: 5, replaces: [{ name: free }, { name: nobody }] } }
= an override has no name, and replaces nothing
0 | a=1 limit 3/day; b=1 | pass OK 3/day 2 86400s; OK b:1/minute 0 60s
0 | a=2; b=2 limit 1/day | pass OK a:5/minute 4 60s; OK 1/day 0 86400s
= a limit that is replaced is neither counted nor shown
0 | a=1; b=1 | pass OK a:5/minute 4 60s; OK -
0 | b=1; a=1 | pass OK -; OK a:5/minute 3 60s
0 | b=1 | pass OK b:1/minute 0 60s
0 | b=1 | refuse OVER b:1/minute 0 60s
0 | b=1; a=1 | pass OK -; OK a:5/minute 2 60s
= what is replaced replaces all the same
0 | a=1; b=1; c=1 | pass OK a:5/minute 4 60s; OK -; OK -
= what only another request meets is not replaced
0 | c=1 | pass OK c:1/minute 0 60s
0 | a=1; c=1 | refuse OK a:5/minute 4 60s; OVER c:1/minute 0 60s
= what is unlimited replaces too
0 | free=1; c=1; b=1 | pass OK unlimited; OK -; OK -
= what is unlimited stays so
0 | eager=1; free=1 | pass OK 5/minute 4 60s; OK unlimited
= every descriptor of a name is replaced
0 | b=1; b=2; a=1 | pass OK -; OK -; OK a:5/minute 4 60s
";

pub const SOFT: &str = "
domain: d
descriptors:
  - { key: shadow, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: hard, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: q1, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: q2, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: both, quota_mode: true, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: free, quota_mode: true, rate_limit: { unlimited: true } }
  - { key: none, quota_mode: true }
= an override is not softened by its rule
0 | shadow=a limit 0/day | refuse OVER 0/day 0 86400s
0 | q1=a limit 0/day; q2=a | refuse OVER 0/day 0 86400s; OK 2/minute 1 60s
0 | free=a limit 0/day | refuse OVER 0/day 0 86400s
= unlimited hits are not counted
0 | free=a *4294967296; free=a *-1; free=a *0 | pass OK unlimited; OK unlimited; OK unlimited
= what is over in the shadow passes, and counts
0 | shadow=a | pass OK 1/minute 0 60s
0 | shadow=a | pass OK 1/minute 0 60s
0 | shadow=a *-1 | pass OK 1/minute 0 60s
0 | shadow=a *-1 | pass OK 1/minute 1 60s
= a shadow hides no other
0 | shadow=a *2; hard=a *2 | refuse OK 1/minute 0 60s; OVER 1/minute 0 60s
= a shadow takes refunds whatever the others say
0 | shadow=a; hard=a | pass OK 1/minute 0 60s; OK 1/minute 0 60s
0 | shadow=a *-1; hard=a | refuse OK 1/minute 1 60s; OVER 1/minute 0 60s
= a quota alone refuses
0 | q1=a | pass OK 1/minute 0 60s
0 | q1=a | refuse OVER 1/minute 0 60s
= quotas refuse when all of them are over
0 | q1=a; q2=a | pass OK 1/minute 0 60s; OK 2/minute 1 60s
0 | q1=a; q2=a | pass OVER 1/minute 0 60s; OK 2/minute 0 60s
0 | q1=a; q2=a | refuse OVER 1/minute 0 60s; OVER 2/minute 0 60s
0 | q1=a; q2=b | pass OVER 1/minute 0 60s; OK 2/minute 1 60s
= a quota that is over refuses beside others that are no quotas
0 | q1=a *2; hard=a; x=y | refuse OVER 1/minute 0 60s; OK 1/minute 0 60s; OK -
= what has no limit has no quota
0 | q1=a *2; free=a; none=a | refuse OVER 1/minute 0 60s; OK unlimited; OK -
= what is no quota refuses by itself
0 | q1=a; q2=a; hard=a *2 | refuse OK 1/minute 0 60s; OK 2/minute 1 60s; OVER 1/minute 0 60s
= a quota in the shadow is never over
0 | both=a *2; q1=a *2 | pass OK 1/minute 0 60s; OVER 1/minute 0 60s
= a quota is counted by calls, and not by peeks
0 | q2=a *0 | pass OK 2/minute 2 60s
0 | q2=a *5 | refuse OVER 2/minute 0 60s
0 | q2=a *0 | refuse OVER 2/minute 0 60s
= with quota mode on, everything limited is a quota
0 | quota! hard=a; hard=b | pass OK 1/minute 0 60s; OK 1/minute 0 60s
0 | quota! hard=a; hard=c | pass OVER 1/minute 0 60s; OK 1/minute 0 60s
0 | quota! hard=a; hard=b | refuse OVER 1/minute 0 60s; OVER 1/minute 0 60s
0 | quota! hard=a; x=y | pass OVER 1/minute 0 60s; OK -
0 | quota! hard=a; free=y | refuse OVER 1/minute 0 60s; OK unlimited
0 | quota! free=y | pass OK unlimited
";
