//! How a worker process is confined, read from the kernel. Workers confine themselves, which lets programs in any
//! language be confined without privileges; so what they say about it proves nothing, and is checked here.
//!
//! Tier 0 is the lowest level of confinement. Three of its steps can be seen from outside and are required: no new
//! privileges, no core files, few open files. The parent-death signal cannot be seen; the other steps are shown and not
//! required.

use offload_protocol::limits::OPEN_FILES_HIGHEST;
use serde::Serialize;
use std::fs;

/// What a process was confined to when it was looked at. Limits are the hard ones, as a process may raise the soft
/// ones up to them; none is unlimited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// Whether no program that it starts can gain privileges, as by a set-user-id bit.
    pub no_new_privs: bool,
    /// From -20 to 19; of two processes that want a core the one with the lower number gets more of it.
    pub nice: i32,
    /// Who schedules it: other, batch and so on.
    pub scheduler: Scheduler,
    /// From -1000 to 1000; when memory runs out the kernel takes the process with the higher number.
    pub oom_score_adj: i32,
    /// Bytes of a core file.
    pub core_limit: Option<u64>,
    /// Open files at a time.
    pub open_files_limit: Option<u64>,
    /// Bytes of its main thread's stack.
    pub stack_limit: Option<u64>,
    /// Bytes of a file that it writes.
    pub file_size_limit: Option<u64>,
    /// Bytes of address space.
    pub memory_limit: Option<u64>,
    /// What it withholds from others of the files that it makes, as a number: 0o077 from everybody else.
    pub file_mode_mask: u32,
    /// The cores that it may run on, in the kernel's words: "0-3,7".
    pub cores: String,
    /// Whether it has CAP_SYS_PTRACE, with which it can read and change every process: workers of root do, unless their
    /// program gives it up.
    pub can_trace: bool,
    /// The mode of system call filters: 0 for none, 2 for a program that looks at each call.
    pub seccomp: u32,
}

/// A scheduling policy of Linux, see sched(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// What everybody has who asked for nothing.
    Other,
    /// Real time, first come, first served.
    Fifo,
    /// Real time, in turns.
    RoundRobin,
    /// Does not displace others when it wakes up.
    Batch,
    /// Only when nobody else wants the core.
    Idle,
    /// Real time, by deadlines.
    Deadline,
    /// One that this program does not know.
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
    /// Looks at a process that has not been reaped; afterwards the number may be somebody else's. A worker that has
    /// not said Hello may not have confined itself yet. None if there is no such process, or what the kernel tells of
    /// it is not understood.
    pub fn read(pid: u32) -> Option<Confinement> {
        let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        parse(&file("status")?, &file("limits")?, &file("stat")?, &file("oom_score_adj")?)
    }

    /// The highest tier whose musts all hold: 0, or none.
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

/// "000001ffffffffff": a bit for each capability (linux/capability.h).
fn can_trace(capabilities: &str) -> Option<bool> {
    const CAP_SYS_PTRACE: u32 = 19;
    let capabilities = u64::from_str_radix(capabilities, 16).ok()?;
    Some(capabilities >> CAP_SYS_PTRACE & 1 == 1)
}

/// "Umask:\t0022".
pub(super) fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(other, _)| *other == name).map(|(_, value)| value.trim())
}

/// Fields are numbered from 1 in proc_pid_stat(5). The second is the program's name in parentheses, which may itself
/// have spaces and parentheses: counting begins after the last one.
pub(super) fn stat_field(stat: &str, number: usize) -> Option<&str> {
    const FIRST_FIELD_AFTER_NAME: usize = 3;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(number.checked_sub(FIRST_FIELD_AFTER_NAME)?)
}

/// "Max open files            1024                 4096                 files". The inner none is "unlimited".
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
