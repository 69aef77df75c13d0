//! Confinement tier 0: what a worker process gives up before it serves. It needs no privileges. Programs of this SDK do it
//! themselves; for other programs `offload worker-exec` does the same before it starts them.
//!
//! | step | asked for | if it fails |
//! |---|---|---|
//! | end with the parent | SIGKILL when the parent dies; the process that made the socket must still be the parent | does not serve |
//! | no new privileges | no set-user-id program gives any | does not serve |
//! | core files | none (limit 0) | does not serve |
//! | open files | at most 128, or as `OFFLOAD_LIMIT_NOFILE` says | does not serve |
//! | stack of the main thread | at most 8 MiB, or as `OFFLOAD_LIMIT_STACK` says | does not serve |
//! | size of a file | only if `OFFLOAD_LIMIT_FSIZE` says so | does not serve |
//! | address space | only if `OFFLOAD_MAX_MEMORY` says so | does not serve |
//! | descriptors | inherited ones above 2 are closed | serves |
//! | file mode mask | 077 | cannot fail |
//! | niceness | 5 more than the parent's | serves |
//! | scheduler | SCHED_BATCH: not preferred when it wakes up; turns of 20 ms, which others need not wait for (Linux 6.12) | serves |
//! | OOM killer | +900: the worker goes before the supervisor | serves |
//! | affinity | only if `OFFLOAD_CORE` says so | serves |
//! | signals | none is ignored or blocked only because the supervisor inherited that | serves |
//! | mark | the number in `OFFLOAD_MARK` becomes the limit of file locks, which has no effect otherwise | serves |
//! | not dumpable | other processes of the same user cannot read its memory; lost by exec | serves |
//!
//! A worker does not serve if a step fails that is essential, or that only lowers a limit, because the kernel never refuses
//! that. The other steps only make a worker a better neighbour. Limits are only lowered. The steps may be done twice, by
//! `worker-exec` and then by the program: the second time changes nothing.
//!
//! The size of a file is not limited by default. A limit for each file does not bound the use of the disk, as there can be
//! many files, and a SIGXFSZ in the middle of a job is hard to understand.
//!
//! By the mark the supervisor recognizes the processes that a worker left behind. Limits are inherited by fork and exec,
//! even if the environment is changed; every process can read them; and this one has had no effect since Linux 2.4.25. If
//! it is not unlimited, it is left as it is: then it is the mark of an outer supervisor, or somebody set it on purpose.
//!
//! The I/O priority follows the niceness unless it is set (ioprio_set(2)): 5 makes it the fifth of the best-effort levels.

use crate::limits::{OPEN_FILES_DEFAULT, OPEN_FILES_LOWEST, STACK_DEFAULT, STACK_LOWEST};
use crate::sys;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use offload_protocol::limits::{
    CORE_VARIABLE, MARK_VARIABLE, NICENESS_ADDED, NICENESS_HIGHEST, OPEN_FILES_HIGHEST,
};
use rustix::process::{getppid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, RawFd};

/// The environment variable for [`Limits::open_files`].
pub const OPEN_FILES_VARIABLE: &str = "OFFLOAD_LIMIT_NOFILE";
/// The environment variable for [`Limits::stack`], in bytes.
pub const STACK_VARIABLE: &str = "OFFLOAD_LIMIT_STACK";
/// The environment variable for [`Limits::file_size`], in bytes.
pub const FILE_SIZE_VARIABLE: &str = "OFFLOAD_LIMIT_FSIZE";
/// The environment variable for [`Limits::memory`], in bytes.
pub const MEMORY_VARIABLE: &str = "OFFLOAD_MAX_MEMORY";

/// Of a worker's `oom_score_adj`: when memory runs out the kernel takes workers before anybody else.
pub const OOM_SCORE_ADJ: i32 = 900;

/// Why this process must not serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfineError {
    /// The process that made the socket is not the parent: the supervisor is gone, or another process started this one.
    NotTheParent {
        /// The process that is the parent now.
        parent: i32,
        /// The process that made the socket.
        other_end: i32,
    },
    /// The system refused something ordinary.
    System {
        /// What could not be done, to be read after "cannot".
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}

impl fmt::Display for ConfineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfineError::NotTheParent { parent, other_end } => write!(
                formatter,
                "the supervisor (process {other_end}) is gone, or did not start this process itself (process \
                 {parent} did); a wrapper must `exec` the worker"
            ),
            ConfineError::System { what, error } => write!(formatter, "cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for ConfineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConfineError::NotTheParent { .. } => None,
            ConfineError::System { error, .. } => Some(error),
        }
    }
}

