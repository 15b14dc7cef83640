//! Processor time.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::Failure;

/// The unit in which Linux tells the processor time of a process; it is the same on all its usual machines.
const TICK: Duration = Duration::from_millis(10);
/// Where in `/proc/PID/stat` the times in the process itself and in the system stand, counted behind the name.
const USER: usize = 11;
const SYSTEM: usize = 12;

/// What this process has used so far.
pub fn own() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// What another process has used so far, to the hundredth of a second. Linux tells it.
///
/// # Errors
/// When there is no such process, or no such file system.
pub fn of_process(pid: u32) -> Result<Duration, Failure> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|error| Failure(format!("{path}: {error}")))?;
    ticks(&text).map(|ticks| TICK * ticks).ok_or_else(|| Failure(format!("{path} has another form")))
}

fn ticks(stat: &str) -> Option<u32> {
    // The name is in parentheses and may hold anything.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u32>().ok();
    field(USER)?.checked_add(field(SYSTEM)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) R 1 (b)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 9 1 2";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_has_used_some() {
        let before = own();
        let mut sum = 0u64;
        while own() == before {
            sum = sum.wrapping_add(1);
        }
        assert!(own() > before);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_tells_the_same_of_this_process() {
        let told = of_process(std::process::id()).unwrap_or_default();
        assert!(told <= own() + TICK * 2, "{told:?}");
        assert!(of_process(u32::MAX).is_err());
    }
}
