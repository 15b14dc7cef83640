//! The division: levels, their buckets, and the rates of the holders.

use std::collections::{BTreeSet, HashSet};

use slab::Slab;
use smallvec::SmallVec;

use super::{
    Assignment, BucketId, Change, HolderStatus, LevelId, Load, MAX_RATE, MemberId, QuotaTiming, ReportOutcome, Steps,
    Usage,
    bucket::{Bucket, Divided, Headroom},
    member::Member,
    share::max_min_with_surplus,
};
use crate::domain::Micros;

/// Divides rates among holders; see [the module](super).
#[derive(Clone, Debug, Default)]
pub struct Divider {
    timing: QuotaTiming,
    levels: Slab<Level>,
    buckets: Slab<Bucket>,
    members: usize,
}

#[derive(Clone, Debug)]
struct Level {
    parent: Option<usize>,
    rate: u64,
    budget: u64,
    /// Rates that may be in use below it.
    live: u64,
    levels: Vec<usize>,
    buckets: Vec<usize>,
    demand: u64,
    /// The rate that it takes to confirm returning holders.
    returning: u64,
    /// The times of the next and of the last division below it, for a level without a parent.
    due: Micros,
    divided: Micros,
}

impl Divider {
    /// Creates a divider without levels.
    pub fn new(timing: QuotaTiming) -> Self {
        Self { timing, ..Self::default() }
    }

    /// Returns the timing of assignments.
    pub fn timing(&self) -> &QuotaTiming {
        &self.timing
    }

    /// Adds a limit of this rate below another one, without a budget.
    pub fn add_level(&mut self, parent: Option<LevelId>, rate: u64) -> LevelId {
        let level = Level {
            parent: parent.map(|parent| parent.0),
            rate: rate.min(MAX_RATE),
            budget: 0,
            live: 0,
            levels: Vec::new(),
            buckets: Vec::new(),
            demand: 0,
            returning: 0,
            due: Micros::MAX,
            divided: Micros::MIN,
        };
        let id = self.levels.insert(level);
        if let Some(parent) = parent.and_then(|parent| self.levels.get_mut(parent.0)) {
            parent.levels.push(id);
        }
        LevelId(id)
    }

    /// Moves a limit below another one, or below none. `parent` must not be below it.
    pub fn set_parent(&mut self, level: LevelId, parent: Option<LevelId>, now: Micros) {
        let (id, parent) = (level.0, parent.map(|parent| parent.0));
        let Some(found) = self.levels.get_mut(id).filter(|found| found.parent != parent) else { return };
        let former = std::mem::replace(&mut found.parent, parent);
        // Only a level without a parent has a due time.
        found.due = Micros::MAX;
        if let Some(former) = former {
            self.levels.get_mut(former).into_iter().for_each(|former| former.levels.retain(|other| *other != id));
            self.due(former, now);
        }
        if let Some(parent) = parent.and_then(|parent| self.levels.get_mut(parent)) {
            parent.levels.push(id);
        }
        self.set_min_rates(id);
        self.due(id, now);
    }

    /// Changes the rate of a limit. The steps of the buckets below it stay.
    pub fn set_rate(&mut self, level: LevelId, rate: u64, now: Micros) {
        if let Some(found) = self.levels.get_mut(level.0) {
            found.rate = rate.min(MAX_RATE);
        }
        self.set_min_rates(level.0);
        self.due(level.0, now);
    }

    /// Updates the rates of the buckets below a level after its rate, or the rate of a level above
    /// it, has changed.
    fn set_min_rates(&mut self, id: usize) {
        let rate = self.min_rate(id);
        let Some(level) = self.levels.get_mut(id) else { return };
        let levels = std::mem::take(&mut level.levels);
        for bucket in &level.buckets {
            self.buckets.get_mut(*bucket).into_iter().for_each(|bucket| bucket.rate = rate);
        }
        levels.iter().for_each(|below| self.set_min_rates(*below));
        if let Some(level) = self.levels.get_mut(id) {
            level.levels = levels;
        }
    }

    /// Sets the rate that the authority has granted.
    pub fn set_budget(&mut self, level: LevelId, budget: u64, now: Micros) {
        if let Some(found) = self.levels.get_mut(level.0)
            && found.budget != budget
        {
            found.budget = budget;
            self.due(level.0, now);
        }
    }

    /// Returns the rates that the holders below a level demand and may be using.
    pub fn load(&self, level: LevelId) -> Load {
        let load = |level: &Level| Load { demand: level.demand, live: level.live, returning: level.returning };
        self.levels.get(level.0).map_or_else(Load::default, load)
    }

    /// Adds a bucket without holders, with this as its lowest limit.
    pub fn add_bucket(&mut self, level: LevelId) -> BucketId {
        let id = self.buckets.insert(Bucket::new(level.0, self.min_rate(level.0)));
        if let Some(level) = self.levels.get_mut(level.0) {
            level.buckets.push(id);
        }
        BucketId(id)
    }

