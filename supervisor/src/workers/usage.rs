//! The resources that a process has used, as the kernel counts them. The worker's own figures are not used.

use super::confinement::{stat_field, status_field};
use crate::limits::DESCENDANTS_MAX;
use crate::sys::{CpuTime, Ended};
use nix::sys::resource::{UsageWho, getrusage};
use offload_core::exit::Exit;
use serde::Serialize;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Bytes that are read of one list of children: enough for as many as are looked at, with a space each.
const CHILDREN_READ_MAX: u64 = 16 * DESCENDANTS_MAX as u64;

/// What one process has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessUsage {
    /// CPU time in the process's own code.
    pub cpu_user: Duration,
    /// CPU time in the kernel on behalf of the process.
    pub cpu_system: Duration,
    /// The highest resident memory that is known, in bytes. For a reaped process whose peak was clearly higher than
    /// the supervisor's own, it is the kernel's figure, which may be that of a larger child of the process. Otherwise
    /// it is the highest value that was measured, or None if none was.
    pub peak_rss: Option<u64>,
}

/// Figures from `/proc/PID/stat`, which exists until the process is reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// CPU time of the process and of those of its children that it has waited for. The kernel reports it in ticks,
    /// usually of 10 ms.
    pub(super) cpu_time: CpuTime,
    /// Resident memory in bytes. 0 if the process has ended.
    pub(super) resident_bytes: u64,
}

/// Reads the usage of a process that has not been reaped; later its process id may belong to another process.
pub(super) fn read(pid: u32) -> Option<Usage> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// CPU time of a process that has not been reaped, without that of its children.
pub(super) fn own_cpu_time(pid: u32) -> Option<CpuTime> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let time = |number: usize| ticks(stat_field(&stat, number)?.parse().ok()?);
    Some(CpuTime { user: time(14)?, system: time(15)? })
}

/// The end of a process that is a zombie and is traced: what is known of it without `waitid`.
pub(super) fn end_of_traced(pid: u32) -> Ended {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let cpu_time = parse(&stat).map_or(CpuTime::default(), |usage| usage.cpu_time);
    Ended { exit: parse_exit(&stat), cpu_time, peak_rss: 0 }
}

/// The exit code is not told to everybody. Who may not know it reads a 0, so that one is unknown.
fn parse_exit(stat: &str) -> Exit {
    let status = stat_field(stat, 52).and_then(|status| status.parse::<i32>().ok()).unwrap_or(0);
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, 0) => Exit::Unknown,
        (0, code) => Exit::Code(code),
        (signal, _) => Exit::Signal(signal),
    }
}

/// The highest resident memory that a process had since its exec, in bytes. None if it has ended.
pub(super) fn peak_rss(pid: u32) -> Option<u64> {
    parse_kilobytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmHWM")
}

/// Resident memory of a process that is shared memory, in bytes: segments, but not the files that it has mapped. None if it
/// has ended.
pub(super) fn shared_bytes(pid: u32) -> Option<u64> {
    parse_kilobytes(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "RssShmem")
}

/// Memory in bytes that the descendants of a process have to themselves, without the files that they have mapped. At most
/// [`DESCENDANTS_MAX`] processes are counted, and the children of as many threads are looked for, however many there are.
pub(super) fn bytes_of_descendants(pid: u32) -> u64 {
    let (mut pages, mut found, mut threads_left) = (0_u64, Vec::new(), DESCENDANTS_MAX);
    add_children(pid, &mut threads_left, &mut found);
    let mut looked_at = 0;
    while let Some(&pid) = found.get(looked_at) {
        pages = pages.saturating_add(own_pages_of(pid).unwrap_or(0));
        add_children(pid, &mut threads_left, &mut found);
        looked_at += 1;
    }
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// Adds the children of the threads of a process, as long as there are threads left and fewer than [`DESCENDANTS_MAX`] found.
fn add_children(pid: u32, threads_left: &mut usize, found: &mut Vec<u32>) {
    if *threads_left == 0 || found.len() >= DESCENDANTS_MAX {
        return;
    }
    for thread in
        fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(*threads_left)
    {
        *threads_left -= 1;
        let children = read_start(&thread.path().join("children")).unwrap_or_default();
        found.extend(pids_of(&children).take(DESCENDANTS_MAX - found.len()));
    }
}

/// The first [`CHILDREN_READ_MAX`] bytes of a list of processes.
fn read_start(list: &Path) -> Option<String> {
    let mut start = String::new();
    fs::File::open(list).ok()?.take(CHILDREN_READ_MAX).read_to_string(&mut start).ok()?;
    Some(start)
}

/// The process ids in a list in which a space follows each. What no space follows was cut off.
fn pids_of(list: &str) -> impl Iterator<Item = u32> {
    list.split_inclusive(' ').filter_map(|pid| pid.strip_suffix(' ')?.parse().ok())
}

/// Pages that are in memory and no part of a file, of proc_pid_statm(5). None if the process has ended.
fn own_pages_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut fields = text.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, of_files) = (fields.next()?, fields.next()?);
    Some(resident.saturating_sub(of_files))
}

