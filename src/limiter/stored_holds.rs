//! Who holds units of which keys: leases and what reservations hold, as they are stored. Nothing is charged, stored or counted.

use weir_core::domain::{Key, Micros};
use weir_policy::Policy;
use weir_store::{
    AnyStore,
    scan::{Reserved, Wanted},
};

use super::{
    CheckError, Limiter,
    stored_keys::{KeyQuery, domain_of, levels, name_of, peek_request, unknown_limit},
};

/// Units of one limit of one key that are held.
#[derive(Debug)]
pub struct StoredHold {
    /// The domain, where its name is known: of a long one the store has a hash.
    pub domain: Option<Box<str>>,
    /// The key, as far as the limit covers it. Of long segments the store has hashes.
    pub key: Key,
    /// The limit's name; where it is not in the policy, what the store calls it.
    pub limit: Box<str>,
    /// The owner.
    pub owner: Owner,
    /// Units.
    pub units: u64,
    /// After so long they are not held any more.
    pub expires_after: Micros,
}

/// The owner of held units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A replica or a client, with the number that it has drawn for itself.
    Lease(u64),
    /// A reservation of this name.
    Reservation(Vec<u8>),
    /// A reservation of this name holds a slot of a concurrency limit.
    Slot(Vec<u8>),
}

impl Limiter<AnyStore> {
    /// A page of what is held, and where the next one begins.
    ///
    /// # Errors
    /// As [`Limiter::stored_keys`].
    pub async fn stored_holds(
        &self,
        query: &KeyQuery<'_>,
        cursor: Option<&[u8]>,
    ) -> Result<(Vec<StoredHold>, Option<Vec<u8>>), CheckError> {
        let handle = self.policy_handle();
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

/// A state's name, parsed.
struct Named {
    domain: Option<Box<str>>,
    key: Key,
    limit: Box<str>,
}

impl Named {
    /// And whether its limit has slots.
    fn of(policy: &Policy, name: &[u8]) -> Option<(Self, bool)> {
        let key = Key::of_name(name)?;
        let domain = domain_of(policy, &key);
        let request = peek_request(domain, &key);
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
