//! The difference between two policies: names for the log, effects on keys for operators.

mod effect;
mod hidden;
mod item;

use std::fmt;

use crate::Policy;

pub(crate) use effect::Effect;
use hidden::{Hidden, hidden};
use item::{Item, Pair, pairs};

/// The effects on keys without another limit, when a limit is added or removed.
const FIRST: &str = "these keys had no limit";
const LAST: &str = "these keys have no limit any more";
/// Maximum length of the names in the text of a difference, in bytes; the other names are counted.
const MAX_NAME_BYTES: usize = 1_000;

/// The domains, limits and rules of descriptors that differ between two policies, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// New items, and keys that meet a limit because a node that hid it is gone.
    pub added: Vec<Difference>,
    /// Items with other values.
    pub changed: Vec<Difference>,
    /// Removed items, and keys that meet no limit any more because a node hides it.
    pub removed: Vec<Difference>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The name: `api` for a domain, `api:user/*#per-user` for a limit, `api:user/*` for a rule of descriptors,
    /// `api:user/root` for keys whose limits a node hides. An unnamed limit that changed with its place has both.
    pub name: String,
    /// The old value; empty for a new item.
    pub before: String,
    /// The new value; empty for a removed item.
    pub after: String,
    /// The effects on keys, a line each.
    pub key_effects: Vec<String>,
    /// The change of burst and rate, for a limit with other parameters.
    pub effect: Option<Effect>,
}

impl Diff {
    /// Computes the difference from `old` to `new`.
    pub fn between(old: &Policy, new: &Policy) -> Self {
        let mut diff = Self::default();
        for Pair { name, before, after } in pairs(old, new) {
            match (&before[..], &after[..]) {
                ([], after) => diff.added.push(Difference::added(name, after, old)),
                (before, []) => diff.removed.push(Difference::removed(name, before, new)),
                (before, after) if before != after => diff.changed.push(Difference::changed(name, before, after)),
                _ => {}
            }
        }
        diff.added.extend(hidden(new, old).into_iter().map(Difference::uncovered));
        diff.removed.extend(hidden(old, new).into_iter().map(Difference::hidden));
        diff
    }

    /// Returns all differences with their signs: `+` new, `~` changed, `-` removed.
    pub fn all(&self) -> impl Iterator<Item = (char, &Difference)> {
        let signed = [('+', &self.added), ('~', &self.changed), ('-', &self.removed)];
        signed.into_iter().flat_map(|(sign, differences)| differences.iter().map(move |one| (sign, one)))
    }
}

