//! Why a request has no answer.

use thiserror::Error;
use weir_core::{
    algorithm::ParamError,
    domain::{KeyError, RequestError},
};
use weir_policy::{RequestLimitsError, lint};
use weir_store::Failure;

/// An error in a request.
#[derive(Debug, Error)]
pub enum Invalid {
    /// The key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The cost, wait or factor.
    #[error(transparent)]
    Bounds(#[from] RequestError),
    /// The limits that the request specifies.
    #[error(transparent)]
    Spec(#[from] RequestLimitsError),
    /// A limit that the factor takes beyond its bounds.
    #[error("factor {0:?} takes a limit beyond its bounds: {1}")]
    Factor(f64, ParamError),
    /// An error in another field of the message.
    #[error("{message}")]
    Field {
        /// The field.
        field: String,
        /// The problem with it.
        message: String,
    },
}

/// Why a request has no answer.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The request is not valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// An error in one of several checks, with the index of the check.
    #[error("{1}")]
    Check(usize, Box<Self>),
    /// No policy defines the domain.
    #[error("no policy defines the {}", lint::shown(.0))]
    UnknownDomain(String),
    /// The control plane has not sent a policy yet.
    #[error("no policy has been received yet")]
    NoPolicy,
    /// The domain does not allow requests to specify limits.
    #[error("limit_spec is denied in the {}: the limits of the policy apply", lint::shown(.0))]
    SpecDenied(String),
    /// A limit on the path cannot be reserved.
    #[error("{0} cannot be reserved: {1}")]
    NotReservable(String, &'static str),
    /// A concurrency limit that refuses checks.
    #[error("Check cannot take a slot of the concurrency limit `{0}`: use Reserve, or `check: peek` in the policy")]
    NotCheckable(String),
    /// The reservation does not exist.
    #[error("no such reservation: it does not exist, has ended, or belongs to another client")]
    UnknownReservation,
    /// The shared store did not settle a reservation.
    #[error("the store did not settle the reservation")]
    NotSettled,
    /// The store failed.
    #[error("{}", if .0.is_overload() { "too many requests wait for the store" } else { "the store does not answer" })]
    Store(#[from] Failure),
}

impl CheckError {
    /// Returns the error as one of the check with this index.
    #[must_use]
    pub fn in_check(self, index: usize) -> Self {
        Self::Check(index, Box::new(self))
    }
}

impl Invalid {
    /// Returns an error in a field.
    pub fn field_error(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Field { field: field.into(), message: message.into() }
    }

    /// Returns the path of the invalid field. Paths in the request's own limits start with `spec`, the field that holds
    /// them.
    pub fn field(&self, spec: &str) -> String {
        match self {
            Self::Key(error) => error.field(),
            Self::Bounds(error) => error.field().to_owned(),
            Self::Spec(error) => format!("{spec}{}", error.field()),
            Self::Factor(..) => "factor".to_owned(),
            Self::Field { field, .. } => field.clone(),
        }
    }
}
