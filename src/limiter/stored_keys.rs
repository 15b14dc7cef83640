//! What is stored, key by key, and how it stands: as a check of cost 0 finds it. Nothing is charged, stored or counted.

use std::borrow::Cow;

use futures_util::{StreamExt, TryStreamExt, stream};
use smallvec::SmallVec;
use weir_core::{
    domain::{Charge, Decision, Key, key::domain_name},
    plan::Level,
};
use weir_policy::{Domain, Policy, tree::DEFAULT_ANCHOR};
use weir_store::{
    AnyStore, Failure, StoreError,
    scan::{Scan, ScanError, Stored},
};

use super::{CheckError, Invalid, Limiter, PolicyHandle, Request, request::plan_in};

/// Keys of a page that are asked for at once. They share round trips.
const AT_ONCE: usize = 64;

/// Which keys to list.
#[derive(Clone, Debug)]
pub struct KeyQuery<'a> {
    /// Of this domain; `None`: of all.
    pub domain: Option<&'a str>,
    /// This key and those below it; `None`: all of the domain.
    pub prefix: Option<Key>,
    /// About how many make a page.
    pub count: usize,
}

/// One limit of one key that is stored.
#[derive(Debug)]
pub struct StoredKey {
    /// The domain, where its name is known: of a long one the store has a hash.
    pub domain: Option<Box<str>>,
    /// The key, as far as the limit covers it. Of long segments the store has hashes.
    pub key: Key,
    /// The limit's name; where it is not in the policy, what the store calls it.
    pub limit: Box<str>,
    /// How it stands; `None`: the limit is not in the policy, or the state cannot be read.
    pub usage: Option<Usage>,
}

/// How a limit stands on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What a check of cost 0 is answered. What is held counts as used.
    pub decision: Decision,
    /// It refuses nothing.
    pub shadow: bool,
    /// Units that are leased or reserved.
    pub outstanding: u64,
}

impl KeyQuery<'_> {
    fn scan(&self, policy: &Policy) -> Scan {
        let domain = |name| policy.domain(name).map_or(DEFAULT_ANCHOR, |domain| domain.anchor);
        let (beginning, anchor_path) = match (&self.prefix, self.domain) {
            (Some(key), name) => {
                let anchor = usize::from(domain(name.unwrap_or_default()));
                let anchor_path = (key.depth() >= anchor).then(|| key.prefix(anchor).to_vec());
                (key.prefix(key.depth()).to_vec(), anchor_path)
            }
            (None, Some(name)) => (domain_name(name), None),
            (None, None) => (Vec::new(), None),
        };
        Scan { beginning, anchor_path, count: self.count }
    }
}

impl Limiter<AnyStore> {
    /// A page of the keys that are stored, and where the next one begins.
    ///
    /// # Errors
    /// [`CheckError`] for a cursor that is none of this query, and where the store cannot tell. The page can be asked for again.
    pub async fn stored_keys(
        &self,
        query: &KeyQuery<'_>,
        cursor: Option<&[u8]>,
    ) -> Result<(Vec<StoredKey>, Option<Vec<u8>>), CheckError> {
        let handle = self.policy_handle();
        let page = self.store.scan(&query.scan(&handle.policy), cursor).await.map_err(|error| match error {
            ScanError::Cursor => Invalid::field_error("cursor", error.to_string()).into(),
            ScanError::Store(error) => CheckError::from(error),
        })?;
        let named = page.states.into_iter().filter_map(|state| Some((Key::of_name(&state.name)?, state)));
        let named: Vec<_> = named.collect();
        let of_one_key = named.chunk_by(|(one, _), (other, _)| one == other);
        let looks: Vec<_> = of_one_key.map(|states| self.look(&handle, states)).collect();
        let keys: Vec<_> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        Ok((keys.into_iter().flatten().collect(), page.next))
    }

