//! The effect of an override on the limits of a policy, for previews and for the answer when it is set.

use super::{ANY, Change, Override};
use crate::{Domain, Policy, tree::NodeId};
use weir_core::{algorithm::Params, plan::Limit};

/// Maximum number of limits in an answer.
pub const MAX_EFFECTS: usize = 32;

/// The effect of an override on one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The limit's name.
    pub limit: String,
    /// Algorithm and parameters in the policy.
    pub before: String,
    /// Algorithm and parameters under the override, or its effect in words.
    pub after: String,
}

/// Returns the effects of an override on the limits at its pattern and below, for the first 32 limits.
pub fn effects(policy: &Policy, one: &Override) -> Vec<Effect> {
    let mut effects = Vec::new();
    if let Some(domain) = policy.domain(&one.domain) {
        add(domain, 0, &one.pattern, &one.change, &mut effects);
    }
    effects.truncate(MAX_EFFECTS);
    effects
}

/// Adds the effects on the limits at and below a node that the rest of a pattern matches.
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
    /// Describes the effect; `None`: the change is for other limits.
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
                // The change has this name but another algorithm.
                None if limits.targets().any(|(name, _)| name == Some(&*limit.name)) => before.clone(),
                None => return None,
            },
            Change::Shadow => shown(&limit.params, true),
        };
        Some(Self { limit: limit.name.to_string(), before, after })
    }
}
