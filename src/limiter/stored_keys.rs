//! Lists the stored keys with their usage, as a preview (cost 0) reports it. Nothing is charged, stored or counted.

use std::borrow::Cow;

use futures_util::{StreamExt, TryStreamExt, stream};
use smallvec::SmallVec;
use tokio::task::yield_now;
use weir_core::{
    domain::{Charge, Decision, Key, key::domain_name},
    plan::Level,
};
use weir_policy::{Domain, Policy, overrides::Applied, tree::DEFAULT_ANCHOR};
use weir_store::{
    AnyStore, Failure,
    scan::{Page, Scan, ScanError, Stored, Wanted},
};

use super::{CheckError, Invalid, Limiter, PolicyHandle, Request, request::plan_in};

/// Keys of a page that are read concurrently. They share round trips.
const AT_ONCE: usize = 64;

/// The keys to list.
#[derive(Clone, Debug)]
pub struct KeyQuery<'a> {
    /// Only keys of this domain; `None`: keys of all domains.
    pub domain: Option<&'a str>,
    /// Only this key and the keys below it; `None`: all keys of the domain.
    pub prefix: Option<Key>,
    /// Approximate size of a page.
    pub count: usize,
}

/// One stored limit of one key.
#[derive(Debug)]
pub struct StoredKey {
    /// The domain; `None` if unknown: for a long name the store has only a hash.
    pub domain: Option<Box<str>>,
    /// The key, as far as the limit covers it. For long segments the store has only hashes.
    pub key: Key,
    /// The limit's name; its name in the store if it is not in the policy.
    pub limit: Box<str>,
    /// The usage; `None`: the limit is not in the policy, or the state cannot be read.
    pub usage: Option<Usage>,
}

/// The usage of a limit by one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The decision on a preview (cost 0). Held units count as used.
    pub decision: Decision,
    /// Whether the limit refuses nothing: it is in shadow mode, or an override lifts it.
    pub shadow: bool,
    /// Units that are leased or reserved.
    pub outstanding: u64,
}

impl KeyQuery<'_> {
    pub(super) fn scan(&self, policy: &Policy, wanted: Wanted) -> Scan {
        let domain = |name| policy.domain(name).map_or(DEFAULT_ANCHOR, |domain| domain.anchor);
        let (prefix, anchor_path) = match (&self.prefix, self.domain) {
            (Some(key), name) => {
                let anchor = usize::from(domain(name.unwrap_or_default()));
                let anchor_path = (key.depth() >= anchor).then(|| key.prefix(anchor).to_vec());
                (key.prefix(key.depth()).to_vec(), anchor_path)
            }
            (None, Some(name)) => (domain_name(name), None),
            (None, None) => (Vec::new(), None),
        };
        Scan { prefix, anchor_path, wanted, count: self.count }
    }
}

impl Limiter<AnyStore> {
    /// Returns a page of the stored keys, and the cursor of the next page.
    ///
    /// # Errors
    /// [`CheckError`] for a cursor of another query, and if the store fails. The page can be requested again.
    pub async fn stored_keys(
        &self,
        query: &KeyQuery<'_>,
        cursor: Option<&[u8]>,
    ) -> Result<(Vec<StoredKey>, Option<Vec<u8>>), CheckError> {
        let handle = self.policy();
        let page = self.page(&query.scan(&handle.policy, Wanted::States), cursor).await?;
        let named = page.states.into_iter().filter_map(|state| Some((Key::of_name(&state.name)?, state)));
        let named: Vec<_> = named.collect();
        let of_one_key = named.chunk_by(|(one, _), (other, _)| one == other);
        let reads: Vec<_> = of_one_key.map(|states| self.usage(&handle, states)).collect();
        let keys: Vec<_> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        Ok((keys.into_iter().flatten().collect(), page.next))
    }

    pub(super) async fn page(&self, scan: &Scan, cursor: Option<&[u8]>) -> Result<Page, CheckError> {
        self.store.scan(scan, cursor).await.map_err(|error| match error {
            ScanError::Cursor => Invalid::field_error("cursor", error.to_string()).into(),
            ScanError::Store(error) => CheckError::from(error),
        })
    }

