//! What is odd about figures of a machine. All of it is pure: [`super::machine`] measures.

use super::cgroup::Limits;
use super::finding::Finding;
use crate::text;
use std::time::Duration;

/// The oldest kernel on which offload runs.
const OLDEST_KERNEL: (u32, u32) = (5, 11);

/// Kinds of file systems on which a socket or its lock do not work as on a disk, by their numbers in `statfs`.
const REMOTE_FILE_SYSTEMS: [(u64, &str); 7] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB 2"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
];

/// Sources of time that are read without a system call.
const FAST_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"];

/// Reading the time takes longer than this only with a slow source.
const SLOW_CLOCK: Duration = Duration::from_micros(1);

/// A short sleep that ends later than this was not delayed by ordinary work.
const LATE_WAKE: Duration = Duration::from_millis(20);

/// Processes and threads that a supervisor needs beside its workers, with room for what programs start.
const SPARE_PROCESSES: u64 = 64;

/// The version, and which system calls that are needed do not work.
pub(super) fn kernel(release: &str, missing: &[String]) -> Finding {
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = OLDEST_KERNEL;
    if version < OLDEST_KERNEL {
        let says = format!("Linux {release} is too old");
        return Finding::wrong("kernel", says, format!("use Linux {major}.{minor} or later"));
    }
    match missing {
        [] => Finding::fine("kernel", format!("Linux {release}, all system calls that are needed work")),
        missing => Finding::wrong(
            "kernel",
            format!("Linux {release} refuses {}", missing.join(", ")),
            "a container or its seccomp profile forbids these system calls: allow them",
        ),
    }
}

/// Cores against workers.
pub(super) fn cores(usable: usize, limits: Limits, workers: usize) -> Finding {
    let most = limits.cores.unwrap_or(f64::INFINITY).min(usable as f64);
    let all = format!("{} for {}", text::count(usable as u64, "core"), text::count(workers as u64, "worker"));
    let advice = format!("say --workers {}, or set `workers` of a [[pool]]", (most.floor() as usize).max(1));
    match limits.cores {
        Some(quota) if workers as f64 > quota.ceil() => Finding::odd(
            "cores",
            format!(
                "{all}; the control group allows {quota:.1}, so all of them are stopped for a part of each 100 ms"
            ),
            advice,
        ),
        _ if workers > usable => {
            Finding::odd("cores", format!("{all}: workers take cores from each other"), advice)
        }
        Some(quota) => Finding::fine("cores", format!("{all}; the control group allows {quota:.1}")),
        None => Finding::fine("cores", all),
    }
}

/// Memory that there is against what the supervisor may take at most.
pub(super) fn memory(total: u64, limits: Limits, most: u64) -> Finding {
    let there = limits.memory.unwrap_or(u64::MAX).min(total);
    let whose = if limits.memory.is_some_and(|limit| limit < total) {
        "the control group allows"
    } else {
        "there is"
    };
    let says = format!("the supervisor takes at most {}, {whose} {}", text::bytes(most), text::bytes(there));
    match most > there {
        true => Finding::odd(
            "memory",
            says,
            "set max_bytes, max_kept_bytes or max_payload lower, so that the kernel ends nothing",
        ),
        false => Finding::fine("memory", says),
    }
}

/// How the kernel promises memory: the content of `vm/overcommit_memory`.
pub(super) fn overcommit(mode: &str) -> Finding {
    match mode.trim() {
        "2" => Finding::odd(
            "overcommit",
            "the kernel promises no more memory than it has (vm.overcommit_memory = 2), so starts of workers may fail",
            "say sysctl vm.overcommit_memory=0",
        ),
        mode => Finding::fine("overcommit", format!("vm.overcommit_memory = {mode}")),
    }
}

/// How many processes this user may have: the limit, and those that it has.
pub(super) fn processes(limit: Option<u64>, limits: Limits, workers: usize) -> Finding {
    let most = [limit, limits.processes].into_iter().flatten().min();
    let needed = 2 * workers as u64 + SPARE_PROCESSES;
    match most {
        Some(most) if most < needed => Finding::odd(
            "processes",
            format!("{most} are allowed, {needed} are needed for {}", text::count(workers as u64, "worker")),
            "raise ulimit -u, TasksMax= of the unit, or pids.max of the control group",
        ),
        Some(most) => Finding::fine("processes", format!("{most} are allowed")),
        None => Finding::fine("processes", "any number is allowed"),
    }
}

