//! What a process has used, as the kernel counts it: facts, whatever the worker says of itself.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use std::time::Duration;

/// From `/proc/PID/stat`, which a process has until it is reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// User and system time of the process and of those children of its own that it has waited for. The kernel
    /// tells it in ticks, usually of 10 ms.
    pub(super) cpu_time: Duration,
    /// Resident memory in bytes; 0 for a process that has ended.
    pub(super) resident_bytes: u64,
}

/// CPU time of all children that this process has collected so far, to the microsecond.
pub(super) fn cpu_time_of_collected_children() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
    usage.map_or(Duration::ZERO, |usage| to_duration(usage.user_time()) + to_duration(usage.system_time()))
}

fn to_duration(time: TimeVal) -> Duration {
    Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0))
}

/// Reads the usage of a process that is not reaped yet: afterwards the number may be somebody else's.
pub(super) fn read(pid: u32) -> Option<Usage> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields are numbered from 1 in proc_pid_stat(5). The second is the program's name in parentheses, which may itself
/// have spaces and parentheses: counting begins after the last one.
fn parse(stat: &str) -> Option<Usage> {
    const FIRST_FIELD_AFTER_NAME: usize = 3;
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let field = |number: usize| fields.get(number - FIRST_FIELD_AFTER_NAME)?.parse::<u64>().ok();

    let (user, system, children_user, children_system) = (field(14)?, field(15)?, field(16)?, field(17)?);
    let ticks = user.checked_add(system)?.checked_add(children_user)?.checked_add(children_system)?;
    let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some(Usage {
        cpu_time: Duration::try_from_secs_f64(ticks as f64 * tick).ok()?,
        resident_bytes: field(24)?.checked_mul(page)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS_3_TO_25: &str =
        "S 1 7 7 0 -1 4194304 1 2 3 4 1500 250 40 10 20 0 1 0 99 1000000 300 18446744073709551615";

    #[test]
    fn time_and_memory_are_found_whatever_the_program_is_called() {
        let page = rustix::param::page_size() as u64;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        for name in ["sh", "my (odd) name", ") S 1 2 3"] {
            let usage = parse(&format!("42 ({name}) {FIELDS_3_TO_25}\n")).unwrap();
            assert_eq!(usage.cpu_time, Duration::from_secs_f64(1800.0 / ticks));
            assert_eq!(usage.resident_bytes, 300 * page);
        }
    }

    #[test]
    fn what_is_no_stat_line_is_no_usage() {
        for stat in
            ["", "42", "42 (sh) S 1 2", "42 (sh) S 1 7 7 0 -1 x x x x x x x x x x x x x x x x x x x x"]
        {
            assert_eq!(parse(stat), None, "{stat}");
        }
    }

    #[test]
    fn a_living_process_has_memory() {
        assert!(read(std::process::id()).unwrap().resident_bytes > 0);
    }
}
