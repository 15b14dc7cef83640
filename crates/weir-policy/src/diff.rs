//! The difference between two policies, for the log.

use std::{collections::BTreeMap, fmt};

use crate::{
    Policy,
    descriptors::Rule,
    lint::{PolicyNode, policy_nodes},
    tree::Domain,
};
use weir_core::{domain::key::domain_label, plan::Limit};

/// Most bytes of names in the text of a difference; the rest is a number.
const MAX_NAME_BYTES: usize = 1_000;

/// What a policy adds to another one, changes and removes: domains, limits and rules of descriptors, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Those that are new.
    pub added: Vec<String>,
    /// Those that say something else.
    pub changed: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
}

/// One thing that a policy says.
enum Item<'a> {
    Domain(&'a Domain),
    Limit(&'a Limit),
    Rule(&'a Rule),
}

impl Diff {
    /// From `old` to `new`.
    pub fn between(old: &Policy, new: &Policy) -> Self {
        let (mut before, mut diff) = (items(old), Self::default());
        for (name, after) in items(new) {
            match before.remove(&name) {
                None => diff.added.push(name),
                Some(before) if before != after => diff.changed.push(name),
                Some(_) => {}
            }
        }
        diff.removed.extend(before.into_keys());
        diff
    }
}

/// `+` before each name that is new, `~` where it has changed, `-` where it is gone; at most about a kilobyte.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = [('+', &self.added), ('~', &self.changed), ('-', &self.removed)];
        let names: Vec<_> =
            signed.iter().flat_map(|(sign, names)| names.iter().map(move |name| (sign, name))).collect();
        let mut bytes = 0;
        for (index, (sign, name)) in names.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            bytes += name.len() + 2;
            if bytes > MAX_NAME_BYTES {
                return write!(f, "{space}and {} more", names.len() - index);
            }
            write!(f, "{space}{sign}{name}")?;
        }
        Ok(())
    }
}

/// All that a policy says, by name. Limits of one name at one place stand together.
fn items(policy: &Policy) -> BTreeMap<String, Vec<Item<'_>>> {
    let mut items = BTreeMap::<_, Vec<_>>::new();
    for domain in policy.domains() {
        let shown = domain_label(&domain.name);
        items.entry(shown.to_owned()).or_default().push(Item::Domain(domain));
        for policy_node in policy_nodes(domain) {
            let rule = domain.descriptors.as_ref().and_then(|all| all.rule(policy_node.node));
            let path = format!("{shown}:{}", policy_node.pattern.join("/"));
            items.entry(path).or_default().extend(rule.map(Item::Rule));
            for limit in domain.limits_at(policy_node.node) {
                items.entry(name(shown, &policy_node, limit)).or_default().push(Item::Limit(limit));
            }
        }
    }
    items.retain(|_, items| !items.is_empty());
    items
}

/// `api:user/*#per-user`, or where a limit has no name `api:user/*#gcra0`.
fn name(domain: &str, policy_node: &PolicyNode<'_>, limit: &Limit) -> String {
    if limit.is_named() {
        format!("{domain}:{}#{}", policy_node.pattern.join("/"), limit.name)
    } else {
        format!("{domain}:{}", limit.name)
    }
}

impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Domain(one), Self::Domain(other)) => {
                let said = |domain: &Domain| {
                    let Domain { charge, on_store_failure, allows_spec, anchor, shadow, retry_jitter, .. } = *domain;
                    (charge, on_store_failure, allows_spec, anchor, shadow, retry_jitter)
                };
                said(one) == said(other) && one.descriptors.is_some() == other.descriptors.is_some()
            }
            // Not by its number, which changes with those before it.
            (Self::Limit(one), Self::Limit(other)) => {
                (one.shadow, one.lease(), &one.params, one.written())
                    == (other.shadow, other.lease(), &other.params, other.written())
            }
            (Self::Rule(one), Self::Rule(other)) => one.says_the_same(other),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_core::algorithm::Bounds;

    use super::*;
    use crate::parse;

    fn diff(old: &str, new: &str) -> String {
        let [old, new] = [old, new].map(|text| parse(text, &Bounds::default()).unwrap());
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