/// The limit of open files, and what the supervisor says of it.
pub(super) fn descriptors(hard: Option<u64>, refused: Option<String>) -> Finding {
    let shown = hard.map_or_else(|| "any number of".to_owned(), |hard| hard.to_string());
    match (refused, hard) {
        (Some(why), _) => Finding::wrong("files", why, "raise ulimit -n, or LimitNOFILE= of the unit"),
        (None, Some(hard)) if hard < 1024 => Finding::odd(
            "files",
            format!("{shown} open files are allowed, so there is room for few clients"),
            "raise ulimit -n, or LimitNOFILE= of the unit, to 4096",
        ),
        (None, _) => Finding::fine("files", format!("{shown} open files are allowed")),
    }
}

/// The source of time, what reading it takes, and how much later than asked for a short sleep ended at most.
pub(super) fn clock(source: &str, reading: Duration, latest: Duration) -> Finding {
    let source = source.trim();
    let says = format!(
        "{source}; reading it takes {} ns, a sleep of 1 ms ended at most {} late",
        reading.as_nanos(),
        text::time(micros(latest))
    );
    match (FAST_CLOCKS.contains(&source), latest > LATE_WAKE) {
        (_, true) => Finding::odd(
            "clock",
            says,
            "the machine is overloaded, or another one takes its time: measured times are not its own",
        ),
        (false, _) if reading > SLOW_CLOCK => Finding::odd(
            "clock",
            says,
            "each job needs the time a few times: choose another one in /sys/devices/system/clocksource",
        ),
        _ => Finding::fine("clock", says),
    }
}

/// How long the machine was suspended since its start. Time limits leave that out.
pub(super) fn suspended(time: Duration) -> Finding {
    let says = match time < Duration::from_secs(1) {
        true => "this machine was not suspended since its start".to_owned(),
        false => {
            format!("this machine was suspended for {}; time limits leave that out", text::time(micros(time)))
        }
    };
    Finding::fine("suspend", says)
}

/// Where the kernel sends core dumps: the content of `kernel/core_pattern`.
pub(super) fn core_dumps(pattern: &str) -> Finding {
    match pattern.trim().strip_prefix('|') {
        Some(program) => Finding::odd(
            "core dumps",
            format!(
                "each crash of a worker that is not written in Rust starts `{}`",
                program.split(' ').next().unwrap_or_default()
            ),
            "if crashes are frequent, that costs more than the job: sysctl kernel.core_pattern=core",
        ),
        None => Finding::fine("core dumps", "workers leave none"),
    }
}

/// Who runs this.
pub(super) fn user(uid: u32) -> Finding {
    match uid {
        0 => Finding::odd(
            "user",
            "as root, workers can read and change everything of the supervisor and of the machine",
            "run it as an ordinary user, as in User= of the unit",
        ),
        uid => Finding::fine("user", format!("user {uid}")),
    }
}

/// Whether processes that escape from workers can be found.
pub(super) fn strays(can_be_listed: bool) -> Finding {
    match can_be_listed {
        true => Finding::fine("strays", "what workers leave behind can be found"),
        false => Finding::odd(
            "strays",
            "the kernel does not list children (/proc/self/task/.../children), so what workers leave behind is not found",
            "use a kernel with CONFIG_PROC_CHILDREN",
        ),
    }
}