    /// Returns the usage of the states of one key, without expired ones.
    async fn usage(&self, handle: &PolicyHandle, states: &[(Key, Stored)]) -> Result<Vec<StoredKey>, Failure> {
        let Some((key, _)) = states.first() else { return Ok(Vec::new()) };
        // The memory store never waits. Yielding lets the checks of this thread run between the keys of a page.
        yield_now().await;
        let domain = domain_of(&handle.policy, key);
        let request = preview_request(domain, key);
        let is_stored = |name: &[u8]| states.iter().any(|(_, state)| state.name == *name);
        let levels = domain.map(|domain| levels(&handle.policy, domain, &request, is_stored)).unwrap_or_default();
        let written = domain.and_then(|domain| request.levels(domain).ok()).unwrap_or_default();
        let active = handle.policy.overrides().active(&request.domain, key.segments());
        // The effect of the overrides on the policy's limit of a level.
        let effect = |level: &Level<'_>| {
            let own = written.iter().find(|own| (own.depth, own.limit.index) == (level.depth, level.limit.index))?;
            Some((own.limit, active.as_ref().map_or(Applied::Unchanged, |active| active.at(own.depth, own.limit))))
        };
        let mut plan = plan_in(domain, levels, Charge::Independent, None);
        (plan.dry_run, plan.is_preview) = (true, true);
        let decisions = match self.store.stored_verdict(&plan).await {
            _ if plan.levels().is_empty() => Vec::new(),
            Ok(verdict) => verdict.decisions.to_vec(),
            // One unreadable state must not prevent the others from being listed.
            Err(Failure::Corrupt(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        let is_shadow = plan.is_shadow;
        let known: SmallVec<[_; 4]> = plan.levels().iter().zip(decisions).collect();
        let stored = states.iter().filter_map(|(key, state)| {
            let ident = &state.name[key.prefix(key.depth()).len()..];
            let found = known.iter().find(|(level, _)| level.limit.ident() == ident).map(|(level, decision)| {
                let is_lifted = matches!(effect(level), Some((_, Applied::Lifted(_))));
                let shadow = level.limit.shadow || is_shadow || is_lifted;
                (*level, Usage { decision: *decision, shadow, outstanding: state.outstanding() })
            });
            let is_over = |usage: &Usage| usage.decision.reset_after == 0 && usage.outstanding == 0;
            if found.as_ref().is_some_and(|(_, usage)| is_over(usage)) {
                return None;
            }
            // Only one state of a limit that overrides gave several limits anything: the others are listed as of no limit
            // of the policy.
            let is_replaced = |level: &Level<'_>| {
                effect(level).is_some_and(|(written, effect)| {
                    let in_force = if let Applied::Changed(limit, _) = effect { limit } else { written };
                    level.limit.ident() != in_force.ident()
                })
            };
            let found = found.filter(|(level, _)| !is_replaced(level));
            let limit = found.map_or_else(|| unknown_limit(ident), |(level, _)| level.limit.name.clone());
            let usage = found.map(|(_, usage)| usage);
            Some(StoredKey { domain: name_of(domain, key), key: key.clone(), limit, usage })
        });
        Ok(stored.collect())
    }
}

/// Whether a state may be of a limit of the policy, or of one that an override gave. The levels of its key tell, unless it
/// has hashed segments or counts together with others, which overrides may name.
pub fn may_be_in_force(policy: &Policy, state_name: &[u8]) -> bool {
    let Some(key) = Key::of_name(state_name) else { return true };
    let Some(domain) = domain_of(policy, &key) else { return false };
    if (0..key.depth()).any(|index| key.is_hashed(index)) || domain.shares_counts(key.segments()) {
        return true;
    }
    let request = preview_request(Some(domain), &key);
    !levels(policy, domain, &request, |name| name == state_name).is_empty()
}

/// Returns a preview request that resolves the levels of a stored key.
pub(super) fn preview_request(domain: Option<&Domain>, key: &Key) -> Request<'static> {
    let domain = domain.map_or("", |domain| &domain.name).to_owned();
    Request { cost: 0, dry_run: true, ..Request::of_key(Cow::Owned(domain), key.clone()) }
}

/// Returns the domain's name, if known: for a long name the store has only a hash.
pub(super) fn name_of(domain: Option<&Domain>, key: &Key) -> Option<Box<str>> {
    domain.map(|domain| domain.name.clone()).or_else(|| written_domain(key))
}