/// The highest resident memory that this process ever had, in bytes.
pub(super) fn own_peak_rss() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF);
    // If the kernel does not answer, the figures for children cannot be trusted either.
    usage.map_or(u64::MAX, |usage| u64::try_from(usage.max_rss()).unwrap_or(0).saturating_mul(1024))
}

/// Number of open descriptors of a process. None if it has ended, or hides them from us.
pub(super) fn open_descriptors(pid: u32) -> Option<u64> {
    let folder = format!("/proc/{pid}/fd");
    // Since Linux 6.2 the size of the directory is the number, and every process may read it.
    match fs::metadata(&folder).ok()?.len() {
        0 => u64::try_from(fs::read_dir(folder).ok()?.count()).ok(),
        count => Some(count),
    }
}

fn parse(stat: &str) -> Option<Usage> {
    let field = |number: usize| stat_field(stat, number)?.parse::<u64>().ok();
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some(Usage {
        cpu_time: CpuTime {
            user: ticks(field(14)?.checked_add(field(16)?)?)?,
            system: ticks(field(15)?.checked_add(field(17)?)?)?,
        },
        resident_bytes: field(24)?.checked_mul(page)?,
    })
}

fn ticks(count: u64) -> Option<Duration> {
    Duration::try_from_secs_f64(count as f64 * CpuTime::step().as_secs_f64()).ok()
}

/// The value in bytes of a line such as "VmHWM:\t    1728 kB".
fn parse_kilobytes(status: &str, name: &str) -> Option<u64> {
    let kilobytes: u64 = status_field(status, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
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
            assert_eq!(usage.cpu_time.user, Duration::from_secs_f64(1540.0 / ticks));
            assert_eq!(usage.cpu_time.system, Duration::from_secs_f64(260.0 / ticks));
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
    fn the_exit_of_a_zombie_is_found_and_a_zero_says_nothing() {
        let exit = |status: &str| parse_exit(&format!("42 (sh) Z{}{status}\n", " 0".repeat(48) + " "));
        assert_eq!(exit("768"), Exit::Code(3));
        assert_eq!([exit("9"), exit("139")], [Exit::Signal(9), Exit::Signal(11)], "the second with a core");
        for unknown in ["0", "", "x"] {
            assert_eq!(exit(unknown), Exit::Unknown, "{unknown}");
        }
        assert_eq!(end_of_traced(u32::MAX).exit, Exit::Unknown);
    }

    #[test]
    fn a_pid_that_was_cut_off_is_nobodys() {
        assert_eq!(pids_of("12 345 6").collect::<Vec<_>>(), [12, 345]);
        assert_eq!(pids_of("").count(), 0);
    }

    /// The children of this process are those of other tests as well, so only their number's bound is certain.
    #[test]
    fn however_many_children_there_are_only_so_many_are_looked_at() {
        let mut children: Vec<_> = (0..DESCENDANTS_MAX + 8)
            .map(|_| std::process::Command::new("sleep").arg("600").spawn().unwrap())
            .collect();
        let (mut found, mut threads_left) = (Vec::new(), usize::MAX);
        add_children(std::process::id(), &mut threads_left, &mut found);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found.len(), DESCENDANTS_MAX);
        let (mut found, mut threads_left) = (Vec::new(), 0);
        add_children(std::process::id(), &mut threads_left, &mut found);
        assert!(found.is_empty());
    }

    #[test]
    fn a_living_process_has_memory() {
        assert!(read(std::process::id()).unwrap().resident_bytes > 0);
    }

    #[test]
    fn the_peak_of_memory_is_told_in_bytes_and_nothing_else_is_a_peak() {
        assert_eq!(
            parse_kilobytes("Name:\tsh\nVmPeak:\t 9 kB\nVmHWM:\t    1728 kB\n", "VmHWM"),
            Some(1728 * 1024)
        );
        for status in ["", "VmHWM:", "VmHWM:\t1728", "VmHWM:\t-1 kB", "VmHWM:\t18446744073709551615 kB"] {
            assert_eq!(parse_kilobytes(status, "VmHWM"), None, "{status}");
        }
    }

    #[test]
    fn open_descriptors_are_counted() {
        let file = fs::File::open("/dev/null").unwrap();
        let at_least = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap().min(4);
        assert!(open_descriptors(std::process::id()).unwrap() >= at_least);
        assert_eq!(open_descriptors(u32::MAX), None);
    }
}
