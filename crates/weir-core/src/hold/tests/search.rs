//! Every order of events at small scope: two holders of a bucket of a few units, whose checks, renewals and replies
//! are delivered in any order, lost, served twice or timed out early, while time passes and the key is reset.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use super::{
    mutations::Mutation,
    store::{Limits, Store},
};
use crate::{
    algorithm::Params,
    domain::Micros,
    hold::{Balance, Grant, Hold, HoldId, Holder, LeaseTerms, Ledger, OnShortage, Renewal, Spend},
    testing::{Random, parse},
};

const CAPACITY: i64 = 3;
/// Time in which one unit is refilled.
const PER_UNIT: i64 = 2;
const TERMS: LeaseTerms = LeaseTerms { ttl: 3, horizon: 310_000, hold_off: 1, scarce: 0 };

fn bucket() -> Params {
    parse("token_bucket", &[("capacity", "3"), ("count", "1"), ("period", "2us")])
}

/// Events that may still occur.
#[derive(Clone, Copy, Debug)]
struct Left {
    checks: u8,
    renewals: u8,
    time: u8,
    losses: u8,
    copies: u8,
    resets: u8,
}

#[derive(Clone, Debug)]
enum Message {
    Request { holder: usize, cost: i64, renewal: Option<Renewal> },
    Reply { holder: usize, grant: Grant, refused: bool },
}

/// A state of the whole system.
#[derive(Clone, Debug)]
struct Node {
    now: Micros,
    store: Store,
    holders: [(Balance, Holder); 2],
    network: Vec<Message>,
    /// The ideal bucket: its level at `now`, in units of 1 / `PER_UNIT`.
    level: i64,
    left: Left,
}

struct Search {
    limits: Limits,
    mutation: Option<Mutation>,
}

/// Whether more was admitted than the bucket allows.
fn exceeds_limit(node: &Node) -> bool {
    node.level > CAPACITY * PER_UNIT
}

impl Search {
    fn new(mutation: Option<Mutation>) -> Self {
        Self { limits: Limits::new(&[bucket()]), mutation }
    }

    fn first(&self, left: Left) -> Node {
        let holder = |owner| (Balance::default(), Holder::new(HoldId { owner, number: 0 }, TERMS, 0));
        let store = Store::new(self.mutation == Some(Mutation::DrainOutstanding));
        Node { now: 0, store, holders: [holder(1), holder(2)], network: Vec::new(), level: 0, left }
    }

    /// Visits all states, and returns their number.
    fn exhaust(&self, left: Left) -> usize {
        let (mut seen, mut stack) = (HashSet::new(), vec![self.first(left)]);
        while let Some(node) = stack.pop() {
            assert!(!exceeds_limit(&node), "{node:#?}");
            for next in self.followers(&node) {
                let mut hasher = DefaultHasher::new();
                format!("{next:?}").hash(&mut hasher);
                if seen.insert(hasher.finish()) {
                    stack.push(next);
                }
            }
        }
        seen.len()
    }

    /// Follows one random path to its end, and returns whether more was admitted than the bucket allows.
    fn walk(&self, left: Left, random: &mut Random) -> bool {
        let mut node = self.first(left);
        loop {
            let mut followers = self.followers(&node);
            if exceeds_limit(&node) || followers.is_empty() {
                return exceeds_limit(&node);
            }
            node = followers.swap_remove(random.below(followers.len()));
        }
    }

    /// Returns all possible next states.
    fn followers(&self, node: &Node) -> Vec<Node> {
        let mut followers = Vec::new();
        let Left { checks, renewals, time, losses, copies, resets } = node.left;
        if time > 0 {
            let mut next = node.clone();
            next.left.time -= 1;
            next.now += 1;
            next.level = (next.level - 1).max(0);
            followers.push(next);
        }
        if resets > 0 {
            let mut next = node.clone();
            next.left.resets -= 1;
            next.level = 0;
            next.store.reset(next.now);
            if self.mutation == Some(Mutation::ResetDropsHolds) {
                next.store.ledgers = Default::default();
            }
            followers.push(next);
        }
        for holder in 0..2 {
            if checks > 0 {
                let mut next = node.clone();
                next.left.checks -= 1;
                self.check(&mut next, holder);
                followers.push(next);
            }
            if renewals > 0 {
                let mut next = node.clone();
                next.left.renewals -= 1;
                let (balance, state) = &mut next.holders[holder];
                if let Some(renewal) = state.low(balance, next.now) {
                    next.network.push(Message::Request { holder, cost: 0, renewal: Some(renewal) });
                    followers.push(next);
                }
            }
            if let (Some(pending), 1..) = (&node.holders[holder].1.pending, losses) {
                let sequence = pending.renewal.sequence;
                let mut next = node.clone();
                next.left.losses -= 1;
                let (balance, state) = &mut next.holders[holder];
                state.lost(balance, sequence);
                followers.push(next);
            }
        }
        for index in 0..node.network.len() {
            let mut next = node.clone();
            let message = next.network.remove(index);
            if let (Message::Request { holder, renewal, .. }, 1..) = (&message, copies) {
                let mut twice = node.clone();
                twice.left.copies -= 1;
                twice.network.push(Message::Request { holder: *holder, cost: 0, renewal: *renewal });
                followers.push(twice);
            }
            if losses > 0 {
                let mut lost = next.clone();
                lost.left.losses -= 1;
                followers.push(lost);
            }
            self.deliver(&mut next, message);
            followers.push(next);
        }
        followers
    }

