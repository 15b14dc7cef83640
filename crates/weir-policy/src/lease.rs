//! The key `lease` of a policy file or of a limit: whether units are leased, and for how long.

use weir_core::{
    domain::{
        Micros,
        time::{SECOND, format_duration, parse_duration},
    },
    hold::MAX_TTL,
};
use weir_settings::{
    document::{Node, Value},
    fields::read_scalar,
    problem::Problems,
    suggest,
};

/// The keys of a `lease` map.
pub const LEASE_KEYS: &[&str] = &["ttl"];
/// Default TTL of a lease.
const DEFAULT_TTL: Micros = SECOND / 4;
/// Minimum TTL of a lease: several round trips to the store.
const MIN_TTL: Micros = SECOND / 20;

/// The TTL of leases; `None`: units are not leased.
pub type Lease = Option<Micros>;

/// Reads `true`, `false`, or a map with a `ttl`.
pub(crate) fn read(node: &Node, field: &str, problems: &mut Problems) -> Lease {
    match &node.value {
        Value::Map(entries) => {
            for entry in entries.iter().filter(|entry| !LEASE_KEYS.contains(&entry.key.as_str())) {
                let message = suggest::unknown("key of a lease", &entry.key, LEASE_KEYS);
                problems.add(entry.mark, format!("{field}.{}", entry.key), message);
            }
            let ttl = entries.iter().find(|entry| entry.key == "ttl");
            let Some(ttl) = ttl else { return Some(DEFAULT_TTL) };
            let must = format!("ttl must be a time from {} to {}", format_duration(MIN_TTL), format_duration(MAX_TTL));
            let parse = |text: &str| parse_duration(text).ok().filter(|ttl| (MIN_TTL..=MAX_TTL).contains(ttl));
            read_scalar(&ttl.value, &format!("{field}.ttl"), &must, problems, parse)
        }
        _ => {
            let must = "lease must be true, false or { ttl: TIME }";
            read_scalar(node, field, must, problems, |text| text.parse::<bool>().ok())?.then_some(DEFAULT_TTL)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use weir_core::domain::Key;

    /// Returns the lease TTLs of the levels of `a/b`.
    fn leases(head: &str, own: &str) -> Vec<Option<i64>> {
        let limit = |own: &str| format!("limits: [{{ gcra: {{ burst: 1, count: 1, period: 1s }}{own} }}]");
        let schema = format!("schema: {{ a: {{ {}, children: {{ b: {{ {} }} }} }} }}", limit(""), limit(own));
        let policy = parse(&format!("{head}\n{schema}"), &crate::Rules::default()).unwrap();
        let key = Key::new("", &["a", "b"]).unwrap();
        let levels = policy.domain("").unwrap().levels(&key, 1, 1.0).unwrap();
        levels.iter().map(|level| level.limit.lease()).collect()
    }

    #[test]
    fn a_limit_inherits_the_lease_of_its_domain() {
        assert_eq!(leases("", ""), [None, None]);
        assert_eq!(leases("lease: true", ""), [Some(250_000); 2]);
        assert_eq!(leases("lease: true", ", lease: false"), [Some(250_000), None]);
        assert_eq!(leases("lease: { ttl: 1s }", ", lease: { ttl: 100ms }"), [Some(1_000_000), Some(100_000)]);
        assert_eq!(leases("", ", lease: {}"), [None, Some(250_000)]);
    }

    #[test]
    fn invalid_leases_are_named() {
        for (text, message) in [
            ("maybe", "lease must be true, false or { ttl: TIME }, not `maybe`"),
            ("{ ttl: 1ms }", "ttl must be a time from 50ms to 1m"),
            ("{ tll: 1s }", "ttl"),
        ] {
            let error = parse(&format!("lease: {text}"), &crate::Rules::default()).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
