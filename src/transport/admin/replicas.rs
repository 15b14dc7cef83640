//! `ListReplicas`.

use std::time::Instant;

use weir_core::algorithm::message::duration;
use weir_store::{
    SharedStore,
    machine::{Machine, System},
};

use super::AdminService;
use crate::proto::{ListReplicasRequest, ListReplicasResponse, Replica};

/// This process among its replicas.
#[derive(Clone, Debug)]
pub struct ThisReplica {
    id: u64,
    address: String,
    started: Instant,
}

impl ThisReplica {
    /// One that starts now, with its gRPC port at this address.
    pub fn new(address: String) -> Self {
        Self { id: System.random(), address, started: Instant::now() }
    }
}

impl AdminService {
    pub(super) fn list_replicas(&self, _: &ListReplicasRequest) -> ListReplicasResponse {
        let ThisReplica { id, address, started } = &self.replica;
        let shared = self.limiter.store().shared();
        let replica = Replica {
            id: format!("{:016x}", shared.map_or(*id, SharedStore::owner)),
            address: address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy_hash: self.limiter.metrics().policy_hash(),
            uptime: Some(duration(started.elapsed().as_micros() as i64)),
            store_healthy: shared.is_none_or(|shared| shared.redis().is_up()),
            answering: true,
        };
        ListReplicasResponse { replicas: vec![replica] }
    }
}
