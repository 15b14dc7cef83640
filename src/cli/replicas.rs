//! `weir replicas`

use std::process::ExitCode;

use clap::Args;

use super::{CommandResult, block_on, client::Client, out::say};
use crate::proto::{ListReplicasRequest, Replica, admin_client::AdminClient};

/// List the replicas: version, policy, store
#[derive(Args)]
pub(super) struct Replicas {
    /// Print JSON, a line for each replica
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Replicas {
    pub(super) fn run(self) -> CommandResult {
        let replicas = block_on(async {
            let mut service = AdminClient::new(self.client.connect().await?);
            let answer = service.list_replicas(ListReplicasRequest {}).await;
            Ok(answer.map_err(|status| self.client.failure(&status))?.into_inner().replicas)
        })?;
        if !self.json {
            say(format!("{:16} {:24} {:9} {:16} {:>10} store", "id", "address", "version", "policy", "uptime"))?;
        }
        for replica in &replicas {
            if self.json { say(json(replica))? } else { say(line(replica))? }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn uptime_seconds(replica: &Replica) -> i64 {
    replica.uptime.map_or(0, |uptime| uptime.seconds)
}

fn json(replica: &Replica) -> serde_json::Value {
    let Replica { id, address, version, policy_hash, store_healthy, answering, .. } = replica;
    serde_json::json!({
        "id": id,
        "address": address,
        "version": version,
        "policy_hash": policy_hash,
        "uptime_seconds": uptime_seconds(replica),
        "store_healthy": store_healthy,
        "answering": answering,
    })
}

fn line(replica: &Replica) -> String {
    let Replica { id, address, version, policy_hash, store_healthy, .. } = replica;
    let policy = if policy_hash.is_empty() { "none" } else { policy_hash };
    let store = if *store_healthy { "up" } else { "down" };
    format!("{id:16} {address:24} {version:9} {policy:16} {:>9}s {store}", uptime_seconds(replica))
}
