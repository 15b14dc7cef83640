//! `weir simulate`

pub mod access;
mod compare;
pub mod lines;
mod progress;
mod replay;
mod simulation;
mod skipped;
mod source;
mod store;
pub(super) mod timestamps;
pub mod trace;

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{ArgGroup, Args};
use weir_core::{algorithm::Bounds, domain::ManualClock};
use weir_policy::{Policy, Rules};
use weir_server::cli::Signals;
use weir_store::{Store, StoreSettings, StoreUrl};
use weir_telemetry::Causes;

use self::{
    compare::Comparison,
    replay::{End, Replay, ReplayTarget},
    simulation::{Print, Simulation},
    source::Source,
    store::{Leftovers, in_memory, open_redis},
};
use super::{CommandResult, EXIT_NO, Failure, block_on, out::Out, rules::RulesArgs, variables};
use crate::config::{Flags, Settings};

/// Replay a trace against a policy in virtual time, or compare two policies
///
/// The trace has one JSON object a line: {"at_us":0,"key":["user","alex","trade"]}, with domain, cost, max_wait_us, factor,
/// limits (as a policy writes them, with a depth) and charge where needed; or {"at_us":9,"reset":["user","alex"],
/// "subtree":true}. Each line is answered by one line, with an `error` where a service would reject the request (an unknown
/// domain, a negative factor). A line that is not written so, or a store error, ends the run with exit code 2, and the error has
/// the number of the line.
///
/// With --compare the exit code is 0 when both policies treat every request alike, 1 when they differ, and 2 on errors.
#[derive(Args)]
#[command(group = ArgGroup::new("report"))]
pub struct Simulate {
    /// The policy: a YAML file or a directory of them
    #[arg(long, value_name = "PATH")]
    limits: Option<PathBuf>,
    /// Compare two policies, each with its own counts: print which keys are treated differently, and when
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "limits", group = "report")]
    compare: Option<Vec<PathBuf>>,
    /// The store: memory, redis://, rediss://, redis+unix://, redis-sentinel:// or redis-cluster://. In Redis the trace runs
    /// under its own key prefix, whose keys are deleted at the end; password files, TLS and timeouts are those of store.redis in
    /// --config FILE, or of WEIR_STORE__REDIS__… variables
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    rules: RulesArgs,
    /// Print totals for each limit instead of every decision
    #[arg(long, group = "report")]
    summary: bool,
    /// With --summary or --compare: print JSON
    #[arg(long, requires = "report")]
    json: bool,
    /// With --compare: print every request that is treated differently, as it occurs
    #[arg(long, requires = "compare")]
    each: bool,
    /// With --compare: number of keys to list, most often treated differently first
    #[arg(long, value_name = "N", default_value_t = 20, requires = "compare")]
    top: usize,
    /// Show progress on standard error even when it is not a terminal
    #[arg(long)]
    progress: bool,
}

/// The inputs of a simulation besides its lines.
struct Setup {
    clock: Arc<ManualClock>,
    bounds: Bounds,
    /// One policy, or two to compare, each with the name of its file.
    policies: Vec<(String, Policy)>,
}

impl Simulate {
    pub(super) fn run(self) -> CommandResult {
        let store = self.store_settings()?;
        let rules = self.rules.rules()?;
        let (bounds, policies) = (rules.bounds, self.policies(&rules)?);
        let is_alone = self.is_quiet() || !io::stdout().is_terminal();
        let replay = self.source.open(self.progress, is_alone)?;
        let scene = Setup { clock: Arc::default(), bounds, policies };
        match &store.url {
            StoreUrl::Memory => {
                let stores = scene.policies.iter().map(|_| in_memory(&scene.clock)).collect();
                block_on(self.perform(scene, stores, Vec::new(), replay, Signals::default()))
            }
            StoreUrl::Redis(url) => block_on(async {
                let signals = Signals::listen()?;
                let (mut stores, mut leftovers) = (Vec::new(), Vec::new());
                for _ in &scene.policies {
                    let (store, left) = open_redis(url, &store.redis, &scene.clock).await?;
                    stores.push(store);
                    leftovers.push(left);
                }
                self.perform(scene, stores, leftovers, replay, signals).await
            }),
        }
    }

