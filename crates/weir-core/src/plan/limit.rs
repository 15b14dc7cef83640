//! A limit: an algorithm with its parameters, and the identity of its states.

use std::{borrow::Cow, cmp::Ordering, sync::OnceLock};

use smallvec::SmallVec;

use crate::{
    algorithm::{ParamError, Params},
    domain::{Micros, key::END},
};

/// The second byte of the ident of a policy's limit.
const POLICY: u8 = b'p';

/// The identifier of the first unnamed limit of its kind.
const FIRST: &str = "#0";

/// The source of a limit. Limits of different origins never share a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a policy.
    Policy,
    /// In a request.
    Request,
    /// In a descriptor of a request, instead of the policy's limit.
    Override,
}

/// One algorithm with its parameters, at one node.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The name in answers: the configured one, or the path pattern with the algorithm and its ordinal.
    pub name: Box<str>,
    /// Whether the limit is in shadow mode: evaluated and counted, but never refusing.
    pub shadow: bool,
    /// The algorithm with its parameters, scaled by the policy's factor.
    pub params: Params,
    /// The limit's index within its policy.
    pub index: u32,
    /// TTL of leases in the policy ([`crate::hold`]), whether or not the limit is leasable.
    lease: Option<Micros>,
    /// TTL of leases, if the limit is leasable.
    leased_for: Option<Micros>,
    origin: Origin,
    is_named: bool,
    ordinal: usize,
    ident: Box<[u8]>,
    /// The parameters as written and the policy's factor, unless that is 1.
    written: Option<Box<(Params, f64)>>,
    encoded: OnceLock<Box<[u8]>>,
}

impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        let parts = |limit: &Self| (limit.name.clone(), limit.shadow, limit.index, limit.lease, limit.ident.clone());
        parts(self) == parts(other) && self.params == other.params && self.written == other.written
    }
}

impl Limit {
    /// Creates the limit at `pattern`, the `ordinal`th of its algorithm there. `name` is the configured one, if any.
    /// If a node has several limits, [`identify`] distinguishes their states.
    pub fn new(
        origin: Origin,
        name: Option<&str>,
        pattern: &str,
        ordinal: usize,
        shadow: bool,
        params: Params,
    ) -> Self {
        // Concatenated instead of formatted, which is slower: limits are also created for requests.
        let discriminator: Cow<'_, str> = match (name, ordinal) {
            (Some(name), _) => ["=", name].concat().into(),
            (None, 0) => FIRST.into(),
            (None, _) => format!("#{ordinal}").into(),
        };
        let (is_named, ident) = (name.is_some(), ident_of(origin, &params, &discriminator));
        let name = name.map_or_else(|| [pattern, "#", params.name(), &discriminator[1..]].concat(), str::to_owned);
        Self {
            name: name.into(),
            shadow,
            params,
            index: 0,
            lease: None,
            leased_for: None,
            origin,
            is_named,
            ordinal,
            ident,
            written: None,
            encoded: OnceLock::new(),
        }
    }

    /// Returns the limit scaled by a policy's `factor`; `None` if 0 lifts it.
    ///
    /// # Errors
    /// [`ParamError`] when the parameters leave their bounds.
    pub fn under_policy_factor(self, factor: f64) -> Result<Option<Self>, ParamError> {
        match factor {
            0.0 => Ok(None),
            1.0 => Ok(Some(self)),
            _ => {
                let params = self.params.scale(factor)?;
                Ok(Some(Self { written: Some(Box::new((self.params, factor))), params, ..self }))
            }
        }
    }

    /// Returns the parameters scaled by a request's `factor`, above 0, multiplied by the policy's.
    ///
    /// # Errors
    /// [`ParamError`] when they leave their bounds.
    pub(crate) fn params_under(&self, factor: f64) -> Result<Params, ParamError> {
        let (written, policy) = self.written.as_deref().map_or((&self.params, 1.0), |(written, by)| (written, *by));
        Ok(written.scale(policy * factor)?.reaching(&self.params))
    }

    /// Returns the limit, with the same states, scaled by a further factor above 0.
    ///
    /// # Errors
    /// [`ParamError`] when the parameters leave their bounds.
    pub fn under_further_factor(&self, factor: f64) -> Result<Self, ParamError> {
        let (written, policy) = self.written.as_deref().cloned().unwrap_or_else(|| (self.params.clone(), 1.0));
        let params = written.scale(policy * factor)?;
        Ok(self.changed(|limit| (limit.params, limit.written) = (params, Some(Box::new((written, policy * factor))))))
    }

    /// Returns the limit with other parameters of its algorithm, to which no factor of the policy applies. It keeps
    /// its states unless the time base changes, and shares them with no other limit of its node.
    pub fn with_params(&self, params: Params) -> Self {
        let before = ident_of(self.origin, self.written(), "");
        let mut discriminator = self.ident.strip_prefix(&*before).map(String::from_utf8_lossy).unwrap_or_default();
        let (base, new_base) = (self.written().time_base(), params.time_base());
        if !self.is_named && base != new_base {
            // Unnamed limits of one algorithm may differ by their time bases alone.
            discriminator.to_mut().extend(["@", &*base]);
        }
        let ident = ident_of(self.origin, &params, &discriminator);
        self.changed(|limit| (limit.params, limit.ident, limit.written) = (params, ident, None))
    }

    /// Returns the limit in shadow mode.
    pub fn in_shadow(&self) -> Self {
        self.changed(|limit| limit.shadow = true)
    }

    fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut limit = Self { encoded: OnceLock::new(), ..self.clone() };
        change(&mut limit);
        let lease = limit.lease;
        limit.with_lease(lease)
    }

    /// Returns the limit as encoded for a store, calling `encode` the first time.
    pub fn encoded(&self, encode: impl FnOnce() -> Box<[u8]>) -> &[u8] {
        self.encoded.get_or_init(encode)
    }

    /// Returns the ident, which distinguishes this limit's states from the states of other limits
    /// on the same key: its origin, its algorithm with the time base, and its name or, without one,
    /// the identifier from [`identify`]. A key's encoding followed by an ident is an injective name
    /// of one state.
    pub fn ident(&self) -> &[u8] {
        &self.ident
    }

    /// Checks that units of the limit can be leased. The error completes "cannot be leased: ".
    ///
    /// # Errors
    /// The reason.
    pub fn leasable(&self) -> Result<(), &'static str> {
        if self.shadow {
            return Err("it is in shadow mode, so the store counts every request");
        }
        if self.params.as_concurrency().is_some() {
            return Err("its slots are taken by reservations, of which only the store knows all");
        }
        self.params.holdable().map(drop)
    }

    /// Returns the limit with this TTL of leases, in effect if the limit is leasable.
    #[must_use]
    pub fn with_lease(self, lease: Option<Micros>) -> Self {
        Self { lease, leased_for: lease.filter(|_| self.leasable().is_ok()), ..self }
    }

    /// Returns the TTL of leases in the policy, if it has one.
    pub fn lease(&self) -> Option<Micros> {
        self.lease
    }

    /// Returns the TTL of leases; `None` if units are not leased, or cannot be.
    pub fn leased_for(&self) -> Option<Micros> {
        self.leased_for
    }

    /// Whether the limit has a configured name.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Returns the parameters as written, before the policy's factor.
    pub fn written(&self) -> &Params {
        self.written.as_ref().map_or(&self.params, |written| &written.0)
    }

    /// Whether two limits would share their states if each were alone at its node: unnamed, of one origin, algorithm
    /// and time base.
    pub fn would_share_state(&self, other: &Self) -> bool {
        let (own, its) = (self.written(), other.written());
        let are_unnamed = !self.is_named && !other.is_named && self.origin == other.origin;
        are_unnamed && own.name() == its.name() && own.time_base() == its.time_base()
    }

    /// Orders two limits of one kind, by nothing but their shadow mode and parameters.
    fn precedence(&self, other: &Self) -> Ordering {
        let (own, its) = (self.written(), other.written());
        let by_period = || its.sibling_period().cmp(&own.sibling_period());
        let by_numbers = || {
            let (own, its) = (own.numbers(), its.numbers());
            own.iter().zip(&its).map(|(own, its)| own.total_cmp(its)).find(|order| order.is_ne())
        };
        let by_shadow = self.shadow.cmp(&other.shadow);
        by_shadow.then_with(by_period).then_with(|| by_numbers().unwrap_or(Ordering::Equal))
    }

    /// Whether the limit is in a policy.
    pub fn is_of_policy(&self) -> bool {
        self.origin == Origin::Policy
    }

    /// Whether the limit is in a descriptor of a request.
    pub fn is_override(&self) -> bool {
        self.origin == Origin::Override
    }

    /// Returns the ident as readable text.
    pub fn ident_text(&self) -> String {
        String::from_utf8_lossy(&self.ident[1..]).into_owned()
    }
}

