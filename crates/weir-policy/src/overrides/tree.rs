//! The overrides of all domains, looked up by key.

use std::{
    fmt::{self, Debug, Formatter},
    sync::Arc,
};

use archery::ArcTK;
use rpds::HashTrieMap;
use smallvec::SmallVec;
use weir_core::{
    domain::{Clock, Micros},
    plan::{Ban, Level, Limit, Overridden},
};

use super::{ANY, CachedOverride, Change, Override};

type Map<K, V> = HashTrieMap<K, V, ArcTK, foldhash::fast::RandomState>;

/// Maximum number of other states of a limit in the plan of a settlement.
const MAX_OTHER_STATES: usize = 16;

/// The overrides of one policy, in persistent maps: copies share structure, so a change costs the same for many
/// overrides as for few.
///
/// At each level the override with the longest pattern acts, among those whose pattern is not longer
/// than the prefix that the limit covers; among patterns of one length the first with an exact segment
/// where the others have [`ANY`]. A ban acts in addition to other overrides; of several the one that
/// lasts longest.
#[derive(Clone)]
pub struct Overrides {
    /// The overrides of the default domain, often the only one in use.
    default: Node,
    domains: Map<Box<str>, Node>,
    clock: Option<Arc<dyn Clock>>,
}

/// A node of the tree of patterns.
#[derive(Clone, Default)]
struct Node {
    exact: Map<Box<[u8]>, Arc<Node>>,
    any: Option<Arc<Node>>,
    /// The override whose pattern ends at this node.
    own: Option<Arc<CachedOverride>>,
}

/// The overrides in force whose patterns match a key.
pub struct ActiveOverrides<'a> {
    /// All but bans: the shortest first, among patterns of one length the most exact last.
    found: SmallVec<[&'a CachedOverride; 4]>,
    ban: Option<&'a CachedOverride>,
    now: Micros,
}

impl Overrides {
    /// Makes an empty set without a clock.
    pub fn none() -> Self {
        Self { default: Node::default(), domains: Map::default(), clock: None }
    }

    /// Makes an empty set; the clock decides which overrides are in force.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..Self::none() }
    }

    /// Adds an override, or replaces the one with the same pattern.
    pub fn put(&mut self, one: Arc<Override>) {
        let (domain, pattern) = (one.domain.clone(), one.pattern.clone());
        self.set(domain, &pattern, Some(Arc::new(CachedOverride::new(one))));
    }

    /// Removes the override with this pattern.
    pub fn remove(&mut self, domain: &str, pattern: &[Box<str>]) {
        self.set(domain.into(), pattern, None);
    }

    fn set(&mut self, domain: Box<str>, pattern: &[Box<str>], own: Option<Arc<CachedOverride>>) {
        if domain.is_empty() {
            self.default = self.default.with(pattern, own);
            return;
        }
        let tree = self.domains.get(&domain).cloned().unwrap_or_default().with(pattern, own);
        if tree.is_empty() {
            self.domains.remove_mut(&domain);
        } else {
            self.domains.insert_mut(domain, tree);
        }
    }

    /// Returns the same overrides for another policy, without the changed limits that are cached for this one.
    #[must_use]
    pub fn without_cache(&self) -> Self {
        let mut copy = Self { clock: self.clock.clone(), ..Self::none() };
        let trees = std::iter::once(&self.default).chain(self.domains.values());
        trees.for_each(|tree| tree.each(&mut |one| copy.put(Arc::clone(one))));
        copy
    }

    /// Returns the overrides in force on a key now; `None` if there are none.
    #[inline]
    pub fn active<'k>(
        &self,
        domain: &str,
        segments: impl Iterator<Item = &'k [u8]> + Clone,
    ) -> Option<ActiveOverrides<'_>> {
        let tree = match domain {
            "" => &self.default,
            _ if self.domains.is_empty() => return None,
            named => self.domains.get(named)?,
        };
        if tree.is_empty() {
            return None;
        }
        let mut active = ActiveOverrides { found: SmallVec::new(), ban: None, now: Micros::MIN };
        tree.find(segments, self.clock.as_deref()?, &mut active);
        if active.found.is_empty() && active.ban.is_none() {
            return None;
        }
        active.found.reverse();
        active.found.sort_by_key(|one| one.what.pattern.len());
        Some(active)
    }
}

impl Debug for Overrides {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides").finish_non_exhaustive()
    }
}

impl Node {
    /// Returns a copy with this override at a pattern.
    fn with(&self, pattern: &[Box<str>], own: Option<Arc<CachedOverride>>) -> Self {
        let mut node = self.clone();
        let Some((segment, rest)) = pattern.split_first() else { return Self { own, ..node } };
        let known = match &**segment {
            ANY => self.any.as_ref(),
            segment => self.exact.get(segment.as_bytes()),
        };
        let child =
            known.map_or_else(|| Self::default().with(rest, own.clone()), |known| known.with(rest, own.clone()));
        let child = Some(Arc::new(child)).filter(|child| !child.is_empty());
        match (&**segment, child) {
            (ANY, child) => node.any = child,
            (segment, Some(child)) => node.exact.insert_mut(segment.as_bytes().into(), child),
            (segment, None) => drop(node.exact.remove_mut(segment.as_bytes())),
        }
        node
    }

