//! CPU time of processes.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::Failure;

/// USER_HZ, the unit of CPU times in `/proc`; 100 Hz on all usual architectures.
const TICK: Duration = Duration::from_millis(10);
/// Fields `utime` and `stime` of `/proc/PID/stat`, counted from the one after the name.
const USER: usize = 11;
const SYSTEM: usize = 12;

/// Returns the CPU time of this process so far.
pub(crate) fn own() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Returns the CPU time of another process so far, with a resolution of 10 ms (Linux).
///
/// # Errors
/// The process does not exist, or `/proc` is missing.
pub(crate) fn of_process(pid: u32) -> Result<Duration, Failure> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|error| Failure(format!("{path}: {error}")))?;
    ticks(&text).map(|ticks| TICK * ticks).ok_or_else(|| Failure(format!("{path} has an unknown format")))
}

fn ticks(stat: &str) -> Option<u32> {
    // The name is in parentheses and may contain anything.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u32>().ok();
    field(USER)?.checked_add(field(SYSTEM)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_parsed_behind_any_process_name() {
        let stat = "7 (a) R 1 (b)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 9 1 2";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn the_cpu_time_of_this_process_increases() {
        let before = own();
        let mut sum = 0u64;
        while own() == before {
            sum = sum.wrapping_add(1);
        }
        assert!(own() > before);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn proc_stat_agrees_with_the_cpu_clock() {
        let used = of_process(std::process::id()).unwrap_or_default();
        assert!(used <= own() + TICK * 2, "{used:?}");
        assert!(of_process(u32::MAX).is_err());
    }
}
