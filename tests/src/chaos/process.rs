//! What the kernel knows of a process.

use crate::harness::{children_of, descriptors_of};
use serde_json::{Value, json};
use std::time::Duration;

/// What must not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Open descriptors.
    pub descriptors: usize,
    /// Children, zombies too.
    pub children: usize,
    /// Resident memory, in bytes.
    pub resident: u64,
}

impl Holdings {
    /// Of this process, now.
    pub fn of(pid: u32) -> Holdings {
        let (descriptors, children) = (descriptors_of(pid), children_of(pid).len());
        Holdings { descriptors, children, resident: resident_bytes(pid) }
    }

    /// Whether nothing that can be counted is more; memory is not counted.
    pub fn has_no_more_than(&self, other: &Holdings) -> bool {
        self.descriptors <= other.descriptors && self.children <= other.children
    }

    /// For a report.
    pub fn json(&self) -> Value {
        json!({ "descriptors": self.descriptors, "children": self.children, "resident_bytes": self.resident })
    }
}

/// Resident memory of a process, in bytes; 0 if there is none.
pub fn resident_bytes(pid: u32) -> u64 {
    memory_bytes(pid, "VmRSS:")
}

/// The most resident memory that a process has had, in bytes; 0 if there is none.
pub fn peak_resident_bytes(pid: u32) -> u64 {
    memory_bytes(pid, "VmHWM:")
}

fn memory_bytes(pid: u32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Whether a process is stopped (SIGSTOP): it exists and does nothing.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state is in parentheses and may have any character in it.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// What the cores of this machine did since it began, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    stolen: u64,
    all: u64,
}

impl Cores {
    /// Until now.
    pub fn now() -> Cores {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        // Of those that follow, the time of guests is counted among the others as well.
        let ticks: Vec<u64> = ticks.take(8).filter_map(|tick| tick.parse().ok()).collect();
        Cores { stolen: ticks.get(7).copied().unwrap_or(0), all: ticks.iter().sum() }
    }

    /// The share of their time since then that was given to other machines of the same host.
    pub fn stolen_since(self, then: Cores) -> f64 {
        let all = self.all.saturating_sub(then.all).max(1);
        self.stolen.saturating_sub(then.stolen) as f64 / all as f64
    }
}

/// CPU time of all threads that a process has now, without its children, exact to the nanosecond.
pub fn cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lines = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    let nanoseconds = lines.filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(nanoseconds.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_seen_and_one_that_goes_on_too() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        crate::harness::signal(child.id(), rustix::process::Signal::STOP);
        crate::harness::until("it to stop", || is_stopped(child.id()).then_some(()));
        crate::harness::signal(child.id(), rustix::process::Signal::CONT);
        crate::harness::until("it to go on", || (!is_stopped(child.id())).then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn time_that_was_stolen_is_a_share_of_all_time() {
        let then = Cores { stolen: 10, all: 1000 };
        assert!((Cores { stolen: 30, all: 1200 }.stolen_since(then) - 0.1).abs() < 1e-9);
        assert!(Cores::now().all > 0);
    }

    #[test]
    fn this_process_has_memory_and_uses_its_processor() {
        assert!(resident_bytes(std::process::id()) > 1 << 20);
        let before = cpu_time(std::process::id());
        while cpu_time(std::process::id()) < before + Duration::from_millis(1) {
            std::hint::black_box(before);
        }
    }
}