    /// Returns the steps in which a bucket's rates are assigned.
    pub fn steps(&self, bucket: BucketId) -> Option<Steps> {
        self.buckets.get(bucket.0).map(|bucket| bucket.steps)
    }

    /// Whether the holders of a bucket may keep their assignments when the least rate of its limits becomes this.
    pub fn keeps_holders_at(&self, bucket: BucketId, rate: u64) -> bool {
        self.buckets.get(bucket.0).is_some_and(|bucket| bucket.keeps_holders_at(rate))
    }

    /// Returns the least rate of a bucket's limits and its demand, in thousandths of a request a second.
    pub fn rate_and_demand(&self, bucket: BucketId) -> Option<(u64, u64)> {
        self.buckets.get(bucket.0).map(|bucket| (bucket.rate, bucket.demand()))
    }

    /// Returns the status of a bucket's holders.
    pub fn holders(&self, bucket: BucketId) -> impl Iterator<Item = HolderStatus> {
        let members = self.buckets.get(bucket.0).into_iter().flat_map(|bucket| bucket.members.iter());
        members.map(|(id, member)| member.status(MemberId(id)))
    }

    /// Adds a holder by its first report. Its assignment comes with a tick.
    pub fn join(&mut self, bucket: BucketId, usage: &Usage, now: Micros) -> Option<MemberId> {
        let member = Member::new(usage, &self.timing, now);
        let found = self.buckets.get_mut(bucket.0)?;
        let (id, level) = (found.members.insert(member), found.level);
        self.members += 1;
        self.due(level, now);
        Some(MemberId(id))
    }

    /// Records another report of a holder; `None` if the holder is unknown.
    pub fn report(&mut self, bucket: BucketId, member: MemberId, usage: &Usage, now: Micros) -> Option<ReportOutcome> {
        let found = self.buckets.get_mut(bucket.0)?;
        let level = found.level;
        let holder = found.members.get_mut(member.0).filter(|holder| !holder.has_left)?;
        if !holder.report(usage, &self.timing, now) {
            self.leave(bucket, member, 0, now);
            return Some(ReportOutcome::Abandoned);
        }
        let outcome = holder.renew(&self.timing, now).map_or(ReportOutcome::Waits, ReportOutcome::Renewed);
        let root = self.root(level);
        if let Some(root) = self.levels.get_mut(root) {
            root.due = root.due.min(now.max(root.divided.saturating_add(self.timing.interval)));
        }
        Some(outcome)
    }

    /// Marks a holder as gone. Its rate counts until it expires, at most `at_most` from now.
    pub fn leave(&mut self, bucket: BucketId, member: MemberId, at_most: Micros, now: Micros) {
        let Some(found) = self.buckets.get_mut(bucket.0) else { return };
        if let Some(holder) = found.members.get_mut(member.0) {
            holder.leave(now.saturating_add(at_most), &self.timing);
            let level = found.level;
            self.due(level, now);
        }
    }

    /// Renews a holder's assignment from now; `None` if nothing was assigned to it yet.
    pub fn renew(&mut self, bucket: BucketId, member: MemberId, now: Micros) -> Option<Assignment> {
        self.buckets.get_mut(bucket.0)?.members.get_mut(member.0)?.renew(&self.timing, now)
    }

    /// Runs the divisions that are due.
    pub fn tick(&mut self, now: Micros, changes: &mut Vec<Change>) {
        let due: Vec<usize> = self.levels.iter().filter(|(_, level)| level.due <= now).map(|(id, _)| id).collect();
        for root in due {
            self.measure(root, now);
            let mut divided = self.divide_level(root, MAX_RATE, false, now, changes);
            if divided.lacks {
                divided = self.divide_level(root, MAX_RATE, true, now, changes);
            }
            if let Some(level) = self.levels.get_mut(root) {
                level.divided = now;
                level.due =
                    if divided.is_unsettled { now + self.timing.lag.min(self.timing.interval) } else { Micros::MAX };
            }
        }
    }

    /// Removes buckets without holders.
    pub fn remove_empty_buckets(&mut self) -> Vec<BucketId> {
        let empty = |bucket: &&(usize, &Bucket)| bucket.1.members.is_empty();
        let removed: Vec<usize> = self.buckets.iter().filter(|bucket| empty(&bucket)).map(|(id, _)| id).collect();
        let mut above = BTreeSet::new();
        above.extend(removed.iter().filter_map(|id| self.buckets.try_remove(*id)).map(|bucket| bucket.level));
        // Once for each level, however many of its buckets were removed.
        for level in above {
            if let Some(level) = self.levels.get_mut(level) {
                level.buckets.retain(|id| self.buckets.get(*id).is_some());
            }
        }
        removed.into_iter().map(BucketId).collect()
    }

