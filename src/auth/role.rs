//! The roles of clients.

/// A role of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ask for decisions.
    Check,
    /// Forget keys. The role `admin` includes it.
    Reset,
    /// Read metrics.
    Metrics,
    /// Call `weir.v1.Admin`.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Check, Self::Reset, Self::Metrics, Self::Admin];

    /// Its name in files and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Reset => "reset",
            Self::Metrics => "metrics",
            Self::Admin => "admin",
        }
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Those of both.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether this one is in it.
    pub fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        let bit = |role: Role| 1 << role as u8;
        // An operator who may lift a limit may forget what was counted.
        let bits = |role| if role == Role::Admin { bit(role) | bit(Role::Reset) } else { bit(role) };
        Self(roles.into_iter().fold(0, |set, role| set | bits(role)))
    }
}

/// The access that a call requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing: public.
    Open,
    /// A caller that is known, whatever the roles.
    Known,
    /// This role.
    Role(Role),
    /// This role, of a client whose name the call is told.
    Named(Role),
}