/// Returns the name in the store of a limit that is not in the policy.
pub(super) fn unknown_limit(ident: &[u8]) -> Box<str> {
    String::from_utf8_lossy(&ident[1..]).into()
}

/// Returns the domain of a key, if the policy defines it.
pub(super) fn domain_of<'p>(policy: &'p Policy, key: &Key) -> Option<&'p Domain> {
    let by_name = std::str::from_utf8(key.domain()).ok().and_then(|name| policy.domain(name));
    // A search through all domains takes long.
    let is_hashed = by_name.is_none() && written_domain(key).is_none();
    let by_hash = is_hashed.then(|| policy.domains().find(|domain| domain_name(&domain.name) == key.prefix(0)));
    by_name.or_else(|| by_hash.flatten())
}

/// Returns the name of a domain that the policy does not define; `None` if the store has only its hash.
fn written_domain(key: &Key) -> Option<Box<str>> {
    let name = std::str::from_utf8(key.domain()).ok()?;
    (domain_name(name) == key.prefix(0)).then(|| name.into())
}

/// Returns the key's own levels that have one of these states, with overrides applied. Empty if hashed segments leave
/// the key's path uncertain.
pub(super) fn levels<'a>(
    policy: &'a Policy,
    domain: &'a Domain,
    request: &'a Request<'_>,
    is_stored: impl Fn(&[u8]) -> bool,
) -> SmallVec<[Level<'a>; 4]> {
    if !domain.is_certain(&request.key) {
        return SmallVec::new();
    }
    let mut levels = request.levels(domain).unwrap_or_default();
    // Levels that an override removes or replaces stay, so that their states and holds are listed.
    request.override_levels(policy, &mut levels, true);
    levels.retain(|level| is_stored(&level.state_name()));
    levels
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_core::{
        domain::{ManualClock, key::END},
        plan::Limit,
    };
    use weir_policy::{
        Overrides,
        overrides::{Change, LimitChanges, Override},
    };

    use super::*;

    #[test]
    fn a_state_of_no_limit_is_out_of_force_unless_its_key_is_uncertain() {
        let text = "
            domain: d
            schema: { user: { children: { '*': { limits: [{ fixed_window: { count: 9, period: 1d } }] } } }, team: {} }";
        let shared = "
            domain: s
            descriptors: [{ key: user, value: 'a*', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 9 } }]";
        let rules = weir_policy::Rules::default();
        let [policy, shared] = [text, shared].map(|text| weir_policy::parse(text, &rules).unwrap());
        let changes = LimitChanges::parse("{ fixed_window: { count: 9, period: 2d } }", &rules.bounds).unwrap();
        let limit = policy.limits().next().unwrap().1.clone();
        let longer = weir_core::testing::parse("fixed_window", &[("count", "9"), ("period", "2d")]);
        let [ident, longer] = [&limit, &limit.with_params(longer)].map(Limit::ident_text);
        let mut overrides = Overrides::new(Arc::new(ManualClock::new(0)));
        overrides.put(Arc::new(Override {
            id: "id".into(),
            domain: "d".into(),
            pattern: ["user", "alex"].map(Into::into).into(),
            change: Change::Limits(changes),
            reason: "a test".into(),
            author: "ops".into(),
            set_at: 0,
            start: 0,
            end: None,
        }));
        let (policy, long) = (policy.overridden(overrides), "l".repeat(65));
        for (policy, domain, key, ident, expected) in [
            (&policy, "d", ["user", "kim"], &ident, true),
            (&policy, "d", ["user", "kim"], &longer, false),
            (&policy, "d", ["user", "alex"], &ident, true),
            (&policy, "d", ["user", "alex"], &longer, true),
            (&policy, "d", ["team", "kim"], &ident, false),
            (&policy, "d", ["user", &long], &longer, true),
            (&policy, "other", ["user", "kim"], &ident, false),
            (&shared, "s", ["user", "a*"], &longer, true),
            (&shared, "s", ["user", "b"], &longer, false),
        ] {
            let path = Key::new(domain, &key).unwrap();
            let state_name = [path.prefix(2), &[END], ident.as_bytes()].concat();
            assert_eq!(may_be_in_force(policy, &state_name), expected, "{domain} {key:?} {ident}");
        }
    }
}
