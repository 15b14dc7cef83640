//! Lookup of the rule for a descriptor.

/// Exact values, patterns in this order, and any other value.
pub const VALUES: &str = "
domain: d
descriptors:
  - { key: k, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: k, value: 'a*', rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: k, value: 'ab*', rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: k, value: '*z', rate_limit: { unit: minute, requests_per_unit: 4 } }
  - { key: k, value: 'm*n*o', rate_limit: { unit: minute, requests_per_unit: 5 } }
  - { key: k, value: abc, rate_limit: { unit: minute, requests_per_unit: 6 } }
  - { key: only, value: abc, rate_limit: { unit: minute, requests_per_unit: 7 } }
  - { key: star, rate_limit: { unit: minute, requests_per_unit: 8 } }
  - { key: star, value: '*', rate_limit: { unit: minute, requests_per_unit: 9 } }
  - { key: 'odd*', rate_limit: { unit: minute, requests_per_unit: 10 } }
  - { key: a_b, rate_limit: { unit: minute, requests_per_unit: 11 } }
  - { key: joined, value: '*', rate_limit: { unit: minute, requests_per_unit: 12 } }
= an exact value beats patterns and the default
0 | k=abc | pass OK 6/minute 5 60s
= a pattern beats the default
0 | k=az | pass OK 2/minute 1 60s
= the first pattern that fits counts, not the longest
0 | k=abd | pass OK 2/minute 1 60s
= a pattern may begin with a star
0 | k=xyz | pass OK 4/minute 3 60s
= of two patterns that fit the first in the file counts
0 | k=az | pass OK 2/minute 1 60s
= a pattern may have several stars, each for any text or none
0 | k=mno | pass OK 5/minute 4 60s
0 | k=m-n-o | pass OK 5/minute 4 60s
0 | k=mo | pass OK 1/minute 0 60s
= a pattern holds at both ends
0 | k=xmno | pass OK 1/minute 0 60s
0 | k=mnox | pass OK 1/minute 0 60s
= what no pattern fits meets the default
0 | k=q | pass OK 1/minute 0 60s
= without a default nothing is met
0 | only=abd | pass OK -
= values are told apart by case
0 | only=ABC | pass OK -
0 | only=abc | pass OK 7/minute 6 60s
= keys are told apart by case
0 | ONLY=abc | pass OK -
= an unknown key meets nothing
0 | q=abc | pass OK -
= a star alone beats the default
0 | star=x | pass OK 9/minute 8 60s
= a star fits the empty value
0 | star= | pass OK 9/minute 8 60s
= an empty value meets the default
0 | k= | pass OK 1/minute 0 60s
= an empty value meets no exact one
0 | only= | pass OK -
= an empty key meets nothing
0 | =abc | pass OK -
= a value that reads as a pattern is a value
0 | k=a* | pass OK 2/minute 1 60s
0 | k=*z | pass OK 4/minute 3 60s
= a key with a star is an exact key
0 | odd*=x | pass OK 10/minute 9 60s
0 | oddly=x | pass OK -
= a pattern does not reach into another key
0 | joined_id=5 | pass OK -
0 | joined=5 | pass OK 12/minute 11 60s
= key and value are two things
0 | a=b | pass OK -
0 | a_b=c | pass OK 11/minute 10 60s
= each value of a default counts for itself
0 | k=q | pass OK 1/minute 0 60s
0 | k=r | pass OK 1/minute 0 60s
0 | k=q | refuse OVER 1/minute 0 60s
= each value of a pattern counts for itself
0 | k=a1 *2 | pass OK 2/minute 0 60s
0 | k=a2 *2 | pass OK 2/minute 0 60s
0 | k=a1 | refuse OVER 2/minute 0 60s
";

/// Nested levels, with and without limits.
pub const NESTED: &str = "
domain: d
descriptors:
  - key: k
    value: a
    rate_limit: { unit: hour, requests_per_unit: 1 }
    descriptors:
      - { key: l, rate_limit: { unit: hour, requests_per_unit: 2 } }
      - key: l
        value: x
        descriptors:
          - { key: m, value: 'y*', rate_limit: { unit: hour, requests_per_unit: 3 } }
          - { key: m, value: none }
  - key: k
    value: 'p*'
    descriptors:
      - { key: l, value: x, rate_limit: { unit: hour, requests_per_unit: 4 } }
  - key: k
    descriptors:
      - { key: l, rate_limit: { unit: hour, requests_per_unit: 5 } }
      - { key: n, rate_limit: { unit: hour, requests_per_unit: 6 } }
