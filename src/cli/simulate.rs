//! `weir simulate`

use std::{
    collections::hash_map::RandomState,
    fs::File,
    future::pending,
    hash::{BuildHasher, Hasher},
    io::{self, BufWriter, Read, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use clap::Args;

use super::{
    CommandResult, Failure, block_on,
    lines::{Lines, Signals},
    out::Out,
    story::{End, Story, in_full},
    variables,
};
use crate::{
    algorithm::Bounds,
    config::{Flags, Settings},
    domain::{
        ManualClock,
        time::{SECOND, parse_duration},
    },
    policy::{self, Policy},
    settings::Time,
    store::{
        MemoryStore, Store, StoreSettings, StoreUrl,
        memory::MemorySettings,
        redis::{RedisStore, settings::RedisSettings},
        url::RedisUrl,
    },
};

/// Run a story through a policy in virtual time
///
/// The trace has one JSON object a line: {"at_us":0,"key":["user","alex","trade"]}, with domain, cost, max_wait_us, factor,
/// limits (as a policy writes them, with a depth) and charge where needed; or {"at_us":9,"reset":["user","alex"],
/// "subtree":true}. One line comes out for each. A line that is no trace ends it with its number and exit code 2, and so
/// does a store that fails.
#[derive(Args)]
pub struct Simulate {
    /// The policy: a YAML file or a directory of them
    #[arg(long, value_name = "PATH")]
    limits: Option<PathBuf>,
    /// Where counts live: memory, redis://, rediss://, redis+unix://, redis-sentinel:// or redis-cluster://. In Redis the
    /// story has a key prefix of its own, which is removed when it ends
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// The file whose store.redis settings are used: password files, TLS, timeouts. WEIR_STORE__REDIS__… stands above it.
    /// Nothing else in it counts
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The trace, or - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    trace: PathBuf,
    /// The longest period that is allowed, as in the setting max_period
    #[arg(long, value_name = "TIME", default_value = "31d")]
    max_period: String,
    /// Print what each limit allowed and refused instead of every decision
    #[arg(long)]
    summary: bool,
    /// With --summary: print JSON
    #[arg(long, requires = "summary")]
    json: bool,
}

/// Most states of a story in memory: beyond what memory holds, so that no refusal is the store's.
const MAX_KEYS: usize = 1 << 32;

/// The least that a decision in Redis may take: a person waits for it, and nobody else.
const LEAST_COMMAND_TIMEOUT: Time = Time(5 * SECOND);

type Trace = Box<dyn Read + Send>;

impl Simulate {
    pub fn run(self) -> CommandResult {
        let store = self.store_settings()?;
        let bounds = Bounds { max_period: parse_duration(&self.max_period).map_err(Failure)? };
        let policy = match &self.limits {
            Some(path) => policy::load(path, &bounds)?.policy,
            None => Policy::empty(),
        };
        let trace: Trace = if self.trace.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&self.trace).map_err(|error| format!("{}: {error}", self.trace.display()))?)
        };
        let clock = Arc::new(ManualClock::default());
        match &store.url {
            StoreUrl::Memory => {
                let store = MemoryStore::new(
                    MemorySettings { max_keys: MAX_KEYS, ..MemorySettings::default() },
                    Arc::clone(&clock),
                );
                let mut story = Story::new(store, clock, policy, bounds);
                block_on(self.play(&mut story, trace, pending()))
            }
            StoreUrl::Redis(url) => block_on(async {
                let signals = Signals::listen()?;
                let settings = alone(store.redis);
                let store = RedisStore::start(url, &settings, Some(Arc::clone(&clock) as _), Arc::default())?;
                let reached = store.reach(settings.connect_timeout.duration()).await;
                reached.map_err(|error| format!("cannot use {url}: {}", in_full(&error)))?;
                let story = Story::new(store, clock, policy, bounds);
                self.play_and_clear(story, trace, signals, &left_behind(url, &settings)).await
            }),
        }
    }

    fn store_settings(&self) -> Result<StoreSettings, Failure> {
        let of_redis = variables().filter(|(name, _)| name.starts_with("WEIR_STORE__REDIS__"));
        let flags = Flags { limits: None, store: Some(self.store.clone()) };
        Ok(Settings::load(self.config.as_deref(), of_redis, &flags)?.store)
    }

    async fn play<S: Store>(
        &self,
        story: &mut Story<S>,
        trace: Trace,
        broken: impl Future<Output = u8>,
    ) -> CommandResult {
        let mut out = BufWriter::new(Out::new());
        let lines: &mut dyn Write = if self.summary { &mut io::sink() } else { &mut out };
        let end = story.tell(Lines::read(trace)?, lines, broken).await;
        if matches!(end, Ok(End::Told)) && self.summary {
            story.print_summary(self.json, &mut out)?;
        }
        out.flush()?;
        end.map(|end| match end {
            End::Told => ExitCode::SUCCESS,
            End::Broken(code) => ExitCode::from(code),
        })
    }

    /// However the story ends, what it has written goes; a second signal leaves it.
    async fn play_and_clear(
        &self,
        mut story: Story<RedisStore>,
        trace: Trace,
        mut signals: Signals,
        left_behind: &str,
    ) -> CommandResult {
        let played = self.play(&mut story, trace, signals.next()).await;
        let cleared = tokio::select! {
            cleared = story.store().clear() => cleared.map(drop).map_err(|error| in_full(&error)),
            _ = signals.next() => Err("interrupted".to_owned()),
        };
        match (played, cleared) {
            (played, Ok(())) => played,
            (Ok(_), Err(why)) => Err(Failure(format!("{left_behind}: {why}"))),
            (Err(Failure(first)), Err(why)) => Err(Failure(format!("{first}\nweir: {left_behind}: {why}"))),
        }
    }
}

/// The settings of a store that holds one story and nothing else.
fn alone(redis: RedisSettings) -> RedisSettings {
    // Seeded by the system, anew for each.
    let random = || RandomState::new().build_hasher().finish();
    let key_prefix = format!("{}simulate:{:016x}{:016x}:", redis.key_prefix, random(), random());
    let command_timeout = Time(redis.command_timeout.0.max(LEAST_COMMAND_TIMEOUT.0));
    RedisSettings { key_prefix, command_timeout, ..redis }
}

fn left_behind(url: &RedisUrl, settings: &RedisSettings) -> String {
    format!("keys that begin with {} may be left in {url} until they expire", settings.key_prefix)
}
