//! The report as text.

use std::fmt;

use super::{CpuTime, LoadInfo, Report};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.load)?;
        let interrupted = if self.interrupted { ", interrupted" } else { "" };
        let elapsed = format!("answered within {:.2}s", self.elapsed_s);
        writeln!(f, "measured for {:.2}s{interrupted}, {elapsed}\n", self.duration_s)?;
        writeln!(f, "checks     {:>12}  {:>12.0}/s", self.checks, self.checks_per_s)?;
        if self.calls != self.checks {
            writeln!(f, "calls      {:>12}  {:>12.0}/s", self.calls, self.calls_per_s)?;
        }
        for (name, count) in [("allowed", self.allowed), ("refused", self.refused), ("errors", self.errors.total)] {
            writeln!(f, "{name:<10} {count:>12}  {:>12.2}%", count as f64 / self.checks.max(1) as f64 * 100.0)?;
        }
        for (code, errors) in &self.errors.by_code {
            writeln!(f, "  {code} {}: {}", errors.count, errors.first)?;
        }
        if self.degraded > 0 {
            writeln!(f, "degraded   {:>12}  decided without the shared store", self.degraded)?;
        }
        let (before, warm_up) = (self.not_measured.before, self.not_measured.warm_up);
        writeln!(f, "excluded   {before:>12}  before the load, {warm_up} in the warm-up")?;
        writeln!(f, "\nlatency    {}", self.latency_us)?;
        if let Some(open) = &self.open_loop {
            writeln!(f, "sent late  {}", open.sent_late_us)?;
            let (due, unsent, waiting) = (open.calls_due, open.calls_unsent, open.most_waiting);
            writeln!(f, "schedule   {due} calls due, {unsent} never sent, at most {waiting} waiting for a stream")?;
        }
        write!(f, "CPU time   generator {}", self.generator)?;
        if let Some(server) = &self.server {
            write!(f, "; service {server}")?;
        }
        for warning in &self.warnings {
            write!(f, "\n\nwarning: {warning}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CpuTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}us a check, {:.2} cores", self.us_per_check, self.cores)
    }
}

impl fmt::Display for LoadInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate.map_or_else(|| "closed loop".to_owned(), |rate| format!("open loop of {rate} checks/s"));
        writeln!(f, "{} to {}, {rate}", self.call, self.address)?;
        write!(f, "{} connections x {} streams", self.connections, self.streams)?;
        if let Some(window) = self.window {
            write!(f, " x {window} checks")?;
        }
        if let Some(batch) = self.batch {
            write!(f, ", {batch} checks a call")?;
        }
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        writeln!(f, ", {} {threads}", self.threads)?;
        write!(f, "{} keys `{}`", self.keys, self.key)?;
        if !self.domain.is_empty() {
            write!(f, " in `{}`", self.domain)?;
        }
        write!(f, ", {}; cost {}", self.distribution, self.cost)?;
        match (&self.limit, self.levels) {
            (Some(limit), Some(1)) => write!(f, "; limit {limit}")?,
            (Some(limit), Some(levels)) => write!(f, "; limit {limit} on {levels} levels")?,
            _ => write!(f, "; the policy decides")?,
        }
        if self.refusals > 0.0 {
            write!(f, "; {}% to be refused", self.refusals * 100.0)?;
        }
        write!(f, "; seed {}", self.seed)
    }
}
