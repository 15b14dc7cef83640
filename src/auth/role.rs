//! The roles of clients.

/// A role of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Requests decisions.
    Check,
    /// Resets keys. The role `admin` includes it.
    Reset,
    /// Reads metrics.
    Metrics,
    /// Calls `weir.v1.Admin`.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Check, Self::Reset, Self::Metrics, Self::Admin];

    /// Returns the name in files and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Reset => "reset",
            Self::Metrics => "metrics",
            Self::Admin => "admin",
        }
    }

    /// Returns the role of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Returns the union of both sets.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether the set contains this role.
    pub fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        let bit = |role: Role| 1 << role as u8;
        // An operator who may lift a limit may also reset its counts.
        let bits = |role| if role == Role::Admin { bit(role) | bit(Role::Reset) } else { bit(role) };
        Self(roles.into_iter().fold(0, |set, role| set | bits(role)))
    }
}

/// The access that a call requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Public: no credentials are needed.
    Public,
    /// Any authenticated client, regardless of its roles.
    Authenticated,
    /// A client with this role.
    Role(Role),
    /// A client with this role, whose name is passed to the call.
    Named(Role),
}
