//! Windows and their hits, and limit overrides.

pub const TEN: &str = "
domain: d
descriptors:
  - { key: k, rate_limit: { unit: minute, requests_per_unit: 10 } }
  - { key: zero, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: missing, rate_limit: { unit: minute } }
  - { key: most, rate_limit: { unit: hour, requests_per_unit: 4294967295 } }
  - { key: named, rate_limit: { name: by-name, unit: hour, requests_per_unit: 2 } }
= hits count down to the limit and no further
0 | k=a | pass OK 10/minute 9 60s
0.5 | k=a *8 | pass OK 10/minute 1 60s
1 | k=a | pass OK 10/minute 0 59s
59.5 | k=a | refuse OVER 10/minute 0 1s
59.999999 | k=a | refuse OVER 10/minute 0 1s
60 | k=a | pass OK 10/minute 9 60s
= several hits at once pass if all of them fit
0 | k=a *10 | pass OK 10/minute 0 60s
0 | k=b *11 | refuse OVER 10/minute 0 60s
= denied hits count
0 | k=a *8 | pass OK 10/minute 2 60s
0 | k=a *5 | refuse OVER 10/minute 0 60s
0 | k=a | refuse OVER 10/minute 0 60s
0 | k=a *-3 | pass OK 10/minute 0 60s
0 | k=a | refuse OVER 10/minute 0 60s
60 | k=a | pass OK 10/minute 9 60s
= no hits peek: over only where more was counted than fits
0 | k=a *0 | pass OK 10/minute 10 60s
10 | k=a *10 | pass OK 10/minute 0 50s
10 | k=a *0 | pass OK 10/minute 0 50s
10 | k=a | refuse OVER 10/minute 0 50s
10 | k=a *0 | refuse OVER 10/minute 0 50s
60 | k=a *0 | pass OK 10/minute 10 60s
= negative hits give back, to none at most, and always pass
0 | k=a *-5 | pass OK 10/minute 10 60s
0 | k=a *4 | pass OK 10/minute 6 60s
0 | k=a *-1 | pass OK 10/minute 7 60s
30 | k=a *-99 | pass OK 10/minute 10 30s
30 | k=a *12 | refuse OVER 10/minute 0 30s
30 | k=a *-3 | pass OK 10/minute 1 30s
30 | k=a | pass OK 10/minute 0 30s
= beyond 2^32 hits count as that
0 | k=a *9223372036854775807 | refuse OVER 10/minute 0 60s
0 | k=a *-9223372036854775808 | pass OK 10/minute 10 60s
0 | most=a *9223372036854775807 | refuse OVER 4294967295/hour 0 3600s
0 | most=a *-2 | pass OK 4294967295/hour 1 3600s
= a large limit is shown whole
0 | most=a *4294967294 | pass OK 4294967295/hour 1 3600s
= a limit of none lets nothing through
0 | zero=a | refuse OVER 0/minute 0 60s
10 | zero=a *0 | refuse OVER 0/minute 0 50s
10 | zero=b *0 | pass OK 0/minute 0 50s
10 | zero=b *-1 | pass OK 0/minute 0 50s
60 | zero=a | refuse OVER 0/minute 0 60s
= a number that is not said is none
0 | missing=a | refuse OVER 0/minute 0 60s
= a name is shown
0 | named=a | pass OK by-name:2/hour 1 3600s
= the same descriptor twice counts twice, in order
0 | k=a *4; k=a *4 | pass OK 10/minute 6 60s; OK 10/minute 2 60s
0 | k=a *2; k=a | refuse OK 10/minute 0 60s; OVER 10/minute 0 60s
0 | k=a *0; k=a *0 | refuse OVER 10/minute 0 60s; OVER 10/minute 0 60s
= every descriptor is counted, whatever the others say
0 | k=a *11; k=b; k=c | refuse OVER 10/minute 0 60s; OK 10/minute 9 60s; OK 10/minute 9 60s
0 | k=b; k=a; x=y | refuse OK 10/minute 8 60s; OVER 10/minute 0 60s; OK -
0 | k=b | pass OK 10/minute 7 60s
= an override stands in place of the rule, with a count of its own
0 | k=a | pass OK 10/minute 9 60s
0 | k=a limit 2/minute | pass OK 2/minute 1 60s
0 | k=a limit 2/minute | pass OK 2/minute 0 60s
0 | k=a limit 2/minute | refuse OVER 2/minute 0 60s
0 | k=a | pass OK 10/minute 8 60s
= an override counts by its unit, whatever its number
0 | k=a limit 2/minute *2 | pass OK 2/minute 0 60s
0 | k=a limit 2/hour | pass OK 2/hour 1 3600s
0 | k=a limit 5/minute | pass OK 5/minute 2 60s
0 | k=a limit 1/minute *0 | refuse OVER 1/minute 0 60s
= an override needs no rule
0 | x=y, z=1 limit 1/day | pass OK 1/day 0 86400s
0 | x=y, z=2 limit 1/day | pass OK 1/day 0 86400s
0 | x=y, z=1 limit 1/day | refuse OVER 1/day 0 86400s
= an override needs a domain
0 | @e k=a limit 0/day | pass OK -
= an override needs an entry
0 | limit 0/day | pass OK -
= an override of none lets nothing through
0 | k=a limit 0/second | refuse OVER 0/second 0 1s
= an override takes refunds, and counts what is denied
0 | k=a limit 2/day *3 | refuse OVER 2/day 0 86400s
0 | k=a limit 2/day *-2 | pass OK 2/day 1 86400s
= an override tells empty values apart
0 | k= limit 1/day | pass OK 1/day 0 86400s
0 | k=, = limit 1/day | pass OK 1/day 0 86400s
0 | =k limit 1/day | pass OK 1/day 0 86400s
0 | k= limit 1/day | refuse OVER 1/day 0 86400s
= an override and its rule count apart in one request
0 | k=a; k=a limit 10/minute | pass OK 10/minute 9 60s; OK 10/minute 9 60s
";