/// Distinguishes the states of unnamed limits at one node, independently of their order. Among limits of one
/// algorithm and time base, the first keeps the ident that it would have alone, which does not depend on its
/// parameters: a single limit can be tuned freely. A limit that enforces comes before one in shadow mode, then the
/// longest period, then the smallest parameters. The others are identified by their periods or, if the time base
/// contains the period, by their rank.
///
/// So adding or removing a limit resets no sibling's states, unless it becomes the first. A longer period takes that
/// position because the count of a shorter period is next to nothing under it.
pub fn identify<'l>(siblings: impl IntoIterator<Item = &'l mut Limit>) {
    let mut unnamed: SmallVec<[_; 4]> = siblings.into_iter().filter(|limit| !limit.is_named).collect();
    for index in 0..unnamed.len() {
        let limit = &unnamed[index];
        let before = |(position, other): (usize, &&mut Limit)| {
            position != index
                && other.would_share_state(limit)
                && other.precedence(limit).then(position.cmp(&index)).is_lt()
        };
        let period = limit.written().sibling_period();
        let (mut rank, mut rank_in_period) = (0, 0);
        for (_, other) in unnamed.iter().enumerate().filter(|(position, other)| before((*position, other))) {
            rank += 1;
            rank_in_period += usize::from(other.written().sibling_period() == period);
        }
        let discriminator = match (rank, period) {
            (0, _) if limit.ordinal == 0 => continue,
            (0, _) => FIRST.to_owned(),
            (_, None) => format!("#{rank}"),
            (_, Some(period)) => format!("{period}#{rank_in_period}"),
        };
        let ident = ident_of(limit.origin, limit.written(), &discriminator);
        unnamed[index].ident = ident;
    }
}

/// Whether an ident is from a policy's limit, rather than from a request's.
pub fn is_ident_of_policy(ident: &[u8]) -> bool {
    ident.get(1) == Some(&POLICY)
}

fn ident_of(origin: Origin, params: &Params, discriminator: &str) -> Box<[u8]> {
    let letter = match origin {
        Origin::Policy => POLICY,
        Origin::Request => b'r',
        Origin::Override => b'o',
    };
    [&[END, letter][..], params.name().as_bytes(), params.time_base().as_bytes(), discriminator.as_bytes()]
        .concat()
        .into()
}
