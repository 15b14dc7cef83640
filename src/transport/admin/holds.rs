//! `ListHolds`.

use std::collections::HashMap;

use data_encoding::HEXLOWER;
use weir_core::{algorithm::message::duration, hold::RESERVATION_ID_BYTES};

use super::{
    AdminService, cursor,
    keys::{domain_text, key_segments, query},
};
use crate::{
    limiter::stored_holds::{Owner, StoredHold},
    proto::{HoldKind, KeyHold, ListHoldsRequest, ListHoldsResponse, ListKeysRequest},
    transport::status::Rejected,
};

impl AdminService {
    pub(crate) async fn list_holds(&self, request: ListHoldsRequest) -> Result<ListHoldsResponse, Rejected> {
        let ListHoldsRequest { domain, prefix, all_domains, page_size, cursor } = request;
        // The scan is the same as for keys; its cursors have another scope.
        let request = ListKeysRequest { domain, prefix, all_domains, page_size, cursor };
        let query = query(&request)?;
        let is_shared = self.limiter.store().shared().is_some();
        let scope = if is_shared { "holds".to_owned() } else { format!("holds {}", self.replicas.id()) };
        let from = cursor::read(&request, &scope)?;
        let (holds, next) =
            self.scan_schedule.run(is_shared, self.limiter.stored_holds(&query, from.as_deref())).await??;
        let has_leases = holds.iter().any(|hold| matches!(hold.owner, Owner::Lease(_)));
        let replicas = if has_leases { self.addresses().await } else { HashMap::new() };
        Ok(ListHoldsResponse {
            holds: holds.into_iter().map(|hold| message(hold, &replicas)).collect(),
            next_cursor: next.map(|next| cursor::write(&request, &scope, &next)).unwrap_or_default(),
        })
    }

    /// Returns the addresses of the replicas, by id.
    async fn addresses(&self) -> HashMap<String, String> {
        let replicas = self.replicas.reports().await.into_iter().filter_map(|report| report.replica);
        replicas.map(|replica| (replica.id, replica.address)).collect()
    }
}

fn message(hold: StoredHold, replicas: &HashMap<String, String>) -> KeyHold {
    let StoredHold { domain, key, limit, owner, units, expires_after } = hold;
    let ((hashed, key), domain) = (key_segments(&key), domain_text(domain, &key));
    let (kind, owner, reservation) = match owner {
        Owner::Lease(owner) => (HoldKind::Lease, format!("{owner:016x}"), String::new()),
        Owner::Reservation(name) => of_reservation(HoldKind::Reservation, &name),
        Owner::Slot(name) => of_reservation(HoldKind::Slot, &name),
    };
    let replica = replicas.get(&owner).filter(|_| kind == HoldKind::Lease).cloned().unwrap_or_default();
    let expires_after = Some(duration(expires_after));
    let (limit_name, kind) = (limit.into(), kind.into());
    KeyHold { domain, key, hashed, limit_name, kind, owner, replica, reservation, units, expires_after }
}

/// The name of a reservation is its id, a hash that reveals nothing, and then the name of its client.
fn of_reservation(kind: HoldKind, name: &[u8]) -> (HoldKind, String, String) {
    let (id, client) = name.split_at(name.len().min(RESERVATION_ID_BYTES));
    (kind, String::from_utf8_lossy(client).into_owned(), HEXLOWER.encode(id))
}
