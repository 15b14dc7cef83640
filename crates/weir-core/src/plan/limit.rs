//! A limit: a rule at one place, and whose counts are whose.

use std::{borrow::Cow, cmp::Ordering, sync::OnceLock};

use smallvec::SmallVec;

use crate::{
    algorithm::{ParamError, Params},
    domain::{Micros, key::END},
};

/// What an ident of a policy's limit has after its first byte.
const POLICY: u8 = b'p';

/// What tells the first of several unnamed limits apart.
const FIRST: &str = "#0";

/// Where a limit was written. Limits of different origin never share a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a policy.
    Policy,
    /// In a request.
    Request,
    /// In a descriptor of a request, in place of what the policy says.
    Override,
}

/// One rule at one place.
#[derive(Clone, Debug)]
pub struct Limit {
    /// As answers show it: the configured name, or the path pattern with the algorithm and its ordinal.
    pub name: Box<str>,
    /// Evaluated and counted, never refusing.
    pub shadow: bool,
    /// The algorithm with its parameters, under the policy's factor.
    pub params: Params,
    /// The limit's index within its policy.
    pub index: u32,
    /// For how long the policy has units of it leased ([`crate::hold`]), whether or not they can be.
    lease: Option<Micros>,
    /// The same where they can be.
    leased_for: Option<Micros>,
    origin: Origin,
    is_named: bool,
    ordinal: usize,
    ident: Box<[u8]>,
    /// The parameters as written and the policy's factor, where that is not 1.
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
    /// The limit at `pattern`, the `ordinal`th of its algorithm there. `name` is the one it was given, if any. Where
    /// several are at one place, [`identify`] tells their counts apart.
    pub fn new(
        origin: Origin,
        name: Option<&str>,
        pattern: &str,
        ordinal: usize,
        shadow: bool,
        params: Params,
    ) -> Self {
        // Put together without formatting, which takes longer: requests make limits too.
        let who: Cow<'_, str> = match (name, ordinal) {
            (Some(name), _) => ["=", name].concat().into(),
            (None, 0) => FIRST.into(),
            (None, _) => format!("#{ordinal}").into(),
        };
        let (is_named, ident) = (name.is_some(), ident_of(origin, &params, &who));
        let name = name.map_or_else(|| [pattern, "#", params.name(), &who[1..]].concat(), str::to_owned);
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

    /// The limit under a policy's `factor`; `None` where 0 lifts it.
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

    /// The parameters under a request's `factor`, above 0, which multiplies with the policy's.
    ///
    /// # Errors
    /// [`ParamError`] when they leave their bounds.
    pub(crate) fn params_under(&self, factor: f64) -> Result<Params, ParamError> {
        match &self.written {
            None => self.params.scale(factor),
            Some(written) => written.0.scale(written.1 * factor),
        }
    }

    /// The same limit, with the same counts, under a further factor above 0.
    ///
    /// # Errors
    /// [`ParamError`] when the parameters leave their bounds.
    pub fn under_further_factor(&self, factor: f64) -> Result<Self, ParamError> {
        let (written, policy) = self.written.as_deref().cloned().unwrap_or_else(|| (self.params.clone(), 1.0));
        let params = written.scale(policy * factor)?;
        Ok(self.changed(|limit| (limit.params, limit.written) = (params, Some(Box::new((written, policy * factor))))))
    }

    /// The same limit with other parameters of its algorithm, which no factor of the policy scales. Its counts are the same
    /// unless their time base is another.
    pub fn with_params(&self, params: Params) -> Self {
        let before = ident_of(self.origin, self.written(), "");
        let who = self.ident.strip_prefix(&*before).map(String::from_utf8_lossy).unwrap_or_default();
        let ident = ident_of(self.origin, &params, &who);
        self.changed(|limit| (limit.params, limit.ident, limit.written) = (params, ident, None))
    }

    /// The same limit, only watching.
    pub fn in_shadow(&self) -> Self {
        self.changed(|limit| limit.shadow = true)
    }

    fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut limit = Self { encoded: OnceLock::new(), ..self.clone() };
        change(&mut limit);
        let lease = limit.lease;
        limit.with_lease(lease)
    }

    /// The limit in the form that a store sends, made by `encode` when it is first asked for.
    pub fn encoded(&self, encode: impl FnOnce() -> Box<[u8]>) -> &[u8] {
        self.encoded.get_or_init(encode)
    }

    /// What tells this limit's states from those of other limits on the same key: its origin, its algorithm with the time
    /// base, and its name, or else what [`identify`] says. Behind a key's encoding it makes an injective name for one
    /// state.
    pub fn ident(&self) -> &[u8] {
        &self.ident
    }

    /// Whether units of it can be leased; else why not, in words that follow "cannot be leased: ".
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

    /// With units of it leased for so long, if they can be.
    #[must_use]
    pub fn with_lease(self, lease: Option<Micros>) -> Self {
        Self { lease, leased_for: lease.filter(|_| self.leasable().is_ok()), ..self }
    }

    /// For how long the policy has units of it leased; `None`: it does not.
    pub fn lease(&self) -> Option<Micros> {
        self.lease
    }

    /// For how long units of it are leased; `None`: they are not, or cannot be.
    pub fn leased_for(&self) -> Option<Micros> {
        self.leased_for
    }

    /// Whether it was given a name.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// The parameters as they were written, before the policy's factor.
    pub fn written(&self) -> &Params {
        self.written.as_ref().map_or(&self.params, |written| &written.0)
    }

    /// Whether the two would be one count, were each alone at their place: unnamed, of one algorithm and time base.
    pub fn is_kin(&self, other: &Self) -> bool {
        let (own, its) = (self.written(), other.written());
        let are_unnamed = !self.is_named && !other.is_named && self.origin == other.origin;
        are_unnamed && own.name() == its.name() && own.time_base() == its.time_base()
    }

    /// Which of two kin is before the other, by nothing but what they are.
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

    /// Whether it stands in a policy.
    pub fn is_of_policy(&self) -> bool {
        self.origin == Origin::Policy
    }

    /// Whether it stands in a descriptor of a request.
    pub fn is_override(&self) -> bool {
        self.origin == Origin::Override
    }

    /// The ident, to be read by a person.
    pub fn ident_text(&self) -> String {
        String::from_utf8_lossy(&self.ident[1..]).into_owned()
    }
}

/// Tells the counts of unnamed limits at one place apart, whatever their order. Of those of one algorithm and time base
/// the first keeps the ident that it has alone, which no parameter changes: a single limit may be tuned freely. First is
/// one that refuses before one that only watches, then the longest period, then the least parameters. The others are
/// distinguished by their periods or, where the time base has that, by their rank.
///
/// So what comes and goes beside a limit moves no count, unless it takes over the first place. A longer period takes it
/// because the count of a shorter one is next to nothing under it.
pub fn identify<'l>(siblings: impl IntoIterator<Item = &'l mut Limit>) {
    let mut unnamed: SmallVec<[_; 4]> = siblings.into_iter().filter(|limit| !limit.is_named).collect();
    for index in 0..unnamed.len() {
        let limit = &unnamed[index];
        let before = |(place, other): (usize, &&mut Limit)| {
            place != index && other.is_kin(limit) && other.precedence(limit).then(place.cmp(&index)).is_lt()
        };
        let period = limit.written().sibling_period();
        let (mut rank, mut rank_in_period) = (0, 0);
        for (_, other) in unnamed.iter().enumerate().filter(|(place, other)| before((*place, other))) {
            rank += 1;
            rank_in_period += usize::from(other.written().sibling_period() == period);
        }
        let who = match (rank, period) {
            (0, _) if limit.ordinal == 0 => continue,
            (0, _) => FIRST.to_owned(),
            (_, None) => format!("#{rank}"),
            (_, Some(period)) => format!("{period}#{rank_in_period}"),
        };
        let ident = ident_of(limit.origin, limit.written(), &who);
        unnamed[index].ident = ident;
    }
}

/// Whether an ident is that of a limit of a policy, as opposed to what requests bring.
pub fn is_ident_of_policy(ident: &[u8]) -> bool {
    ident.get(1) == Some(&POLICY)
}

fn ident_of(origin: Origin, params: &Params, who: &str) -> Box<[u8]> {
    let letter = match origin {
        Origin::Policy => POLICY,
        Origin::Request => b'r',
        Origin::Override => b'o',
    };
    [&[END, letter][..], params.name().as_bytes(), params.time_base().as_bytes(), who.as_bytes()].concat().into()
}