impl Difference {
    fn added(name: String, after: &[Item<'_>], old: &Policy) -> Self {
        let is_first = after.iter().any(|item| item.is_limit() && !item.is_limited_in(old));
        let key_effects = is_first.then(|| FIRST.to_owned()).into_iter().collect();
        Self { name, before: String::new(), after: describe(after), key_effects, effect: None }
    }

    fn removed(name: String, before: &[Item<'_>], new: &Policy) -> Self {
        let is_last = before.iter().any(|item| item.is_limit() && !item.is_limited_in(new));
        let key_effects = is_last.then(|| LAST.to_owned()).into_iter().collect();
        Self { name, before: describe(before), after: String::new(), key_effects, effect: None }
    }

    fn uncovered(Hidden { name, limits }: Hidden<'_>) -> Self {
        Self {
            name,
            before: String::new(),
            after: describe(&limits),
            key_effects: vec![FIRST.to_owned()],
            effect: None,
        }
    }

    fn hidden(Hidden { name, limits }: Hidden<'_>) -> Self {
        Self { name, before: describe(&limits), after: String::new(), key_effects: vec![LAST.to_owned()], effect: None }
    }

    fn changed(name: String, before: &[Item<'_>], after: &[Item<'_>]) -> Self {
        let (mut key_effects, mut effect) = (Vec::new(), None);
        if let ([before], [after]) = (before, after) {
            (key_effects, effect) = (before.describe_change(after), before.effect_of(after));
        }
        Self { name, before: describe(before), after: describe(after), key_effects, effect }
    }
}

fn describe(items: &[Item<'_>]) -> String {
    items.iter().map(Item::describe).collect::<Vec<_>>().join("; ")
}

/// The names with their signs; at most about a kilobyte.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut bytes, count) = (0, self.all().count());
        for (index, (sign, Difference { name, .. })) in self.all().enumerate() {
            let space = if index == 0 { "" } else { " " };
            bytes += name.len() + 2;
            if bytes > MAX_NAME_BYTES {
                return write!(f, "{space}and {} more", count - index);
            }
            write!(f, "{space}{sign}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn diff(old: &str, new: &str) -> String {
        let [old, new] = [old, new].map(|text| parse(text, &crate::Rules::default()).unwrap());
        let diff = Diff::between(&old, &new);
        assert_eq!(Diff::between(&old, &old), Diff::default());
        diff.to_string()
    }

    #[test]
    fn limits_are_named_by_domain_and_path() {
        let old = "
            domain: api
            schema:
              user: { limits: [{ gcra: { burst: 1, count: 1, period: 1s } }] }
              team: { limits: [{ gcra: { burst: 1, count: 1, period: 1s }, name: all }, { gcra: { burst: 9, count: 1, period: 1s }, name: same }] }";
        let new = "
            domain: api
            charge: independent
            schema:
              org: { children: { '*': { limits: [{ gcra: { burst: 1, count: 1, period: 1s } }] } } }
              team: { limits: [{ gcra: { burst: 2, count: 1, period: 1s }, name: all }, { gcra: { burst: 9, count: 1, period: 1s }, name: same }] }";
        assert_eq!(diff(old, new), "+api:org/*#gcra0 ~api ~api:team#all -api:user#gcra0");
        let shadow = new.replace("name: same", "name: same, shadow: true");
        assert_eq!(diff(new, &shadow), "~api:team#same");
        assert_eq!(diff(new, "schema: {}"), "+default -api -api:org/*#gcra0 -api:team#all -api:team#same");
    }

    #[test]
    fn unnamed_limits_are_paired_by_what_they_say() {
        let of = |limits: &[&str]| {
            let limits: Vec<_> = limits.iter().map(|limit| format!("{{ gcra: {{ {limit} }} }}")).collect();
            format!("schema: {{ user: {{ limits: [{}] }} }}", limits.join(", "))
        };
        let (second, hour) = ("burst: 9, count: 10, period: 1s", "burst: 99, count: 500, period: 1h");
        let (slower, less) = ("burst: 9, count: 5, period: 1s", "burst: 99, count: 400, period: 1h");
        let minute = "burst: 9, count: 10, period: 1m";
        let both = of(&[second, hour]);
        for (new, expected) in [
            (of(&[hour, second]), ""),
            (of(&[minute, second, hour]), "+default:user#gcra0"),
            (of(&[hour]), "-default:user#gcra0"),
            (of(&[hour, slower]), "~default:user#gcra1 (was user#gcra0)"),
            (of(&[less]), "~default:user#gcra0 (was user#gcra1) -default:user#gcra0"),
            (of(&[less, slower]), "~default:user#gcra0 (was user#gcra1) ~default:user#gcra1 (was user#gcra0)"),
            (of(&[hour, minute]), "~default:user#gcra1 (was user#gcra0)"),
        ] {
            assert_eq!(diff(&both, &new), expected, "{new}");
        }
        // A segment may be named as a path is.
        let paths = |[one, other]: [&str; 2]| {
            let node = |limit| format!("limits: [{{ gcra: {{ {limit} }} }}]");
            format!("schema: {{ a/b: {{ {} }}, a: {{ children: {{ b: {{ {} }} }} }} }}", node(one), node(other))
        };
        assert_eq!(diff(&paths([second, hour]), &paths([hour, second])), "~default:a/b#gcra0 ~default:a/b#gcra0");
        // Both changed, and their order too.
        let [old, new] = [both, of(&[less, slower])].map(|text| parse(&text, &crate::Rules::default()).unwrap());
        let changed = Diff::between(&old, &new).changed;
        let effects: Vec<_> = changed.iter().filter_map(|one| one.effect.as_ref()?.per_second).collect();
        assert_eq!(effects, [[500.0 / 3_600.0, 400.0 / 3_600.0], [10.0, 5.0]]);
    }

    #[test]
    fn a_domain_that_is_named_default_is_not_the_default_domain() {
        let limits = "schema: { user: { limits: [{ gcra: { burst: 1, count: 1, period: 1s } }] } }";
        assert_eq!(
            diff(limits, &format!("domain: default\n{limits}")),
            "+domain default +domain default:user#gcra0 -default -default:user#gcra0"
        );
    }

    #[test]
    fn keys_whose_limits_a_node_hides_are_named() {
        let of = |more: &str| {
            format!(
                "schema: {{ user: {{ children: {{ '*': {{ limits: [[15, 30, 60]], children: {{ trade: {{ limits: [[9, 1, 60]] }} }} }}{more} }} }} }}"
            )
        };
        let plain = of("");
        for (node, keys) in [
            ("{}", &["user/root", "user/root/trade"][..]),
            ("{ factor: 0, limits: [[15, 30, 60]] }", &["user/root", "user/root/trade"]),
            ("{ children: { trade: {}, other: {} } }", &["user/root", "user/root/trade"]),
            ("{ children: { trade: { limits: [[9, 1, 60]] } } }", &["user/root"]),
            ("{ children: { '*': {} } }", &["user/root", "user/root/trade"]),
            ("{ limits: [[15, 30, 60]] }", &[]),
        ] {
            let changed = of(&format!(", root: {node}"));
            for (old, new, sign) in [(&plain, &changed, '-'), (&changed, &plain, '+')] {
                let text = diff(old, new);
                let names: Vec<_> =
                    text.split(' ').filter(|name| name.starts_with(sign) && !name.contains('#')).collect();
                let expected: Vec<_> = keys.iter().map(|keys| format!("{sign}default:{keys}")).collect();
                assert_eq!(names, expected, "{node}: {text}");
            }
        }
    }

    #[test]
    fn rules_of_descriptors_are_compared_too() {
        let of = |rule: &str| format!("domain: d\ndescriptors: [{{ key: user, {rule} }}]");
        let limited = of("rate_limit: { unit: day, requests_per_unit: 2 }");
        assert_eq!(diff(&limited, &of("rate_limit: { unlimited: true }")), "~d:user/* -d:user/*#fixed_window0");
        assert_eq!(
            diff(&limited, &limited.replace(" 2 }", " 2 }, shadow_mode: true")),
            "~d:user/* ~d:user/*#fixed_window0"
        );
    }

    #[test]
    fn many_names_are_shortened_to_a_count() {
        let of = |count: usize| {
            let limit = |number| format!("key{number}: {{ limits: [[9, 1, 60]] }}");
            format!("schema: {{ {} }}", (0..count).map(limit).collect::<Vec<_>>().join(", "))
        };
        let text = diff(&of(1), &of(1_000));
        assert!(text.len() < MAX_NAME_BYTES + 50 && text.ends_with(" more"), "{text}");
    }
}