/// How much a worker may have of what can be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files open at a time, from [`OPEN_FILES_LOWEST`] to [`OPEN_FILES_HIGHEST`].
    pub open_files: u64,
    /// Bytes of the main thread's stack, at least [`STACK_LOWEST`]; one that recurses without end meets SIGSEGV here
    /// and does not eat up all memory first.
    pub stack: u64,
    /// Bytes of a file that is written; one more is SIGXFSZ.
    pub file_size: Option<u64>,
    /// Bytes of address space. An allocation beyond it fails in the worker, long before the kernel's OOM killer looks
    /// for a victim. Runtimes that reserve much and use little (Go, Java, Node) need a generous one.
    pub memory: Option<u64>,
    /// The one core that it runs on.
    pub core: Option<usize>,
    /// By what it and whatever it starts are known.
    pub mark: Option<u64>,
}

impl Limits {
    /// As this process's environment says. What is no number counts as not said.
    pub fn from_environment() -> Limits {
        Limits::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Limits {
        let number = |name| variable(name).and_then(|value| value.parse::<u64>().ok());
        let open_files = number(OPEN_FILES_VARIABLE).unwrap_or(OPEN_FILES_DEFAULT);
        Limits {
            open_files: open_files.clamp(OPEN_FILES_LOWEST, OPEN_FILES_HIGHEST),
            stack: number(STACK_VARIABLE).unwrap_or(STACK_DEFAULT).max(STACK_LOWEST),
            file_size: number(FILE_SIZE_VARIABLE),
            memory: number(MEMORY_VARIABLE),
            core: number(CORE_VARIABLE).and_then(|core| usize::try_from(core).ok()),
            mark: number(MARK_VARIABLE),
        }
    }
}

/// Asks the kernel to kill this process when its parent dies, then looks whether that came too late: whoever made
/// `socket` must still be the parent. A process that this one cannot see, because it lives in another pid namespace,
/// has the number 0; nothing can be checked then.
///
/// # Errors
/// [`ConfineError::NotTheParent`] if it came too late, and [`ConfineError::System`] if `socket` is no socket.
pub fn end_with_the_parent(socket: &impl AsFd) -> Result<(), ConfineError> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(cannot("ask to end with the supervisor"))?;
    let maker = getsockopt(socket, PeerCredentials).map_err(cannot("see who made the socket"))?;
    let parent = nix::unistd::getppid().as_raw();
    match maker.pid() {
        0 => Ok(()),
        other_end if other_end == parent => Ok(()),
        other_end => Err(ConfineError::NotTheParent { parent, other_end }),
    }
}

/// Gives up what a worker does not need: the rows of the table above from "no new privileges" to "affinity", and the mark. To be
/// called before there are threads: most of it is a thread's own and passed on to those that it starts.
///
/// # Errors
/// [`ConfineError::System`] if a must was refused.
pub fn confine(limits: &Limits) -> Result<(), ConfineError> {
    prctl::set_no_new_privs().map_err(cannot("give up new privileges"))?;
    lower(Resource::RLIMIT_CORE, Some(0)).map_err(cannot("switch core files off"))?;
    lower(Resource::RLIMIT_NOFILE, Some(limits.open_files)).map_err(cannot("limit open files"))?;
    lower(Resource::RLIMIT_STACK, Some(limits.stack)).map_err(cannot("limit the stack"))?;
    lower(Resource::RLIMIT_FSIZE, limits.file_size).map_err(cannot("limit the size of files"))?;
    lower(Resource::RLIMIT_AS, limits.memory).map_err(cannot("limit memory"))?;
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    // The supervisor looks for itself what came of the rest: what is refused here need not be told.
    let _ = be_nicer_than_the_parent();
    let _ = sys::schedule_as_batch();
    let _ = go_first_when_memory_runs_out();
    let _ = limits.core.map(stay_on_core);
    let _ = limits.mark.map(bear);
    Ok(())
}

/// Heeds signals again that the supervisor, or whoever started that, ignores or blocks: a worker that inherited this
/// would survive SIGTERM. To be called by a program of this SDK before it has threads. SIGPIPE stays ignored, as in all
/// Rust programs: a write to a pipe without a reader is an error.
pub fn heed_signals() {
    sys::heed_signals(&[libc::SIGPIPE]);
    unblock_signals();
}

/// As [`heed_signals`], for a process that is about to become a program of which nothing is known: that finds all
/// signals with their default effect, SIGPIPE too.
pub fn heed_all_signals() {
    sys::heed_signals(&[]);
    unblock_signals();
}

fn unblock_signals() {
    // It cannot fail: that is for wrong arguments.
    let _ = SigSet::empty().thread_set_mask();
}

/// Closes what this program was given above descriptor 2. To be called first of all.
///
/// Exec lets pass exactly the descriptors without close-on-exec, and what a program opens itself has that flag, by
/// the convention of Rust's library and most others. What foreign code has opened without it before this call is lost.
pub fn close_inherited_descriptors() {
    let Ok(listing) = fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<RawFd> =
        listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2 && came_through_exec(*number)) {
        let _ = nix::unistd::close(number);
    }
}

