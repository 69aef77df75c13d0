//! How many workers the memory is enough for.

use super::super::doctor::cgroup::Limits;
use super::super::text;
use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

/// The field names are a contract with users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Memory {
    /// What the machine, or the control group, still has.
    pub(super) available_bytes: u64,
    /// The most that a worker had of those that have ended: jobs of this task and size.
    pub(super) worker_bytes: u64,
}

impl Memory {
    /// As it is now, with the workers that have ended so far.
    pub(super) fn now() -> Memory {
        let limit = Limits::of_this_process().memory.unwrap_or(u64::MAX);
        let kibibytes = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss());
        Memory {
            available_bytes: available(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())
                .min(limit),
            worker_bytes: u64::try_from(kibibytes).unwrap_or(0) << 10,
        }
    }

    /// For how many workers it is enough.
    pub(super) fn workers(self) -> usize {
        let workers = self.available_bytes.checked_div(self.worker_bytes).unwrap_or(u64::MAX);
        usize::try_from(workers).unwrap_or(usize::MAX)
    }

    /// For people.
    pub(super) fn words(self) -> String {
        let [available, worker] = [self.available_bytes, self.worker_bytes].map(text::bytes);
        match self.worker_bytes {
            0 => format!("{available} of memory are left"),
            _ => format!("{available} of memory are enough for {} of {worker}", self.workers()),
        }
    }
}

/// `MemAvailable` of `/proc/meminfo`; without it, nobody knows of a bound.
fn available(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(u64::MAX, |kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_enough_for_as_many_workers_as_fit() {
        let memory = Memory { available_bytes: 100 << 20, worker_bytes: 30 << 20 };
        assert_eq!(
            (memory.workers(), memory.words().as_str()),
            (3, "100.0 MiB of memory are enough for 3 of 30.0 MiB")
        );
        let unknown = Memory { worker_bytes: 0, ..memory };
        assert_eq!(
            (unknown.workers(), unknown.words().as_str()),
            (usize::MAX, "100.0 MiB of memory are left")
        );
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), 2 << 20);
        assert_eq!(available(""), u64::MAX);
    }
}