    fn check(&self, node: &mut Node, holder: usize) {
        let read = if self.mutation == Some(Mutation::SpendAfterDeadline) { Micros::MIN + 1 } else { node.now };
        let (balance, state) = &mut node.holders[holder];
        match balance.spend(1, read) {
            Spend::Short => match state.short(balance, 1, node.now) {
                OnShortage::Refuse { .. } => {}
                OnShortage::Store(renewal) => node.network.push(Message::Request { holder, cost: 1, renewal }),
            },
            Spend::Spent | Spend::Low => node.level += PER_UNIT,
        }
    }

    fn deliver(&self, node: &mut Node, message: Message) {
        match message {
            Message::Request { holder, cost, renewal } => {
                if self.mutation == Some(Mutation::RefundExpiredHolds) {
                    let holds = node.store.ledgers[0].holds();
                    let left = holds.iter().filter(|hold| hold.deadline > node.now).copied().collect();
                    node.store.ledgers[0] = Ledger::of(left);
                }
                if self.mutation == Some(Mutation::AcceptDuplicateRenewal) {
                    let ledger = &mut node.store.ledgers[0];
                    let is_again =
                        |hold: &&mut Hold| renewal.is_some_and(|it| (it.id, it.sequence) == (hold.id, hold.sequence));
                    ledger.holds.iter_mut().filter(is_again).for_each(|hold| hold.sequence -= 1);
                }
                let (allowed, grant) = node.store.serve(&self.limits, node.now, cost, renewal.as_ref());
                if allowed {
                    node.level += cost * PER_UNIT;
                }
                if let Some(grant) = grant {
                    if self.mutation == Some(Mutation::DrainOutstanding) {
                        node.store.charge_granted(&self.limits, grant.units);
                    }
                    node.network.push(Message::Reply { holder, grant, refused: !allowed });
                }
            }
            Message::Reply { holder, grant, refused } => {
                let (balance, state) = &mut node.holders[holder];
                state.answered(balance, &grant, refused, node.now);
            }
        }
    }
}

const SCOPE: Left = Left { checks: 3, renewals: 0, time: 3, losses: 0, copies: 0, resets: 0 };

#[test]
fn no_order_of_events_lets_more_pass_than_the_limit() {
    // Each scope omits some events, so that the others go further.
    for scope in [
        SCOPE,
        Left { losses: 1, checks: 2, ..SCOPE },
        Left { copies: 1, checks: 2, ..SCOPE },
        Left { renewals: 1, checks: 2, ..SCOPE },
        Left { resets: 1, ..SCOPE },
        Left { checks: 4, time: 2, ..SCOPE },
    ] {
        println!("{scope:?}: {} states", Search::new(None).exhaust(scope));
    }
}

#[test]
fn breaks_show_at_small_scope() {
    let scope = Left { checks: 12, renewals: 2, time: 9, losses: 1, copies: 1, resets: 1 };
    for mutation in [
        None,
        Some(Mutation::SpendAfterDeadline),
        Some(Mutation::ResetDropsHolds),
        Some(Mutation::RefundExpiredHolds),
        Some(Mutation::DrainOutstanding),
        Some(Mutation::AcceptDuplicateRenewal),
    ] {
        let (search, random) = (Search::new(mutation), Random::new(1));
        let found = (0..WALKS).find(|walk| search.walk(scope, &mut random.fork(*walk)));
        println!("{mutation:?}: {found:?} (walks)");
        assert_eq!(found.is_some(), mutation.is_some(), "{mutation:?}: {found:?}");
    }
}

const WALKS: u64 = 5_000;
