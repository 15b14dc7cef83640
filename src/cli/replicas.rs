//! `weir replicas`

use std::process::ExitCode;

use clap::Args;

use super::{CommandResult, client::Client, out::print_line, render::human_duration};
use crate::proto::{ListReplicasRequest, Replica, admin_client::AdminClient};

/// List the replicas of the service: version, policy, store
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
        let request = ListReplicasRequest {};
        let replicas =
            self.client.call(async |service| AdminClient::new(service).list_replicas(request).await)?.replicas;
        if !self.json {
            print_line(format!(
                "{:16} {:9} {:16} {:>12} {:6} {:>10} address",
                "id", "version", "policy", "uptime", "store", "degraded/s"
            ))?;
        }
        for replica in &replicas {
            if self.json { print_line(json(replica))? } else { print_line(line(replica))? }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn uptime_seconds(replica: &Replica) -> i64 {
    replica.uptime.map_or(0, |uptime| uptime.seconds)
}

fn json(replica: &Replica) -> serde_json::Value {
    let Replica { id, address, version, policy_hash, store_healthy, degraded_per_second, answering, .. } = replica;
    serde_json::json!({
        "id": id,
        "address": address,
        "version": version,
        "policy_hash": policy_hash,
        "uptime_seconds": uptime_seconds(replica),
        "store_healthy": store_healthy,
        "degraded_per_second": degraded_per_second,
        "answering": answering,
    })
}

fn line(replica: &Replica) -> String {
    let Replica { id, address, version, policy_hash, store_healthy, degraded_per_second, .. } = replica;
    let policy = if policy_hash.is_empty() { "none" } else { policy_hash };
    let store = if *store_healthy { "up" } else { "down" };
    let uptime = human_duration(uptime_seconds(replica) * 1_000_000);
    format!("{id:16} {version:9} {policy:16} {uptime:>12} {store:6} {degraded_per_second:>10.1} {address}")
}
