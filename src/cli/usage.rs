//! `weir usage`

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    process::ExitCode,
};

use clap::{Args, ValueEnum};

use super::{
    CommandResult, Failure, block_on,
    client::Client,
    key_rows::{Format, share},
    keys::Which,
    out::print_line,
};
use crate::proto::{HotKey, HotKeyOrder, KeyUsage, ListHotKeysRequest, admin_client::AdminClient};

/// Maximum number of entries that are kept while all are listed.
const MAX_TOP: u64 = 10_000;

/// Show the keys that use most of their limits, or are refused most often
///
/// `used` and `near` read all keys that are stored; a shared store is read slowly, so that checks are not delayed. `refused` is
/// the replicas' recent samples, where http.ui.enabled is set.
#[derive(Args)]
pub(super) struct Usage {
    #[command(flatten)]
    which: Which,
    /// Maximum number of keys; at most 100 with `--by refused`
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=MAX_TOP))]
    top: u64,
    /// Sort order
    #[arg(long, value_enum, default_value_t = By::Used)]
    by: By,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    client: Client,
}

#[derive(Clone, Copy, ValueEnum)]
enum By {
    /// Units used
    Used,
    /// Refusals per second, sampled over the last seconds
    Refused,
    /// The part of the limit that is used: those at their limits first
    Near,
}

impl Usage {
    pub(super) fn run(self) -> CommandResult {
        let found = match self.by {
            By::Refused => block_on(self.refused()),
            By::Used => block_on(self.top(|row| row.used)),
            // By millionths of the share; among equal shares the longest time until the reset comes first.
            By::Near => block_on(self.top(|row| {
                let seconds = row.reset_after.map_or(0, |after| after.seconds).clamp(0, 0xffff_ffff) as u64;
                ((share(row) * 1e6) as u64) << 32 | seconds
            })),
        };
        found.map(|()| ExitCode::SUCCESS)
    }

    /// Prints the entries with the greatest `rank`.
    async fn top(&self, rank: impl Fn(&KeyUsage) -> u64) -> Result<(), Failure> {
        let (mut top, mut number) = (BTreeMap::new(), 0_u64);
        let take = |row: KeyUsage| {
            if row.known && row.used > 0 {
                number += 1;
                top.insert((Reverse(rank(&row)), number), row);
                if top.len() as u64 > self.top {
                    top.pop_last();
                }
            }
            Ok(())
        };
        self.which.each(&self.client, u64::MAX, take).await?;
        self.format.head()?;
        let mut printed = HashSet::new();
        for row in top.into_values() {
            // While keys are added and removed, a row may be listed twice.
            if printed.insert((row.domain.clone(), row.key.clone(), row.limit_name.clone())) {
                self.format.row(&row)?;
            }
        }
        Ok(())
    }

    async fn refused(&self) -> Result<(), Failure> {
        let mut service = AdminClient::new(self.client.connect().await?);
        let request = ListHotKeysRequest {
            domain: self.which.domain.clone(),
            prefix: self.which.prefix.clone(),
            all_domains: self.which.all_domains,
            count: self.top as u32,
            order: HotKeyOrder::Refused.into(),
        };
        let answer = service.list_hot_keys(request).await.map_err(|status| self.client.failure(&status))?.into_inner();
        if answer.replicas == 0 {
            return Err(Failure("no replica samples hot keys: set http.ui.enabled".to_owned()));
        }
        if answer.keys.is_empty() {
            self.which.warn_of_slashes();
        }
        self.format.hot_head()?;
        answer.keys.iter().try_for_each(|key: &HotKey| print_line(self.format.hot_key(key)))?;
        Ok(())
    }
}
