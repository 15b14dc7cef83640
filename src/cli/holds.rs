//! `weir holds`

use std::{collections::BTreeMap, process::ExitCode};

use clap::Args;
use serde_json::json;
use weir_core::{algorithm::message::micros, domain::Micros};

use super::{
    CommandResult, block_on,
    client::{Client, Service},
    key_rows::shown_name,
    keys::Which,
    out::{print_error, print_line},
    render::human_duration,
};
use crate::proto::{
    HoldKind, KeyHold, ListHoldsRequest, ListHoldsResponse, ListKeysRequest, admin_client::AdminClient,
};

/// Maximum number of owners that are listed separately.
const MAX_OWNERS: usize = 10_000;

/// List the current holds: leases, reservations, slots of concurrency limits
#[derive(Args)]
pub(super) struct Holds {
    #[command(flatten)]
    which: Which,
    /// One line for each owner: how much it holds of how many keys and limits
    #[arg(long)]
    by_owner: bool,
    /// Print JSON, a line for each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: Client,
}

impl Holds {
    pub(super) fn run(self) -> CommandResult {
        if !self.json {
            let what = if self.by_owner { "holds" } else { "expires in" };
            let names = if self.by_owner { "owner" } else { "owner  key  limit" };
            print_line(format!("{:>12} {:>12} {:11}  {names}", "units", what, "kind"))?;
        }
        let (mut owners, mut left_out) = (BTreeMap::new(), false);
        let ask = async |service: &mut AdminClient<Service>, request: ListKeysRequest| {
            let ListKeysRequest { domain, prefix, all_domains, page_size, cursor } = request;
            let request = ListHoldsRequest { domain, prefix, all_domains, page_size, cursor };
            let ListHoldsResponse { holds, next_cursor } = service.list_holds(request).await?.into_inner();
            Ok((holds, next_cursor))
        };
        let take = |hold: KeyHold| {
            if self.by_owner {
                let owner = (kind(&hold), owner(&hold));
                if owners.len() < MAX_OWNERS || owners.contains_key(&owner) {
                    let (units, holds): &mut (u64, u64) = owners.entry(owner).or_default();
                    (*units, *holds) = (*units + hold.units, *holds + 1);
                } else {
                    left_out = true;
                }
            } else if self.json {
                print_line(as_json(&hold))?;
            } else {
                print_line(line(&hold))?;
            }
            Ok(())
        };
        block_on(self.which.pages(&self.client, u64::MAX, ask, take))?;
        for ((kind, owner), (units, holds)) in owners {
            match self.json {
                true => print_line(json!({ "kind": kind, "owner": owner, "units": units, "holds": holds }))?,
                false => print_line(format!("{units:>12} {holds:>12} {kind:11}  {owner}"))?,
            }
        }
        if left_out {
            print_error(format_args!("weir: there are more than {MAX_OWNERS} owners: name a prefix"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn kind(hold: &KeyHold) -> &'static str {
    match hold.kind() {
        HoldKind::Lease => "lease",
        HoldKind::Reservation => "reservation",
        HoldKind::Slot => "slot",
        HoldKind::Unspecified => "?",
    }
}

/// Returns the address of the replica if one is the owner, otherwise the owner's number or the client's name.
fn owner(hold: &KeyHold) -> String {
    match (&*hold.replica, &*hold.owner) {
        ("", "") => "-".to_owned(),
        ("", owner) => owner.to_owned(),
        (replica, _) => replica.to_owned(),
    }
}

fn expires_micros(hold: &KeyHold) -> Micros {
    hold.expires_after.as_ref().and_then(micros).unwrap_or_default()
}

fn as_json(hold: &KeyHold) -> serde_json::Value {
    let KeyHold { domain, key, limit_name, owner, replica, reservation, units, .. } = hold;
    let mut members = json!({
        "domain": domain,
        "key": key,
        "limit_name": limit_name,
        "kind": kind(hold),
        "owner": owner,
        "units": units,
        "expires_after_seconds": expires_micros(hold) as f64 / 1e6,
    });
    let more = [("replica", replica), ("reservation", reservation)];
    more.into_iter().filter(|(_, text)| !text.is_empty()).for_each(|(name, text)| members[name] = json!(text));
    members
}

fn line(hold: &KeyHold) -> String {
    let KeyHold { domain, key, limit_name, units, .. } = hold;
    let (expires, name) = (human_duration(expires_micros(hold)), shown_name(domain, key, limit_name, false));
    format!("{units:>12} {expires:>12} {:11}  {}  {name}", kind(hold), owner(hold))
}
