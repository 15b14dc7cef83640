//! `weir-bench`: puts a service under load and measures it.

mod args;
mod calls;
mod checks;
mod gather;
mod live;
mod processor;
mod report;
mod signals;
mod spend;
mod talks;
mod tally;
mod turns;
mod wire;
mod worker;

use std::{fmt::Display, process::ExitCode, sync::Arc};

use clap::Parser;
use futures_util::future::try_join_all;

use crate::{
    args::{Bench, Format},
    gather::Gathering,
    live::Live,
    report::Report,
    signals::Signals,
    spend::use_up,
    turns::Stop,
    wire::{dial::Target, line::Losses},
    worker::{Work, Worker},
};

/// The exit code where nothing was measured or nothing was answered.
const NOTHING: u8 = 2;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why there is no measurement, as it is told.
struct Failure(String);

impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Bench::parse().run().await {
        Ok(code) => code,
        Err(Failure(message)) => {
            eprintln!("weir-bench: {message}");
            ExitCode::from(NOTHING)
        }
    }
}

impl Bench {
    async fn run(self) -> Result<ExitCode, Failure> {
        let (work, before) = self.prepare().await?;
        let workers = (0..work.carried.threads).map(|number| Worker::spawn(work.clone(), number));
        let workers = workers.collect::<Result<Vec<_>, _>>()?.into_iter().map(Worker::connected);
        let workers = try_join_all(workers).await?;
        let mut signals = Signals::listen()?;
        let gathering = Gathering::new(&work, self.server_pid, Live::new(self.live))?;
        let mut measured = match gathering.measure(workers, &mut signals).await? {
            Ok(measured) => measured,
            Err(code) => return Ok(ExitCode::from(code)),
        };
        measured.before = before;
        let report = Report::new(self.made(&work.carried, work.target.to_string()), &measured);
        match self.format {
            Format::Text => println!("{report}"),
            Format::Json => println!("{}", serde_json::to_string(&report)?),
        }
        let is_good = report.is_answered() || measured.interrupted;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(NOTHING) })
    }

    /// All that a load needs, and how many checks that has taken.
    async fn prepare(&self) -> Result<(Work, u64), Failure> {
        let call = self.load.call;
        let carried = self.load.carried(self.checks.seed).map_err(Failure)?;
        let asked = self.checks.asked(call).map_err(Failure)?;
        if let Some(pid) = self.server_pid {
            processor::of_process(pid)?;
        }
        let target =
            Arc::new(Target::new(self.client.destination()?, self.client.authorization()?, self.client.timeout()));
        let before = if self.checks.refusals > 0.0 {
            let head = target.head(call.single_method())?;
            use_up(&target, &head, &asked, call.kind(), self.checks.keys(call)).await?
        } else {
            0
        };
        let work = Work {
            head: target.head(call.method())?,
            requests: Arc::new(self.checks.requests(&asked, call, self.load.checks())?),
            losses: Losses::default(),
            stop: Stop::default(),
            target,
            carried,
        };
        Ok((work, before))
    }
}