pub const UNITS: &str = "
domain: d
descriptors:
  - { key: second, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: minute, rate_limit: { unit: Minute, requests_per_unit: 1 } }
  - { key: hour, rate_limit: { unit: HOUR, requests_per_unit: 1 } }
  - { key: day, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: week, rate_limit: { unit: week, requests_per_unit: 1 } }
  - { key: month, rate_limit: { unit: month, requests_per_unit: 1 } }
  - { key: year, rate_limit: { unit: year, requests_per_unit: 1 } }
= seconds
0.5 | second=a | pass OK 1/second 0 1s
0.9 | second=a | refuse OVER 1/second 0 1s
1 | second=a | pass OK 1/second 0 1s
= minutes
1 | minute=a | pass OK 1/minute 0 59s
59 | minute=a | refuse OVER 1/minute 0 1s
60 | minute=a | pass OK 1/minute 0 60s
= hours
0 | hour=a | pass OK 1/hour 0 3600s
3599 | hour=a | refuse OVER 1/hour 0 1s
3600 | hour=a | pass OK 1/hour 0 3600s
= days
0 | day=a | pass OK 1/day 0 86400s
86399 | day=a | refuse OVER 1/day 0 1s
86400 | day=a | pass OK 1/day 0 86400s
= weeks
0 | week=a | pass OK 1/week 0 604800s
604799 | week=a | refuse OVER 1/week 0 1s
604800 | week=a | pass OK 1/week 0 604800s
= months
0 | month=a | pass OK 1/month 0 2592000s
2591999 | month=a | refuse OVER 1/month 0 1s
2592000 | month=a | pass OK 1/month 0 2592000s
= years
0 | year=a | pass OK 1/year 0 31536000s
31535999 | year=a | refuse OVER 1/year 0 1s
31536000 | year=a | pass OK 1/year 0 31536000s
= weeks begin where the epoch's do
-1 | week=a | pass OK 1/week 0 1s
0 | week=a | pass OK 1/week 0 604800s
= time until the reset is rounded up
0.000001 | minute=a | pass OK 1/minute 0 60s
1.5 | minute=b | pass OK 1/minute 0 59s
";