= the limit of the last entry counts
0 | k=a, l=q | pass OK 2/hour 1 3600s
= the limits on the way do not count, nor are they charged
0 | k=a, l=q | pass OK 2/hour 1 3600s
0 | k=a | pass OK 1/hour 0 3600s
0 | k=a, l=q | pass OK 2/hour 0 3600s
0 | k=a | refuse OVER 1/hour 0 3600s
= a descriptor may end above the leaves
0 | k=a | pass OK 1/hour 0 3600s
= a node without a limit is none
0 | k=a, l=x | pass OK -
0 | k=p1 | pass OK -
0 | k=q | pass OK -
= more entries than levels meet nothing
0 | k=a, l=q, m=r | pass OK -
= what the third level says counts there
0 | k=a, l=x, m=yes | pass OK 3/hour 2 3600s
= a leaf without a limit is a whitelist
0 | k=a, l=x, m=none | pass OK -
= entries are met in their order
0 | l=q, k=a | pass OK -
= an entry in between is not passed over
0 | k=a, z=1, l=q | pass OK -
= the same entry twice is two levels
0 | k=a, k=a | pass OK -
= from an exact value there is no way back to the default
0 | k=a, n=1 | pass OK -
0 | k=b, n=1 | pass OK 6/hour 5 3600s
= from a pattern there is no way back to the default
0 | k=p1, n=1 | pass OK -
0 | k=p1, l=y | pass OK -
0 | k=p1, l=x | pass OK 4/hour 3 3600s
= below, from an exact value there is no way back either
0 | k=a, l=x, n=1 | pass OK -
= values on the way count apart
0 | k=b, l=1 *5 | pass OK 5/hour 0 3600s
0 | k=c, l=1 *5 | pass OK 5/hour 0 3600s
0 | k=b, l=2 *5 | pass OK 5/hour 0 3600s
0 | k=b, l=1 | refuse OVER 5/hour 0 3600s
= no entries meet nothing
0 | | pass OK -
0 |  ; k=a | pass OK -; OK 1/hour 0 3600s
= an unknown domain meets nothing
0 | @e k=a | pass OK -
0 | @D k=a *9; k=b | pass OK -; OK -
";

pub const WHITELIST: &str = "
domain: d
descriptors:
  - { key: ip, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: ip, value: 10.0.0.1 }
  - { key: ip, value: '10.1.*' }
  - { key: ip, value: 10.0.0.2, rate_limit: { unlimited: true } }
= exact values and patterns without a limit are let through
0 | ip=10.0.0.1 *9 | pass OK -
0 | ip=10.1.2.3 *9 | pass OK -
0 | ip=10.2.2.3 *2 | refuse OVER 1/minute 0 60s
= an unlimited value beats the default
0 | ip=10.0.0.2 *9 | pass OK unlimited
";

pub const SHARED: &str = "
domain: d
descriptors:
  - { key: f, value: 'a*', share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: f, value: 'b*', rate_limit: { unit: minute, requests_per_unit: 3 } }
  - { key: f, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - key: g
    value: '*'
    share_threshold: true
    descriptors:
      - { key: h, rate_limit: { unit: minute, requests_per_unit: 3 } }
= values of a pattern that is shared count together
0 | f=a1 | pass OK 3/minute 2 60s
0 | f=a2 | pass OK 3/minute 1 60s
0 | f=a3 | pass OK 3/minute 0 60s
0 | f=a1 | refuse OVER 3/minute 0 60s
0 | f=b1 | pass OK 3/minute 2 60s
0 | f=b2 | pass OK 3/minute 2 60s
0 | f=c | pass OK 3/minute 2 60s
= a value that reads as the pattern counts with it
0 | f=a1 | pass OK 3/minute 2 60s
0 | f=a* | pass OK 3/minute 1 60s
0 | f=b1 | pass OK 3/minute 2 60s
0 | f=b* | pass OK 3/minute 2 60s
= values count together in the middle of a descriptor too
0 | g=1, h=x | pass OK 3/minute 2 60s
0 | g=2, h=x | pass OK 3/minute 1 60s
0 | g=2, h=y | pass OK 3/minute 2 60s
= what counts together does so in one request
0 | f=a1; f=a2; f=b1; f=b2 | pass OK 3/minute 2 60s; OK 3/minute 1 60s; OK 3/minute 2 60s; OK 3/minute 2 60s
= the native call counts in the same places
0 | f=a1 | pass OK 3/minute 2 60s
0 | check f/a2 | passed 1 left
0 | check f/b1 | passed 2 left
0 | f=b1 | pass OK 3/minute 1 60s
0 | check g/1/h/x | passed 2 left
0 | g=2, h=x *2 | pass OK 3/minute 0 60s
0 | check g/3/h/x | refused 0 left
0 | check g/3 | passed
0 | check f | passed
0 | check f/a9 *2 | refused 0 left
";