    /// Removes levels with nothing below them, then those above them that have become empty.
    pub fn remove_empty_levels(&mut self) -> HashSet<LevelId> {
        let mut removed = HashSet::new();
        let is_empty = |level: &Level| level.levels.is_empty() && level.buckets.is_empty();
        let mut empty: BTreeSet<usize> =
            self.levels.iter().filter(|(_, level)| is_empty(level)).map(|(id, _)| id).collect();
        while !empty.is_empty() {
            let above: BTreeSet<usize> =
                empty.iter().filter_map(|id| self.levels.try_remove(*id)).filter_map(|level| level.parent).collect();
            for parent in &above {
                let Some(level) = self.levels.get_mut(*parent) else { continue };
                let mut levels = std::mem::take(&mut level.levels);
                levels.retain(|id| self.levels.get(*id).is_some());
                self.levels.get_mut(*parent).into_iter().for_each(|level| level.levels.append(&mut levels));
            }
            removed.extend(std::mem::take(&mut empty).into_iter().map(LevelId));
            empty.extend(above.into_iter().filter(|id| self.levels.get(*id).is_some_and(is_empty)));
        }
        removed
    }

    /// Returns the numbers of buckets and of holders, including holders that have left and may still spend.
    pub fn counts(&self) -> (usize, usize) {
        (self.buckets.len(), self.members)
    }

    fn due(&mut self, level: usize, now: Micros) {
        let root = self.root(level);
        if let Some(root) = self.levels.get_mut(root) {
            root.due = root.due.min(now);
        }
    }

    /// Returns a level and those above it.
    fn path(&self, level: usize) -> SmallVec<[usize; 4]> {
        let mut path = SmallVec::new();
        let mut next = Some(level);
        while let Some((id, level)) = next.and_then(|id| Some((id, self.levels.get(id)?))) {
            path.push(id);
            next = level.parent;
        }
        path
    }

    fn root(&self, level: usize) -> usize {
        self.path(level).last().copied().unwrap_or(level)
    }

    fn min_rate(&self, level: usize) -> u64 {
        self.path(level).iter().filter_map(|id| self.levels.get(*id)).map(|level| level.rate).min().unwrap_or(0)
    }

    /// Drops expired rates below a level, and sums up the demand and the rates in use.
    fn measure(&mut self, id: usize, now: Micros) {
        let Some(level) = self.levels.get_mut(id) else { return };
        let (levels, buckets) = (std::mem::take(&mut level.levels), std::mem::take(&mut level.buckets));
        let (mut demand, mut live, mut returning) = (0, 0, 0);
        for below in &levels {
            self.measure(*below, now);
            if let Some(below) = self.levels.get(*below) {
                (demand, live, returning) = (demand + below.demand, live + below.live, returning + below.returning);
            }
        }
        for bucket in &buckets {
            if let Some(bucket) = self.buckets.get_mut(*bucket) {
                let before = bucket.members.len();
                let load = bucket.measure(&self.timing, now);
                self.members -= before - bucket.members.len();
                (demand, live, returning) = (demand + load.demand, live + load.live, returning + load.returning);
            }
        }
        if let Some(level) = self.levels.get_mut(id) {
            (level.levels, level.buckets) = (levels, buckets);
            (level.demand, level.live, level.returning) = (demand.min(level.rate), live, returning.min(level.rate));
        }
    }

    /// Divides the rate of a level among the levels and buckets below it. `is_wanted`: a bucket below the same levels
    /// lacks rate.
    fn divide_level(
        &mut self,
        id: usize,
        allowance: u64,
        is_wanted: bool,
        now: Micros,
        changes: &mut Vec<Change>,
    ) -> Divided {
        let Some(level) = self.levels.get_mut(id) else { return Divided::default() };
        let amount = allowance.min(level.budget);
        let (levels, buckets) = (std::mem::take(&mut level.levels), std::mem::take(&mut level.buckets));
        let below = levels.iter().map(|below| self.levels.get(*below).map_or(0, |level| level.demand));
        let beside = buckets.iter().map(|id| self.buckets.get(*id).map_or(0, Bucket::demand));
        let mut shares = max_min_with_surplus(amount, &below.chain(beside).collect::<Vec<_>>()).into_iter();
        let mut all = Divided::default();
        let path = self.path(id);
        for (below, share) in levels.iter().zip(shares.by_ref()) {
            all.add(self.divide_level(*below, share, is_wanted, now, changes));
        }
        for (bucket, share) in buckets.iter().zip(shares) {
            let headroom = self.headroom(&path, is_wanted);
            let Some(found) = self.buckets.get_mut(*bucket) else { continue };
            let divided = found.divide(BucketId(*bucket), share, headroom, (&self.timing, now), changes);
            for level in &path {
                if let Some(level) = self.levels.get_mut(*level) {
                    level.live += divided.more;
                }
            }
            all.add(divided);
        }
        if let Some(level) = self.levels.get_mut(id) {
            (level.levels, level.buckets) = (levels, buckets);
        }
        all
    }

    /// Returns the rate that may still be handed out below all levels of a path.
    fn headroom(&self, path: &[usize], is_wanted: bool) -> Headroom {
        let levels = || path.iter().filter_map(|id| self.levels.get(*id));
        Headroom {
            free: levels().map(|level| level.budget.saturating_sub(level.live)).min().unwrap_or(0),
            is_over: levels().any(|level| level.live > level.budget),
            is_wanted,
        }
    }
}
