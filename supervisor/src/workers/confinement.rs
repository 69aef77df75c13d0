//! How a worker process is confined, read from the kernel. Workers confine themselves, so that programs in any
//! language can be confined without privileges. What they say about it proves nothing, so it is checked here.
//!
//! Tier 0 is the lowest level of confinement. Three of its steps can be seen from outside and are required: no new
//! privileges, no core files, few open files. The parent-death signal cannot be seen. The other steps are shown but
//! not required.

use offload_protocol::limits::OPEN_FILES_HIGHEST;
use serde::Serialize;
use std::fs;

/// The confinement of a process when it was examined. Limits are hard limits, because a process may raise its soft
/// limits up to them. None means unlimited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// Whether no program that the process starts can gain privileges, for example by a set-user-id bit.
    pub no_new_privs: bool,
    /// Niceness, from -20 to 19. Of two processes that want a CPU core, the one with the lower number gets more of it.
    pub nice: i32,
    /// The scheduling policy.
    pub scheduler: Scheduler,
    /// From -1000 to 1000. When memory runs out, the kernel kills processes with higher numbers first.
    pub oom_score_adj: i32,
    /// Limit for a core file, in bytes.
    pub core_limit: Option<u64>,
    /// Limit for files that are open at the same time.
    pub open_files_limit: Option<u64>,
    /// Limit for the main thread's stack, in bytes.
    pub stack_limit: Option<u64>,
    /// Limit for a file that the process writes, in bytes.
    pub file_size_limit: Option<u64>,
    /// Limit for the address space, in bytes.
    pub memory_limit: Option<u64>,
    /// The umask: the permission bits that are removed from files that the process creates. 0o077 removes all
    /// permissions of other users.
    pub file_mode_mask: u32,
    /// The CPU cores that the process may run on, as the kernel writes them: "0-3,7".
    pub cores: String,
    /// Whether the process has CAP_SYS_PTRACE, with which it can read and change every process. Workers of root have
    /// it unless their program gives it up.
    pub can_trace: bool,
    /// The mode of system call filters: 0 for none, 2 for a filter program that examines each call.
    pub seccomp: u32,
}

/// A scheduling policy of Linux, see sched(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// The default.
    Other,
    /// Real time, first come, first served.
    Fifo,
    /// Real time, in turns.
    RoundRobin,
    /// Batch: does not displace other processes when it wakes up.
    Batch,
    /// Idle: runs only when nothing else wants the CPU core.
    Idle,
    /// Real time, by deadlines.
    Deadline,
    /// A policy that this program does not know.
    Unknown,
}

impl Scheduler {
    fn from_number(number: u64) -> Scheduler {
        match number {
            0 => Scheduler::Other,
            1 => Scheduler::Fifo,
            2 => Scheduler::RoundRobin,
            3 => Scheduler::Batch,
            5 => Scheduler::Idle,
            6 => Scheduler::Deadline,
            _ => Scheduler::Unknown,
        }
    }
}

impl Confinement {
    /// Examines a process that has not been reaped; later its process id may belong to another process. A worker that
    /// has not said hello may not have confined itself yet. None if there is no such process, or if what the kernel
    /// reports is not understood.
    pub fn read(pid: u32) -> Option<Confinement> {
        let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        parse(&file("status")?, &file("limits")?, &file("stat")?, &file("oom_score_adj")?)
    }

    /// The highest tier whose requirements are met: 0, or none.
    pub fn tier(&self) -> Option<u8> {
        let has_few_files = self.open_files_limit.is_some_and(|limit| limit <= OPEN_FILES_HIGHEST);
        let is_tier_0 = self.no_new_privs && self.core_limit == Some(0) && has_few_files;
        is_tier_0.then_some(0)
    }
}

fn parse(status: &str, limits: &str, stat: &str, oom_score_adj: &str) -> Option<Confinement> {
    Some(Confinement {
        no_new_privs: status_field(status, "NoNewPrivs")? == "1",
        nice: stat_field(stat, 19)?.parse().ok()?,
        scheduler: Scheduler::from_number(stat_field(stat, 41)?.parse().ok()?),
        oom_score_adj: oom_score_adj.trim().parse().ok()?,
        core_limit: hard_limit(limits, "Max core file size")?,
        open_files_limit: hard_limit(limits, "Max open files")?,
        stack_limit: hard_limit(limits, "Max stack size")?,
        file_size_limit: hard_limit(limits, "Max file size")?,
        memory_limit: hard_limit(limits, "Max address space")?,
        file_mode_mask: u32::from_str_radix(status_field(status, "Umask")?, 8).ok()?,
        cores: status_field(status, "Cpus_allowed_list")?.to_owned(),
        can_trace: can_trace(status_field(status, "CapEff")?)?,
        seccomp: status_field(status, "Seccomp")?.parse().ok()?,
    })
}

/// Parses a set of capabilities such as "000001ffffffffff": one bit for each (linux/capability.h).
fn can_trace(capabilities: &str) -> Option<bool> {
    const CAP_SYS_PTRACE: u32 = 19;
    let capabilities = u64::from_str_radix(capabilities, 16).ok()?;
    Some(capabilities >> CAP_SYS_PTRACE & 1 == 1)
}

/// The value of a line such as "Umask:\t0022".
pub(super) fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(other, _)| *other == name).map(|(_, value)| value.trim())
}

