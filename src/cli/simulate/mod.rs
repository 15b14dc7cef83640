//! `weir simulate`

pub mod access;
mod compare;
pub mod lines;
mod moments;
mod passed_over;
mod place;
mod progress;
mod source;
mod story;
mod tallies;
mod telling;
pub mod trace;

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{ArgGroup, Args};
use weir_core::{
    algorithm::Bounds,
    domain::{ManualClock, time::parse_duration},
};
use weir_policy::{Policy, Rules};
use weir_store::{StoreSettings, StoreUrl};

use self::{
    compare::Comparison,
    place::{InRedis, Place, in_memory},
    source::Source,
    story::{Print, Story},
    telling::{End, Listener, Telling},
};
use super::{CommandResult, Failure, NO, block_on, out::Out, signals::Signals, variables};
use crate::config::{Flags, Settings};

/// Run a story through a policy in virtual time, or through two and compare
///
/// The trace has one JSON object a line: {"at_us":0,"key":["user","alex","trade"]}, with domain, cost, max_wait_us, factor,
/// limits (as a policy writes them, with a depth) and charge where needed; or {"at_us":9,"reset":["user","alex"],
/// "subtree":true}. One line comes out for each. A line that is no trace ends it with its number and exit code 2, and so
/// does a store that fails.
///
/// With --compare the exit code is 0 when two policies treat every request alike, 1 when they do not, and 2 on errors.
#[derive(Args)]
#[command(group = ArgGroup::new("report"))]
pub struct Simulate {
    /// The policy: a YAML file or a directory of them
    #[arg(long, value_name = "PATH")]
    limits: Option<PathBuf>,
    /// Two policies, each with counts of its own: tell who is treated differently, and when
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "limits", group = "report")]
    compare: Option<Vec<PathBuf>>,
    /// Where counts live: memory, redis://, rediss://, redis+unix://, redis-sentinel:// or redis-cluster://. In Redis the
    /// story has a key prefix of its own, which is removed when it ends
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// The file whose store.redis settings are used: password files, TLS, timeouts. WEIR_STORE__REDIS__… stands above it.
    /// Nothing else in it counts
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    source: Source,
    /// The longest period that is allowed, as in the setting max_period
    #[arg(long, value_name = "TIME", default_value = "31d")]
    max_period: String,
    /// Print what each limit allowed and refused instead of every decision
    #[arg(long, group = "report")]
    summary: bool,
    /// With --summary or --compare: print JSON
    #[arg(long, requires = "report")]
    json: bool,
    /// With --compare: print every request that is treated differently, as it comes
    #[arg(long, requires = "compare")]
    each: bool,
    /// With --compare: how many keys are told, those first that are most often treated differently
    #[arg(long, value_name = "N", default_value_t = 20, requires = "compare")]
    top: usize,
    /// Tell on standard error how far it is, also where that is no terminal
    #[arg(long)]
    progress: bool,
}

/// What a story needs besides its lines.
struct Scene {
    clock: Arc<ManualClock>,
    bounds: Bounds,
    /// One policy, or two to be compared, each with its file's name.
    policies: Vec<(String, Policy)>,
}

impl Simulate {
    pub(super) fn run(self) -> CommandResult {
        let store = self.store_settings()?;
        let bounds = Bounds { max_period: parse_duration(&self.max_period).map_err(Failure)? };
        let policies = self.policies(&bounds)?;
        let is_alone = self.is_quiet() || !io::stdout().is_terminal();
        let telling = self.source.open(self.progress, is_alone)?;
        let scene = Scene { clock: Arc::default(), bounds, policies };
        match &store.url {
            StoreUrl::Memory => {
                let places = scene.policies.iter().map(|_| in_memory(&scene.clock)).collect();
                block_on(self.perform(scene, places, telling, Signals::End))
            }
            StoreUrl::Redis(url) => block_on(async {
                let signals = Signals::listen()?;
                let mut places = Vec::new();
                for _ in &scene.policies {
                    places.push(InRedis::open(url, &store.redis, &scene.clock).await?);
                }
                self.perform(scene, places, telling, signals).await
            }),
        }
    }

    /// Nothing is printed before the end.
    fn is_quiet(&self) -> bool {
        self.summary || self.compare.is_some() && !self.each
    }

    fn store_settings(&self) -> Result<StoreSettings, Failure> {
        let of_redis = variables().filter(|(name, _)| name.starts_with("WEIR_STORE__REDIS__"));
        let flags = Flags { limits: None, store: Some(self.store.clone()) };
        Ok(Settings::load(self.config.as_deref(), of_redis, &flags)?.store)
    }

    fn policies(&self, bounds: &Bounds) -> Result<Vec<(String, Policy)>, Failure> {
        let rules = Rules { bounds: *bounds, ..Rules::default() };
        let load = |path: &Path| Ok((path.display().to_string(), weir_policy::load(path, &rules)?.policy));
        match (&self.compare, &self.limits) {
            (Some(paths), _) => paths.iter().map(|path| load(path)).collect(),
            (None, Some(path)) => Ok(vec![load(path)?]),
            (None, None) => Ok(vec![(String::new(), Policy::empty())]),
        }
    }

    async fn perform<S: Place>(
        &self,
        Scene { clock, bounds, policies }: Scene,
        places: Vec<S>,
        telling: Telling,
        signals: Signals,
    ) -> CommandResult {
        let mut parties = policies.into_iter().zip(places).map(|((name, policy), place)| (name, policy, place));
        let (Some(first), second) = (parties.next(), parties.next()) else { return Ok(ExitCode::SUCCESS) };
        if let Some(second) = second {
            let print = compare::Print { json: self.json, each: self.each, top: self.top };
            return tell_and_leave(Comparison::new([first, second], clock, bounds, print), telling, signals).await;
        }
        let print = match (self.summary, self.source.is_access_log()) {
            (true, _) => Print::Summary { json: self.json },
            (false, true) => Print::DecisionsOfKeys,
            (false, false) => Print::Decisions,
        };
        tell_and_leave(Story::new(first.2, clock, first.1, bounds, print), telling, signals).await
    }
}

/// However the story ends, what it has written goes; a second signal leaves it.
async fn tell_and_leave(mut listener: impl Listener, telling: Telling, mut signals: Signals) -> CommandResult {
    let told = tell(&mut listener, telling, signals.next()).await;
    let left = tokio::select! {
        left = leave(&listener) => left,
        _ = signals.next() => {
            listener.places().into_iter().map(|place| format!("{}: interrupted", place.left_behind())).collect()
        }
    };
    match (told, left.join("\nweir: ")) {
        (told, left) if left.is_empty() => told,
        (Ok(_), left) => Err(Failure(left)),
        (Err(Failure(first)), left) => Err(Failure(format!("{first}\nweir: {left}"))),
    }
}

/// What was left behind, and why.
async fn leave(listener: &impl Listener) -> Vec<String> {
    let mut left = Vec::new();
    for place in listener.places() {
        if let Err(why) = place.leave().await {
            left.push(format!("{}: {why}", place.left_behind()));
        }
    }
    left
}

async fn tell(listener: &mut impl Listener, mut telling: Telling, broken: impl Future<Output = u8>) -> CommandResult {
    let mut out = BufWriter::new(Out::new());
    let end = telling.tell(listener, &mut out, broken).await;
    telling.progress.conclude();
    let code = end.and_then(|end| match end {
        End::Complete => telling.conclude().and_then(|()| Ok(listener.conclude(&mut out)?)),
        End::Broken(code) => Ok(code),
    });
    out.flush()?;
    Ok(ExitCode::from(code?))
}
