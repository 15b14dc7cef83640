//! A limit: a rule at one place, and whose counts are whose.

use std::sync::OnceLock;

use crate::{
    algorithm::{ParamError, Params},
    domain::key::END,
};

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
    /// The limit's place among those of its policy, for whoever keeps something about each.
    pub index: u32,
    ident: Box<[u8]>,
    /// The parameters as written and the policy's factor, where that is not 1.
    written: Option<Box<(Params, f64)>>,
    encoded: OnceLock<Box<[u8]>>,
}

impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        let parts = |limit: &Self| (limit.name.clone(), limit.shadow, limit.index, limit.ident.clone());
        parts(self) == parts(other) && self.params == other.params && self.written == other.written
    }
}

impl Limit {
    /// The limit at `pattern`, the `ordinal`th of its algorithm there. `name` is the one it was given, if any.
    pub fn new(
        origin: Origin,
        name: Option<&str>,
        pattern: &str,
        ordinal: usize,
        shadow: bool,
        params: Params,
    ) -> Self {
        let who = match name {
            Some(name) => format!("={name}"),
            None => format!("#{ordinal}"),
        };
        let letter = match origin {
            Origin::Policy => 'p',
            Origin::Request => 'r',
            Origin::Override => 'o',
        };
        let mut ident = vec![END];
        ident.extend_from_slice(format!("{letter}{}{}{who}", params.name(), params.time_base()).as_bytes());
        let name = name.map_or_else(|| format!("{pattern}#{}{ordinal}", params.name()), str::to_owned);
        Self {
            name: name.into(),
            shadow,
            params,
            index: 0,
            ident: ident.into(),
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
    pub fn params_under(&self, factor: f64) -> Result<Params, ParamError> {
        match &self.written {
            None => self.params.scale(factor),
            Some(written) => written.0.scale(written.1 * factor),
        }
    }

    /// The limit in the form that a store sends, made by `encode` when it is first asked for.
    pub fn encoded(&self, encode: impl FnOnce() -> Box<[u8]>) -> &[u8] {
        self.encoded.get_or_init(encode)
    }

    /// What tells this limit's states from those of other limits on the same key: its origin, its name or else the
    /// ordinal of its algorithm, and its time base; never a parameter that may change without forgetting. Behind a key's
    /// encoding it makes an injective name for one state.
    pub fn ident(&self) -> &[u8] {
        &self.ident
    }

    /// Whether it stands in a descriptor of a request.
    pub fn is_override(&self) -> bool {
        self.ident.get(1) == Some(&b'o')
    }

    /// The ident, to be read by a person.
    pub fn ident_text(&self) -> String {
        String::from_utf8_lossy(&self.ident[1..]).into_owned()
    }
}