/// Lets nobody of the same user trace this process or read its memory, among them the other workers, and lets it dump
/// no core into a pipe either. An exec takes it back.
pub fn hide() {
    // Where it is refused the process is as visible as any other, and serves.
    let _ = prctl::set_dumpable(false);
}

fn lower(resource: Resource, limit: Option<u64>) -> nix::Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let (soft, hard) = getrlimit(resource)?;
    setrlimit(resource, soft.min(limit), hard.min(limit))
}

/// "flags:\t02100002": octal, as in open(2).
fn came_through_exec(descriptor: RawFd) -> bool {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
}

/// Compared with the parent's and not with our own, which the shim may have raised already.
fn be_nicer_than_the_parent() -> rustix::io::Result<()> {
    let of_parent = match getppid() {
        Some(parent) => getpriority_process(Some(parent))?,
        None => 0,
    };
    let wanted = (of_parent + NICENESS_ADDED).min(NICENESS_HIGHEST);
    if getpriority_process(None)? < wanted { setpriority_process(None, wanted) } else { Ok(()) }
}

fn go_first_when_memory_runs_out() -> io::Result<()> {
    const FILE: &str = "/proc/self/oom_score_adj";
    let now = fs::read_to_string(FILE)?.trim().parse().unwrap_or(OOM_SCORE_ADJ);
    if now < OOM_SCORE_ADJ { fs::write(FILE, OOM_SCORE_ADJ.to_string()) } else { Ok(()) }
}

fn bear(mark: u64) -> nix::Result<()> {
    match getrlimit(Resource::RLIMIT_LOCKS)? {
        (RLIM_INFINITY, RLIM_INFINITY) => setrlimit(Resource::RLIMIT_LOCKS, mark, mark),
        _ => Ok(()),
    }
}

fn stay_on_core(core: usize) -> rustix::io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL);
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores)
}

fn cannot(what: &'static str) -> impl FnOnce(Errno) -> ConfineError {
    move |errno| ConfineError::System { what, error: errno.into() }
}

/// What comes of it is tested where there is a process of its own to confine: in `process.rs`.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionError;
    use std::error::Error;

    #[test]
    fn the_source_of_an_error_is_that_of_the_system() {
        let system = ConfineError::System { what: "wait", error: io::Error::from_raw_os_error(1) };
        let session = SessionError::Io(io::Error::from_raw_os_error(1));
        for error in [&system as &dyn Error, &session] {
            let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            assert_eq!(source.and_then(io::Error::raw_os_error), Some(1), "{error}");
        }
    }

    fn limits(variables: &[(&str, &str)]) -> Limits {
        let value = |name: &str| variables.iter().find(|(other, _)| *other == name);
        Limits::from_variables(|name| value(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn without_a_word_only_open_files_and_the_stack_are_limited() {
        let expected =
            Limits { open_files: 128, stack: 8 << 20, file_size: None, memory: None, core: None, mark: None };
        assert_eq!(limits(&[]), expected);
        let nonsense = [(OPEN_FILES_VARIABLE, "many"), (MEMORY_VARIABLE, "-1"), (CORE_VARIABLE, "")];
        assert_eq!(limits(&nonsense), expected);
    }

    #[test]
    fn the_environment_says_how_much_a_worker_may_have() {
        let told = [
            (OPEN_FILES_VARIABLE, "300"),
            (STACK_VARIABLE, "16777216"),
            (FILE_SIZE_VARIABLE, "67108864"),
            (MEMORY_VARIABLE, "1073741824"),
            (CORE_VARIABLE, "1"),
            (MARK_VARIABLE, "4611686018427387905"),
        ];
        let expected = Limits {
            open_files: 300,
            stack: 16 << 20,
            file_size: Some(64 << 20),
            memory: Some(1 << 30),
            core: Some(1),
            mark: Some((1 << 62) + 1),
        };
        assert_eq!(limits(&told), expected);
    }

    #[test]
    fn limits_out_of_bounds_are_moved_to_the_nearest_bound() {
        assert_eq!(limits(&[(OPEN_FILES_VARIABLE, "0")]).open_files, OPEN_FILES_LOWEST);
        assert_eq!(limits(&[(OPEN_FILES_VARIABLE, "1000000")]).open_files, OPEN_FILES_HIGHEST);
        assert_eq!(limits(&[(STACK_VARIABLE, "1")]).stack, STACK_LOWEST);
    }

    #[test]
    fn a_core_that_cannot_be_is_refused_and_no_panic() {
        assert!(stay_on_core(usize::MAX).is_err());
        assert!(stay_on_core(CpuSet::MAX_CPU - 1).is_err());
    }
}