    fn is_empty(&self) -> bool {
        self.own.is_none() && self.any.is_none() && self.exact.is_empty()
    }

    fn each(&self, visit: &mut impl FnMut(&Arc<Override>)) {
        self.own.iter().for_each(|own| visit(&own.what));
        self.exact.values().chain(&self.any).for_each(|node| node.each(visit));
    }

    /// Adds the overrides in force at this node and below it, exact segments first.
    fn find<'a, 'k>(
        &'a self,
        mut segments: impl Iterator<Item = &'k [u8]> + Clone,
        clock: &dyn Clock,
        active: &mut ActiveOverrides<'a>,
    ) {
        if let Some(own) = &self.own {
            active.add(own, clock);
        }
        let Some(segment) = segments.next() else { return };
        for next in self.exact.get(segment).into_iter().chain(&self.any) {
            next.find(segments.clone(), clock, active);
        }
    }
}

impl<'a> ActiveOverrides<'a> {
    fn add(&mut self, one: &'a CachedOverride, clock: &dyn Clock) {
        if self.now == Micros::MIN {
            self.now = clock.now();
        }
        if !one.what.is_in_force_at(self.now) {
            return;
        }
        if one.what.change == Change::Ban {
            let end = |ban: &CachedOverride| ban.what.end.unwrap_or(Micros::MAX);
            if self.ban.is_none_or(|ban| end(ban) < end(one)) {
                self.ban = Some(one);
            }
        } else {
            self.found.push(one);
        }
    }

    /// Returns the refusal, if one of them is a ban: of several the one that lasts longest, so that a request passes
    /// after its end.
    pub fn ban(&self) -> Option<Overridden<'a>> {
        let Override { id, reason, end, .. } = &*self.ban?.what;
        let ban = Ban { reason, ends_after: end.map(|end| end - self.now) };
        Some(Overridden { id, change: Change::Ban.name(), ban: Some(ban) })
    }

    /// Changes the levels of a request with this factor, and returns the override of the deepest changed level.
    /// Lifted levels are removed. With `kept` every state that may hold units stays in the plan, so that they can be
    /// settled: lifted levels stay, and each level is accompanied by the other states that its
    /// limit has, by the policy and under all overrides in force.
    pub fn change(&self, levels: &mut SmallVec<[Level<'a>; 4]>, factor: f64, kept: bool) -> Option<Overridden<'a>> {
        let (mut deepest, mut others) = (None, Vec::new());
        levels.retain(|level| {
            let written = kept.then(|| level.clone());
            let mut stays = true;
            match self.at(level.depth, level.limit) {
                Applied::Unchanged => {}
                Applied::Lifted(by) => {
                    deepest = Some(by);
                    stays = kept;
                }
                Applied::Changed(limit, by) => {
                    if let Ok(Some(changed)) = level.clone().of_limit(limit).under_factor(factor) {
                        (*level, deepest) = (changed, Some(by));
                    }
                }
            }
            if let Some(written) = written {
                let limits = self.other_states(&written, level.limit).into_iter();
                let others_of = limits.map(|limit| written.clone().of_limit(limit).under_factor(factor));
                others.extend(others_of.filter_map(|level| level.ok().flatten()));
            }
            stays
        });
        if !others.is_empty() {
            levels.extend(others);
            levels.sort_by_key(|level| level.depth);
        }
        deepest
    }

    /// Returns the limits, of the policy and under the overrides in force, whose states a level
    /// could have had instead of the state of its effective limit.
    fn other_states(&self, written: &Level<'a>, in_force: &Limit) -> SmallVec<[&'a Limit; 4]> {
        let matching = self.found.iter().rev().filter(|one| one.what.pattern.len() <= written.depth.into());
        let mut others = SmallVec::<[&Limit; 4]>::new();
        for limit in std::iter::once(written.limit).chain(matching.filter_map(|one| one.changed(written.limit))) {
            let is_new = others.iter().copied().chain([in_force]).all(|known| known.ident() != limit.ident());
            if is_new && others.len() < MAX_OTHER_STATES {
                others.push(limit);
            }
        }
        others
    }

    /// Returns the effect on a limit of the policy that covers `depth` segments.
    pub fn at(&self, depth: u8, limit: &Limit) -> Applied<'a> {
        let mut found = self.found.iter().rev();
        let Some(one) = found.find(|one| one.what.pattern.len() <= depth.into()) else { return Applied::Unchanged };
        let by = Overridden { id: &one.what.id, change: one.what.change.name(), ban: None };
        match one.what.change {
            Change::Unlimited => Applied::Lifted(by),
            _ => one.changed(limit).map_or(Applied::Unchanged, |limit| Applied::Changed(limit, by)),
        }
    }
}

/// The effect of overrides on a limit, with the override.
pub enum Applied<'a> {
    /// No change.
    Unchanged,
    /// The limit does not apply.
    Lifted(Overridden<'a>),
    /// Another limit applies in its place.
    Changed(&'a Limit, Overridden<'a>),
}
