//! The overrides of all domains, found by a key.

use std::{
    collections::HashMap,
    fmt::{self, Debug, Formatter},
    sync::Arc,
};

use smallvec::SmallVec;
use weir_core::{
    domain::{Clock, Micros},
    plan::{Ban, Level, Limit, Overridden},
};

use super::{ANY, Active, Change, Override};

/// The overrides over one policy.
///
/// At each level the override of the most segments acts, of those that are not longer than what the limit covers; of several
/// of one length the first with an exact segment where the others have [`ANY`]. A ban acts whatever else does.
pub struct Overrides {
    domains: HashMap<Box<str>, Tree, foldhash::fast::RandomState>,
    clock: Option<Arc<dyn Clock>>,
    all: Vec<Arc<Override>>,
}

/// A domain's, by their patterns. The root is the first.
struct Tree(Vec<Node>);

impl Default for Tree {
    fn default() -> Self {
        Self(vec![Node::default()])
    }
}

#[derive(Default)]
struct Node {
    exact: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    any: Option<u32>,
    /// The override whose pattern ends here.
    own: Option<Box<Active>>,
}

/// The overrides that act on a key: of each length at most one, the shortest first.
pub struct Acting<'a> {
    found: SmallVec<[&'a Active; 4]>,
    ban: Option<&'a Active>,
    now: Micros,
}

impl Overrides {
    /// None.
    pub fn none() -> Self {
        Self { domains: HashMap::default(), clock: None, all: Vec::new() }
    }

    /// These, of which no two are for the same keys. The clock says which act.
    pub fn new(all: Vec<Arc<Override>>, clock: Arc<dyn Clock>) -> Self {
        Self::compiled(all, Some(clock))
    }

    /// The same, for another policy: what they have made of its limits is not theirs any more.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::compiled(self.all.clone(), self.clock.clone())
    }

    fn compiled(all: Vec<Arc<Override>>, clock: Option<Arc<dyn Clock>>) -> Self {
        let mut domains: HashMap<_, Tree, _> = HashMap::default();
        for one in &all {
            domains.entry(one.domain.clone()).or_default().add(Arc::clone(one));
        }
        Self { domains, clock, all }
    }

    /// Those that act on a key now.
    #[inline]
    pub fn acting<'k>(&self, domain: &str, segments: impl Iterator<Item = &'k [u8]>) -> Option<Acting<'_>> {
        if self.domains.is_empty() {
            return None;
        }
        let tree = self.domains.get(domain)?;
        let segments: SmallVec<[&[u8]; 8]> = segments.collect();
        let mut acting = Acting { found: SmallVec::new(), ban: None, now: Micros::MIN };
        tree.find(0, &segments, self.clock.as_deref()?, &mut acting);
        if acting.found.is_empty() {
            return None;
        }
        acting.found.sort_by_key(|active| active.what.pattern.len());
        Some(acting)
    }
}

impl Debug for Overrides {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.domains.keys()).finish()
    }
}

impl Tree {
    fn add(&mut self, one: Arc<Override>) {
        let mut node = 0_u32;
        for segment in &one.pattern {
            let next = self.0.len() as u32;
            let Node { exact, any, .. } = &mut self.0[node as usize];
            node = match &**segment {
                ANY => *any.get_or_insert(next),
                segment => *exact.entry(segment.as_bytes().into()).or_insert(next),
            };
            if node == next {
                self.0.push(Node::default());
            }
        }
        self.0[node as usize].own = Some(Box::new(Active::new(one)));
    }

    /// Adds what acts at this node and below it, exact segments first.
    fn find<'a>(&'a self, node: u32, segments: &[&[u8]], clock: &dyn Clock, acting: &mut Acting<'a>) {
        let node = &self.0[node as usize];
        if let Some(own) = &node.own {
            acting.add(own, clock);
        }
        let Some((segment, rest)) = segments.split_first() else { return };
        for next in node.exact.get(*segment).into_iter().chain(&node.any) {
            self.find(*next, rest, clock, acting);
        }
    }
}

impl<'a> Acting<'a> {
    fn add(&mut self, one: &'a Active, clock: &dyn Clock) {
        if self.now == Micros::MIN {
            self.now = clock.now();
        }
        if !one.what.acts_at(self.now) {
            return;
        }
        if one.what.change == Change::Ban {
            self.ban = self.ban.or(Some(one));
        }
        // The more exact one of this length was found before.
        if self.found.iter().all(|found| found.what.pattern.len() != one.what.pattern.len()) {
            self.found.push(one);
        }
    }

    /// The refusal, where it is one.
    pub fn ban(&self) -> Option<Overridden<'a>> {
        let Override { id, reason, end, .. } = &*self.ban?.what;
        let ban = Ban { reason, ends_after: end.map(|end| end - self.now) };
        Some(Overridden { id, change: Change::Ban.name(), ban: Some(ban) })
    }

    /// Changes the levels of a request of this factor; those that are lifted are left out, unless they are `kept`, because what
    /// is held of them is given back. The override that acts on the deepest level that it changes.
    pub fn change(&self, levels: &mut SmallVec<[Level<'a>; 4]>, factor: f64, kept: bool) -> Option<Overridden<'a>> {
        let mut deepest = None;
        levels.retain(|level| {
            let (limit, by) = match self.at(level.depth, level.limit) {
                Applied::Unchanged => return true,
                Applied::Lifted(by) => {
                    deepest = Some(by);
                    return kept;
                }
                Applied::Changed(limit, by) => (limit, by),
            };
            let Ok(Some(changed)) = level.clone().of_limit(limit).under_factor(factor) else {
                return true;
            };
            *level = changed;
            deepest = Some(by);
            true
        });
        deepest
    }

    /// What becomes of a limit of the policy that covers so many segments.
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

/// What becomes of a limit, and by which override.
pub enum Applied<'a> {
    /// It stays as it is.
    Unchanged,
    /// It does not count.
    Lifted(Overridden<'a>),
    /// This stands in its place.
    Changed(&'a Limit, Overridden<'a>),
}