/// The folder of the socket: what is wrong with it, and the number of its file system.
pub(super) fn socket(path: &str, unsuitable: Option<String>, file_system: u64) -> Finding {
    let remote = REMOTE_FILE_SYSTEMS.iter().find(|(number, _)| *number == file_system);
    let advice = "name another one, such as --socket ~/.offload/me.sock";
    match (unsuitable, remote) {
        (Some(why), _) => Finding::wrong("socket", why, advice),
        (None, Some((_, name))) => Finding::odd(
            "socket",
            format!("{path} is on {name}, where locks and sockets may not work"),
            advice,
        ),
        (None, None) => Finding::fine("socket", path),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{self, Fine, Odd, Wrong};
    use super::*;

    const NO_LIMITS: Limits = Limits { cores: None, memory: None, processes: None };

    fn check(finding: Finding, verdict: Verdict, expected: &str) {
        let Finding { verdict: found, says, advice, .. } = finding;
        let text = format!("{says} | {advice}");
        assert_eq!(found, verdict, "{text}");
        assert!(text.contains(expected), "{text}");
        assert_eq!(advice.is_empty(), verdict == Fine, "{text}");
    }

    #[test]
    fn a_kernel_is_old_or_refuses_something_or_is_fine() {
        check(kernel("6.18.44-fc", &[]), Fine, "6.18.44-fc");
        check(kernel("5.11", &[]), Fine, "5.11");
        check(kernel("5.10.0-8-amd64", &[]), Wrong, "5.11 or later");
        check(kernel("nonsense", &[]), Wrong, "too old");
        check(kernel("6.1.0", &["pidfd_open".to_owned()]), Wrong, "refuses pidfd_open");
    }

    #[test]
    fn workers_are_compared_with_cores_and_with_the_quota() {
        check(cores(4, NO_LIMITS, 4), Fine, "4 cores for 4 workers");
        check(cores(4, NO_LIMITS, 5), Odd, "--workers 4");
        let quota = |cores| Limits { cores: Some(cores), ..NO_LIMITS };
        check(cores(4, quota(1.5), 2), Fine, "allows 1.5");
        check(cores(4, quota(1.5), 4), Odd, "--workers 1");
        check(cores(4, quota(0.1), 2), Odd, "--workers 1");
    }

    #[test]
    fn memory_is_compared_with_what_the_supervisor_may_take() {
        let limit = |memory| Limits { memory: Some(memory), ..NO_LIMITS };
        check(memory(8 << 30, NO_LIMITS, 2 << 30), Fine, "at most 2.0 GiB, there is 8.0 GiB");
        check(memory(8 << 30, limit(1 << 30), 2 << 30), Odd, "control group allows 1.0 GiB");
        check(memory(1 << 30, limit(8 << 30), 2 << 30), Odd, "there is 1.0 GiB");
        check(overcommit("0\n"), Fine, "= 0");
        check(overcommit("2\n"), Odd, "overcommit_memory=0");
    }

    #[test]
    fn limits_of_processes_and_files_are_compared_with_what_is_needed() {
        check(processes(None, NO_LIMITS, 100), Fine, "any number");
        check(processes(Some(1000), NO_LIMITS, 4), Fine, "1000 are allowed");
        let group = Limits { processes: Some(50), ..NO_LIMITS };
        check(processes(Some(1000), group, 4), Odd, "50 are allowed, 72 are needed for 4 workers");
        check(descriptors(None, None), Fine, "any number");
        check(descriptors(Some(512), None), Odd, "4096");
        check(descriptors(Some(20), Some("too few".to_owned())), Wrong, "too few | raise ulimit -n");
    }

    #[test]
    fn a_clock_is_slow_or_late_or_fine() {
        let (fast, slow, soon) =
            (Duration::from_nanos(30), Duration::from_micros(3), Duration::from_micros(70));
        check(
            clock("tsc\n", fast, soon),
            Fine,
            "tsc; reading it takes 30 ns, a sleep of 1 ms ended at most 70 us late",
        );
        check(clock("hpet", slow, soon), Odd, "clocksource");
        check(clock("hpet", fast, soon), Fine, "hpet");
        check(clock("tsc", fast, Duration::from_millis(40)), Odd, "overloaded");
        check(suspended(Duration::from_millis(3)), Fine, "not suspended");
        check(suspended(Duration::from_secs(90)), Fine, "suspended for 1 min 30 s");
    }

    #[test]
    fn what_is_odd_about_crashes_users_strays_and_sockets_is_told() {
        check(core_dumps("core\n"), Fine, "none");
        check(core_dumps("|/usr/share/apport/apport -p%p"), Odd, "starts `/usr/share/apport/apport`");
        check(user(0), Odd, "ordinary user");
        check(user(1000), Fine, "user 1000");
        check(strays(true), Fine, "found");
        check(strays(false), Odd, "CONFIG_PROC_CHILDREN");
        check(socket("/run/x", None, 0x0102_1994), Fine, "/run/x");
        check(socket("/home/x", None, 0x6969), Odd, "on NFS");
        check(socket("/home/x", Some("its mode is 0755".to_owned()), 0x6969), Wrong, "0755");
    }
}