/// A field of `/proc/PID/stat`. Fields are numbered from 1, as in proc_pid_stat(5). The second field is the program's
/// name in parentheses, which may itself contain spaces and parentheses, so counting begins after the last
/// parenthesis.
pub(super) fn stat_field(stat: &str, number: usize) -> Option<&str> {
    const FIRST_FIELD_AFTER_NAME: usize = 3;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(number.checked_sub(FIRST_FIELD_AFTER_NAME)?)
}

/// The hard limit in a line such as "Max open files            1024                 4096                 files". The
/// inner None stands for "unlimited".
pub(super) fn hard_limit(limits: &str, name: &str) -> Option<Option<u64>> {
    let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match values.split_whitespace().nth(1)? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::{Child, Command, Stdio};

    const STATUS: &str = "Name:\tsh\nUmask:\t0077\nState:\tS (sleeping)\nCapEff:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t0\n\
        Cpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max file size             unlimited            unlimited            bytes     
Max stack size            1048576              8388608              bytes     
Max core file size        0                    0                    bytes     
Max open files            64                   128                  files     
Max address space         1073741824           2147483648           bytes     
";
    const STAT: &str = "42 (my (odd) name) S 1 7 7 0 -1 4194304 1 2 3 4 15 2 0 0 25 5 1 0 99 1000000 300 \
        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 3 0 0 0";

    fn confined() -> Confinement {
        parse(STATUS, LIMITS, STAT, "900\n").unwrap()
    }

    #[test]
    fn the_kernels_words_become_facts() {
        let expected = Confinement {
            no_new_privs: true,
            nice: 5,
            scheduler: Scheduler::Batch,
            oom_score_adj: 900,
            core_limit: Some(0),
            open_files_limit: Some(128),
            stack_limit: Some(8 << 20),
            file_size_limit: None,
            memory_limit: Some(2 << 30),
            file_mode_mask: 0o077,
            cores: "0-1".to_owned(),
            can_trace: false,
            seccomp: 0,
        };
        assert_eq!(confined(), expected);
    }

    #[test]
    fn the_tier_is_0_only_if_each_of_its_musts_holds() {
        assert_eq!(confined().tier(), Some(0));
        for lacking in [
            Confinement { no_new_privs: false, ..confined() },
            Confinement { core_limit: None, ..confined() },
            Confinement { core_limit: Some(4096), ..confined() },
            Confinement { open_files_limit: None, ..confined() },
            Confinement { open_files_limit: Some(OPEN_FILES_HIGHEST + 1), ..confined() },
        ] {
            assert_eq!(lacking.tier(), None, "{lacking:?}");
        }
        let unwished = Confinement { nice: 0, oom_score_adj: 0, file_mode_mask: 0, ..confined() };
        assert_eq!(unwished.tier(), Some(0));
    }

    #[test]
    fn who_can_trace_others_is_known_by_a_capability() {
        for (capabilities, expected) in
            [("0", Some(false)), ("80000", Some(true)), ("000001ffffffffff", Some(true)), ("x", None)]
        {
            assert_eq!(can_trace(capabilities), expected, "{capabilities}");
        }
    }

    #[test]
    fn it_is_shown_in_words_and_numbers() {
        let shown = serde_json::to_value(confined()).unwrap();
        assert_eq!(shown["scheduler"], "batch");
        assert_eq!(shown["file_size_limit"], serde_json::Value::Null);
        assert_eq!(shown["no_new_privs"], true);
    }

    /// A shell that has run `script` and then waits, once it has said so.
    fn shell_that(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{script}; echo ready; exec cat")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        child
    }

    #[test]
    fn a_process_that_confined_itself_is_seen_to_be_confined() {
        let script = "ulimit -c 0; ulimit -n 100; ulimit -f 2; umask 027; echo 910 >/proc/$$/oom_score_adj";
        let mut child = shell_that(script);
        let seen = Confinement::read(child.id()).unwrap();
        assert_eq!((seen.core_limit, seen.open_files_limit), (Some(0), Some(100)));
        assert_eq!((seen.file_size_limit, seen.oom_score_adj, seen.file_mode_mask), (Some(1024), 910, 0o027));
        assert!(!seen.cores.is_empty());
        let ours = Confinement::read(std::process::id()).unwrap();
        assert_eq!(
            (seen.nice, seen.scheduler, seen.memory_limit),
            (ours.nice, ours.scheduler, ours.memory_limit)
        );
        // A shell has no word for it: the tier is what this process passed on.
        assert_eq!(seen.tier(), ours.no_new_privs.then_some(0));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn no_process_has_no_confinement() {
        assert_eq!(Confinement::read(u32::MAX), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(status: String, limits: String, stat: String, oom_score_adj: String) {
            prop_assert_eq!(parse(&status, &limits, &stat, &oom_score_adj), None);
        }

        /// A line less, or a line that is cut, is no confinement either, and no panic.
        #[test]
        fn text_that_ends_early_is_read_without_panic(cut in 0..STATUS.len(), other in 0..LIMITS.len()) {
            prop_assert_eq!(parse(&STATUS[..cut], &LIMITS[..other], STAT, "x"), None);
            let _ = parse(&STATUS[..cut], &LIMITS[..other], STAT, "1");
            let _ = parse(STATUS, LIMITS, &STAT[..cut.min(STAT.len())], "1");
        }
    }
}
