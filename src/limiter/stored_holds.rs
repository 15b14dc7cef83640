//! Lists the holds in the store: leases and reservations. Nothing is charged, stored or counted.

use weir_core::domain::{Key, Micros};
use weir_policy::Policy;
use weir_store::{
    AnyStore,
    scan::{Reserved, Wanted},
};

use super::{
    CheckError, Limiter,
    stored_keys::{KeyQuery, domain_of, levels, name_of, preview_request, unknown_limit},
};

/// Held units of one limit of one key.
#[derive(Debug)]
pub struct StoredHold {
    /// The domain; `None` if unknown: for a long name the store has only a hash.
    pub domain: Option<Box<str>>,
    /// The key, as far as the limit covers it. For long segments the store has only hashes.
    pub key: Key,
    /// The limit's name; its name in the store if it is not in the policy.
    pub limit: Box<str>,
    /// The owner.
    pub owner: Owner,
    /// Units held.
    pub units: u64,
    /// Time until the hold expires.
    pub expires_after: Micros,
}

/// The owner of held units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A lease of a replica or a client, by the owner's id.
    Lease(u64),
    /// A reservation, by its name.
    Reservation(Vec<u8>),
    /// A slot of a concurrency limit, by the name of the reservation that holds it.
    Slot(Vec<u8>),
}

impl Limiter<AnyStore> {
    /// Returns a page of the holds, and the cursor of the next page.
    ///
    /// # Errors
    /// As [`Limiter::stored_keys`].
    pub async fn stored_holds(
        &self,
        query: &KeyQuery<'_>,
        cursor: Option<&[u8]>,
    ) -> Result<(Vec<StoredHold>, Option<Vec<u8>>), CheckError> {
        let handle = self.policy();
        let page = self.page(&query.scan(&handle.policy, Wanted::Holds), cursor).await?;
        let leases = page.states.iter().flat_map(|stored| {
            let leases = stored.holds.iter().filter_map(|hold| Some((hold, hold.owner?)));
            leases.filter_map(|(hold, owner)| {
                let (named, _) = Named::of(&handle.policy, &stored.name)?;
                Some(named.held(Owner::Lease(owner), hold.units, hold.expires_after))
            })
        });
        let reserved = page.reservations.iter().flat_map(|reserved| of_reservation(&handle.policy, reserved));
        Ok((leases.chain(reserved).collect(), page.next))
    }
}

fn of_reservation(policy: &Policy, reserved: &Reserved) -> impl Iterator<Item = StoredHold> {
    let Reserved { name, levels, units, expires_after } = reserved;
    levels.iter().filter_map(move |level| {
        let (named, has_slots) = Named::of(policy, level)?;
        let (owner, units) =
            if has_slots { (Owner::Slot(name.clone()), 1) } else { (Owner::Reservation(name.clone()), *units) };
        Some(named.held(owner, units, *expires_after))
    })
}

/// The parsed name of a state.
struct Named {
    domain: Option<Box<str>>,
    key: Key,
    limit: Box<str>,
}

impl Named {
    /// Parses a state's name. Also returns whether its limit is a concurrency limit.
    fn of(policy: &Policy, name: &[u8]) -> Option<(Self, bool)> {
        let key = Key::of_name(name)?;
        let domain = domain_of(policy, &key);
        let request = preview_request(domain, &key);
        let levels = domain.map(|domain| levels(policy, domain, &request, |stored| stored == name)).unwrap_or_default();
        let limit = levels.first().map(|level| level.limit);
        let has_slots = limit.is_some_and(|limit| limit.params.as_concurrency().is_some());
        let unknown = || unknown_limit(&name[key.prefix(key.depth()).len()..]);
        let limit = limit.map_or_else(unknown, |limit| limit.name.clone());
        let domain = name_of(domain, &key);
        Some((Self { domain, key, limit }, has_slots))
    }

    fn held(self, owner: Owner, units: u64, expires_after: Micros) -> StoredHold {
        StoredHold { domain: self.domain, key: self.key, limit: self.limit, owner, units, expires_after }
    }
}
