//! What an override does to the limits of a policy, to be shown before it acts and when it is set.

use super::{ANY, Change, Override};
use crate::{Domain, Policy, tree::NodeId};
use weir_core::{algorithm::Params, plan::Limit};

/// Most limits of which an effect is told.
pub const MAX_EFFECTS: usize = 32;

/// What an override does to one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The limit's name.
    pub limit: String,
    /// Its algorithm and parameters by the policy.
    pub before: String,
    /// Under the override.
    pub after: String,
}

/// What an override does to the limits of this policy at its pattern and below; of the first 32.
pub fn effects(policy: &Policy, one: &Override) -> Vec<Effect> {
    let mut effects = Vec::new();
    if let Some(domain) = policy.domain(&one.domain) {
        add(domain, 0, &one.pattern, &one.change, &mut effects);
    }
    effects.truncate(MAX_EFFECTS);
    effects
}

/// Adds those of the limits below a node that the rest of a pattern matches.
fn add(domain: &Domain, node: NodeId, pattern: &[Box<str>], change: &Change, effects: &mut Vec<Effect>) {
    if effects.len() >= MAX_EFFECTS {
        return;
    }
    let below = match pattern.split_first() {
        Some((segment, rest)) if &**segment != ANY => {
            let child = domain.child(node, segment.as_bytes());
            return child.into_iter().for_each(|(_, child)| add(domain, child, rest, change, effects));
        }
        Some((_, rest)) => rest,
        None => {
            effects.extend(domain.limits_at(node).iter().filter_map(|limit| Effect::new(limit, change)));
            pattern
        }
    };
    let mut children: Vec<_> = domain.children(node).collect();
    children.sort_unstable();
    for (_, child) in children {
        add(domain, child, below, change, effects);
    }
}

impl Effect {
    /// `None`: the change is of other limits.
    fn new(limit: &Limit, change: &Change) -> Option<Self> {
        let shown = |params: &Params, shadow: bool| {
            format!("{} {}{}", params.name(), params.describe(), if shadow { ", shadow" } else { "" })
        };
        let before = shown(&limit.params, limit.shadow);
        let after = match change {
            Change::Ban => "refused".to_owned(),
            Change::Unlimited => "not limited".to_owned(),
            Change::Factor(factor) => match limit.under_further_factor(*factor) {
                Ok(limit) => shown(&limit.params, limit.shadow),
                Err(error) => format!("as before: {error}"),
            },
            Change::Limits(limits) => match change.of(limit) {
                Some(limit) => shown(&limit.params, limit.shadow),
                // It is of another algorithm.
                None if limits.targets().any(|(name, _)| name == Some(&*limit.name)) => before.clone(),
                None => return None,
            },
            Change::Shadow => shown(&limit.params, true),
        };
        Some(Self { limit: limit.name.to_string(), before, after })
    }
}