    /// Whether nothing is printed before the end.
    fn is_quiet(&self) -> bool {
        self.summary || self.compare.is_some() && !self.each
    }

    fn store_settings(&self) -> Result<StoreSettings, Failure> {
        let of_redis = variables().filter(|(name, _)| name.starts_with("WEIR_STORE__REDIS__"));
        let flags = Flags { store: Some(self.store.clone()), ..Flags::default() };
        let settings = Settings::load(self.rules.config.as_deref(), of_redis, &flags)?;
        match settings.unusable_store_files().into_iter().next() {
            Some(problem) => Err(Failure(problem)),
            None => Ok(settings.store),
        }
    }

    fn policies(&self, rules: &Rules) -> Result<Vec<(String, Policy)>, Failure> {
        let load = |path: &Path| Ok((path.display().to_string(), weir_policy::load(path, rules)?.policy));
        match (&self.compare, &self.limits) {
            (Some(paths), _) => paths.iter().map(|path| load(path)).collect(),
            (None, Some(path)) => Ok(vec![load(path)?]),
            (None, None) => Ok(vec![(String::new(), Policy::empty())]),
        }
    }

    async fn perform<S: Store>(
        &self,
        Setup { clock, bounds, policies }: Setup,
        stores: Vec<S>,
        leftovers: Vec<Leftovers>,
        replay: Replay,
        signals: Signals,
    ) -> CommandResult {
        let mut sides = policies.into_iter().zip(stores).map(|((name, policy), store)| (name, policy, store));
        let (Some(first), second) = (sides.next(), sides.next()) else { return Ok(ExitCode::SUCCESS) };
        if let Some(second) = second {
            let print = compare::Print { json: self.json, each: self.each, top: self.top };
            let comparison = Comparison::new([first, second], clock, bounds, print);
            return replay_and_clean_up(comparison, leftovers, replay, signals).await;
        }
        let print = match (self.summary, self.source.is_access_log()) {
            (true, _) => Print::Summary { json: self.json },
            (false, true) => Print::DecisionsOfKeys,
            (false, false) => Print::Decisions,
        };
        let simulation = Simulation::new(first.2, clock, first.1, bounds, print);
        replay_and_clean_up(simulation, leftovers, replay, signals).await
    }
}

/// Runs the replay and deletes its keys, however it ends; a second signal skips the deletion.
async fn replay_and_clean_up(
    mut target: impl ReplayTarget,
    mut leftovers: Vec<Leftovers>,
    replay: Replay,
    mut signals: Signals,
) -> CommandResult {
    let outcome = run(&mut target, replay, signals.next()).await;
    let left = tokio::select! {
        left = clean_up(&mut leftovers) => left,
        _ = signals.next() => leftovers.iter().map(|left| format!("{}: interrupted", left.text)).collect(),
    };
    match (outcome, left.join("\nweir: ")) {
        (outcome, left) if left.is_empty() => outcome,
        (Ok(_), left) => Err(Failure(left)),
        (Err(Failure(first)), left) => Err(Failure(format!("{first}\nweir: {left}"))),
    }
}

/// Deletes the leftovers. Returns which remain, and why.
async fn clean_up(leftovers: &mut [Leftovers]) -> Vec<String> {
    let mut left = Vec::new();
    for Leftovers { text, deletion } in leftovers {
        if let Err(error) = deletion.await {
            left.push(format!("{text}: {}", Causes(&error)));
        }
    }
    left
}

async fn run(
    target: &mut impl ReplayTarget,
    mut replay: Replay,
    interrupted: impl Future<Output = u8>,
) -> CommandResult {
    let mut out = BufWriter::new(Out::new());
    let end = replay.run(target, &mut out, interrupted).await;
    replay.progress.conclude();
    let code = end.and_then(|end| match end {
        End::Complete => replay.conclude().and_then(|()| Ok(target.conclude(&mut out)?)),
        End::Interrupted(code) => Ok(code),
    });
    out.flush()?;
    Ok(ExitCode::from(code?))
}