    /// How the states of one key stand, but those that have expired.
    async fn look(&self, handle: &PolicyHandle, states: &[(Key, Stored)]) -> Result<Vec<StoredKey>, StoreError> {
        let Some((key, _)) = states.first() else { return Ok(Vec::new()) };
        let domain = domain_of(&handle.policy, key);
        let request = Request {
            domain: Cow::Borrowed(domain.map_or("", |domain| &domain.name)),
            key: key.clone(),
            cost: 0,
            max_wait: None,
            factor: 1.0,
            spec: None,
            charge: None,
            dry_run: true,
            id: None,
        };
        let levels = domain.map(|domain| levels(&handle.policy, domain, &request, states)).unwrap_or_default();
        let mut plan = plan_in(domain, levels, Charge::Independent, None);
        (plan.dry_run, plan.is_preview) = (true, true);
        let decisions = match self.store.stored_verdict(&plan).await {
            _ if plan.levels().is_empty() => Vec::new(),
            Ok(verdict) => verdict.decisions.to_vec(),
            // So that one state does not keep the others from being listed.
            Err(StoreError::Unavailable(Failure::Corrupt(_))) => Vec::new(),
            Err(error) => return Err(error),
        };
        let may_be_held = !decisions.is_empty() && states.iter().any(|(_, state)| state.may_be_held);
        let mut outstanding = if may_be_held { self.store.outstanding(&plan).await? } else { Vec::new() };
        outstanding.resize(decisions.len(), 0);
        let is_shadow = plan.is_shadow;
        let known = plan.levels().iter().zip(decisions.iter().zip(outstanding));
        let known: SmallVec<[_; 4]> = known
            .map(|(level, (decision, outstanding))| {
                let shadow = level.limit.shadow || is_shadow;
                (level.limit, Usage { decision: *decision, shadow, outstanding })
            })
            .collect();
        let stored = states.iter().filter_map(|(key, state)| {
            let ident = &state.name[key.prefix(key.depth()).len()..];
            let found = known.iter().find(|(limit, _)| limit.ident() == ident);
            let is_over = |usage: &Usage| usage.decision.reset_after == 0 && usage.outstanding == 0;
            if found.is_some_and(|(_, usage)| is_over(usage)) {
                return None;
            }
            let limit = match found {
                Some((limit, _)) => limit.name.clone(),
                None => String::from_utf8_lossy(&ident[1..]).into(),
            };
            let domain = domain.map(|domain| domain.name.clone()).or_else(|| written_domain(key));
            Some(StoredKey { domain, key: key.clone(), limit, usage: found.map(|(_, usage)| *usage) })
        });
        Ok(stored.collect())
    }
}

/// The domain of a key, where the policy defines it.
fn domain_of<'p>(policy: &'p Policy, key: &Key) -> Option<&'p Domain> {
    let by_name = std::str::from_utf8(key.domain()).ok().and_then(|name| policy.domain(name));
    by_name.or_else(|| policy.domains().find(|domain| domain_name(&domain.name) == key.prefix(0)))
}

/// The name of a domain that the policy does not define, unless it is a hash.
fn written_domain(key: &Key) -> Option<Box<str>> {
    let name = std::str::from_utf8(key.domain()).ok()?;
    (domain_name(name) == key.prefix(0)).then(|| name.into())
}

/// The levels of the key itself that have a state, as overrides change them, where it is certain which these are.
fn levels<'a>(
    policy: &'a Policy,
    domain: &'a Domain,
    request: &'a Request<'_>,
    states: &[(Key, Stored)],
) -> SmallVec<[Level<'a>; 4]> {
    if !domain.is_certain(&request.key) {
        return SmallVec::new();
    }
    let mut levels = request.levels(domain).unwrap_or_default();
    // Those that an override takes away stay, so that what is stored is listed.
    request.override_levels(policy, &mut levels, true);
    levels.retain(|level| {
        let name = level.state_name();
        states.iter().any(|(_, state)| state.name == name)
    });
    levels
}
