//! The metrics of the process, under the names that all Prometheus client libraries use; on Linux only.

use procfs::{
    ProcResult, WithCurrentSystemInfo,
    process::{LimitValue, Process},
};
use weir_telemetry::{Render, text::single};

/// Reads the metrics from `/proc` at each scrape.
pub(super) struct ProcessMetrics;

impl Render for ProcessMetrics {
    fn render(&self, out: &mut String) {
        // Without `/proc` they are absent.
        let _ = render(out);
    }
}

fn render(out: &mut String) -> ProcResult<()> {
    let process = Process::myself()?;
    let (stat, ticks_per_second) = (process.stat()?, procfs::ticks_per_second() as f64);
    let seconds = |ticks: u64| ticks as f64 / ticks_per_second;
    let max_fds = match process.limits()?.max_open_files.soft_limit {
        LimitValue::Value(most) => most as f64,
        // As in Prometheus' own client libraries.
        LimitValue::Unlimited => u64::MAX as f64,
    };
    let started = procfs::boot_time_secs()? as f64 + seconds(stat.starttime);
    for (name, kind, help, value) in [
        ("cpu_seconds_total", "counter", "CPU time, user and system, in seconds.", seconds(stat.utime + stat.stime)),
        ("resident_memory_bytes", "gauge", "Resident memory, in bytes.", stat.rss_bytes().get() as f64),
        ("virtual_memory_bytes", "gauge", "Virtual memory, in bytes.", stat.vsize as f64),
        ("open_fds", "gauge", "Open file descriptors.", process.fd_count()? as f64),
        ("max_fds", "gauge", "Most file descriptors that may be open.", max_fds),
        ("threads", "gauge", "Threads.", stat.num_threads as f64),
        ("start_time_seconds", "gauge", "Unix time of the start, in seconds.", started),
    ] {
        single(out, &format!("process_{name}"), kind, help, value);
    }
    Ok(())
}
