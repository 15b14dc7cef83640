//! `weir keys`

use std::{process::ExitCode, time::Duration};

use clap::Args;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::{
    CommandResult, Failure, block_on,
    client::{Client, Service},
    hint,
    key_rows::Format,
    out::{self, print_error},
};
use crate::proto::{KeyUsage, ListKeysRequest, ListKeysResponse, admin_client::AdminClient};

/// Maximum number of entries of a page.
const PAGE: u32 = 1_000;
/// Attempts to get a page, and the backoff before the second one; it doubles.
const PAGE_TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Errors after which a page is requested again; the last two mean a timeout.
const AGAIN: [Code; 4] = [Code::Unavailable, Code::ResourceExhausted, Code::Cancelled, Code::DeadlineExceeded];

/// Which keys to list.
#[derive(Args)]
pub(super) struct Which {
    /// Only this key and those below it: its segments, root first
    #[arg(value_name = "PREFIX")]
    pub prefix: Vec<String>,
    /// The domain of the keys
    #[arg(long, default_value = "")]
    pub domain: String,
    /// The keys of all domains
    #[arg(long, conflicts_with_all = ["domain", "prefix"])]
    pub all_domains: bool,
}

/// List the stored keys with their usage
#[derive(Args)]
pub(super) struct Keys {
    #[command(flatten)]
    which: Which,
    /// Maximum number of entries, one for each limit of each key
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// List all entries. A shared store is scanned slowly, so that checks are not delayed
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    client: Client,
}

impl Keys {
    pub(super) fn run(self) -> CommandResult {
        let most = if self.all { u64::MAX } else { self.limit };
        self.format.head()?;
        let rest = block_on(self.which.each(&self.client, most, |row| {
            self.format.row(&row)?;
            Ok(())
        }))?;
        if rest && !self.format.json && !self.format.csv {
            print_error(format_args!("weir: there are more: --limit N, or --all"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Which {
    /// Calls `take` for each entry, for at most `most` of them, or until standard output is closed. Returns whether
    /// there may be more.
    pub(super) async fn each(
        &self,
        client: &Client,
        most: u64,
        take: impl FnMut(KeyUsage) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let ask = async |service: &mut AdminClient<Service>, request: ListKeysRequest| {
            let ListKeysResponse { keys, next_cursor } = service.list_keys(request).await?.into_inner();
            Ok((keys, next_cursor))
        };
        self.pages(client, most, ask, take).await
    }

    /// Warns on standard error, after no key was found, if the prefix may be one argument for several segments.
    pub(super) fn warn_of_slashes(&self) {
        if self.prefix.iter().any(|segment| segment.contains('/')) {
            let (prefix, split) =
                (hint::shown(&self.prefix), self.prefix.iter().flat_map(|segment| segment.split('/')));
            let meant = hint::shown(&split.map(str::to_owned).collect::<Vec<_>>());
            print_error(format_args!(
                "weir: warning: no keys under `{prefix}`: each segment is an argument; did you mean `{meant}`?"
            ));
        }
    }

    /// Like [`Self::each`], for the entries of any paginated call.
    pub(super) async fn pages<R>(
        &self,
        client: &Client,
        most: u64,
        ask: impl AsyncFn(&mut AdminClient<Service>, ListKeysRequest) -> Result<(Vec<R>, String), Status>,
        mut take: impl FnMut(R) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        hint::check_expansion(&self.prefix)?;
        let mut service: AdminClient<Service> =
            AdminClient::new(client.connect().await?).max_decoding_message_size(64 << 20);
        let (mut cursor, mut count) = (String::new(), 0);
        loop {
            let request = ListKeysRequest {
                domain: self.domain.clone(),
                prefix: self.prefix.clone(),
                all_domains: self.all_domains,
                page_size: u64::from(PAGE).min(most - count) as u32,
                cursor,
            };
            let (rows, next) = page(&mut service, &ask, request).await.map_err(|status| client.failure(&status))?;
            for row in rows {
                if count == most {
                    return Ok(true);
                }
                count += 1;
                take(row)?;
                if out::is_closed() {
                    return Ok(false);
                }
            }
            cursor = next;
            if cursor.is_empty() || count == most {
                if count == 0 {
                    self.warn_of_slashes();
                }
                return Ok(!cursor.is_empty());
            }
        }
    }
}

/// Requests a page, and retries transient errors: a long scan may meet a moment of overload.
async fn page<R>(
    service: &mut AdminClient<Service>,
    ask: &impl AsyncFn(&mut AdminClient<Service>, ListKeysRequest) -> Result<(Vec<R>, String), Status>,
    request: ListKeysRequest,
) -> Result<(Vec<R>, String), Status> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..PAGE_TRIES {
        match ask(service, request.clone()).await {
            Err(status) if AGAIN.contains(&status.code()) => {
                sleep(pause).await;
                pause *= 2;
            }
            answer => return answer,
        }
    }
    ask(service, request).await
}
