//! `weir-bench`: a load generator that measures a service.

#![cfg_attr(not(test), warn(unreachable_pub))]

mod args;
mod calls;
mod checks;
mod collect;
mod cpu;
mod exhaust;
mod live;
mod pacing;
mod recorder;
mod report;
mod streams;
mod wire;
mod worker;

use std::{
    io::{self, ErrorKind, Write},
    process::ExitCode,
    sync::Arc,
};

use clap::Parser;
use futures_util::future::try_join_all;
use weir_server::cli::{Failure, Signals};

use crate::{
    args::{Bench, Format},
    collect::Collector,
    exhaust::exhaust,
    live::Live,
    pacing::Stop,
    report::Report,
    wire::{connection::Losses, dial::Target},
    worker::{Work, Worker},
};

/// The exit code if nothing was measured or no check was answered.
const NOTHING: u8 = 2;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
        let workers = (0..work.load.threads).map(|number| Worker::spawn(work.clone(), number));
        let workers = workers.collect::<Result<Vec<_>, _>>()?.into_iter().map(Worker::connected);
        let workers = try_join_all(workers).await?;
        let mut signals = Signals::listen()?;
        let collector = Collector::new(&work, self.server_pid, Live::new(self.live))?;
        let mut measured = match collector.measure(workers, &mut signals).await? {
            Ok(measured) => measured,
            Err(code) => return Ok(ExitCode::from(code)),
        };
        measured.before = before;
        let report = Report::new(self.info(&work.load, work.target.to_string()), &measured);
        let text = match self.format {
            Format::Text => report.to_string(),
            Format::Json => serde_json::to_string(&report)?,
        };
        match writeln!(io::stdout(), "{text}") {
            // As of `head`, which has read enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written?,
        }
        let is_good = report.is_answered() || measured.interrupted;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(NOTHING) })
    }

    /// Prepares the load, and returns the number of checks that this took.
    async fn prepare(&self) -> Result<(Work, u64), Failure> {
        let call = self.load.call;
        let load = self.load.load(self.checks.seed).map_err(Failure)?;
        let spec = self.checks.spec(call).map_err(Failure)?;
        if let Some(pid) = self.server_pid {
            cpu::of_process(pid)?;
        }
        let target =
            Arc::new(Target::new(self.client.destination()?, self.client.authorization()?, self.client.timeout()));
        let before = if self.checks.refusals > 0.0 {
            let head = target.head(call.single_method())?;
            exhaust(&target, &head, &spec, call.kind(), self.checks.keys(call)).await?
        } else {
            0
        };
        let work = Work {
            head: target.head(call.method())?,
            requests: Arc::new(self.checks.requests(&spec, call, self.load.checks())?),
            losses: Losses::default(),
            stop: Stop::default(),
            target,
            load,
        };
        Ok((work, before))
    }
}
