//! Which children of this process are workers. Sweeps spare those, and take all others, whichever thread they are children
//! of: a worker can make a child of its own parent (clone(2), CLONE_PARENT), which is the thread that has started it.
//!
//! ```text
//!           begin               fork, exec             became
//!   start --------> starting ---------------> a child --------> known ----- ended ----> collected
//!                   no child of this thread                        |                       ^
//!                   is taken meanwhile: which                      | somebody traces it:   |
//!                   is the worker is not known                     '--> left for later ----'
//! ```
//!
//! The end of a process that is traced can be seen by its tracer alone (ptrace(2)) until that has taken note of it, or is
//! gone. Such a zombie stays known, and is collected when that is possible.

use nix::unistd::gettid;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The workers of all launchers of this process: a sweep sees the children of all threads.
static CHILDREN: Mutex<Children> = Mutex::new(Children::new());

#[derive(Debug)]
struct Children {
    /// Threads on which a start is under way.
    starting: BTreeSet<u32>,
    /// The process ids of the workers that have not been collected. Each has a number, because its process id may be that of
    /// another worker as soon as it is collected.
    known: BTreeMap<u64, u32>,
    /// The workers that have ended and could not be collected.
    left: Vec<(Known, Arc<OwnedFd>)>,
    last_number: u64,
}

impl Children {
    const fn new() -> Children {
        Children { starting: BTreeSet::new(), known: BTreeMap::new(), left: Vec::new(), last_number: 0 }
    }
}

/// A start of a worker that is under way on the thread that has begun it.
#[derive(Debug)]
pub(super) struct Start {
    thread: u32,
}

/// Makes a child known as a worker as long as this value exists.
#[derive(Debug)]
pub(super) struct Known(u64);

impl Start {
    /// The calling thread is about to start a worker.
    pub(super) fn begin() -> Start {
        let thread = gettid().as_raw().unsigned_abs();
        locked().starting.insert(thread);
        Start { thread }
    }

    /// The start has made this child.
    pub(super) fn became(self, pid: Pid) -> Known {
        let mut children = locked();
        children.last_number += 1;
        let number = children.last_number;
        children.known.insert(number, pid.as_raw_pid().unsigned_abs());
        Known(number)
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        locked().starting.remove(&self.thread);
    }
}

impl Known {
    /// Collects this worker, which has ended, or leaves it to [`collect_left`]. Does not wait.
    pub(super) fn collect(self, pidfd: Arc<OwnedFd>) {
        if !is_collected(&pidfd) {
            locked().left.push((self, pidfd));
        }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        locked().known.remove(&self.0);
    }
}

/// Collects the ended workers that could not be collected before, as far as that is possible now. Does not wait.
pub(super) fn collect_left() {
    let left = std::mem::take(&mut locked().left);
    let (collected, left): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, pidfd)| is_collected(pidfd));
    locked().left.extend(left);
    drop(collected);
}

/// Collects a process. False if that is not possible yet.
fn is_collected(pidfd: &OwnedFd) -> bool {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(pidfd.as_fd()), ended) {
        Ok(None) | Err(Errno::INTR) => false,
        // After an error, somebody else has collected it.
        Ok(Some(_)) | Err(_) => true,
    }
}

/// The children of one thread that are no workers. `list` lists its children, zombies included. None while the thread is
/// starting a worker: which is that is not known. What is returned is no worker later either: such a child exists already.
pub(super) fn strangers_of(thread: u32, list: impl FnOnce() -> Vec<u32>) -> Option<Vec<u32>> {
    // No start begins while this is locked, and none has made a child that is not known.
    let children = locked();
    if children.starting.contains(&thread) {
        return None;
    }
    let known: BTreeSet<u32> = children.known.values().copied().collect();
    Some(list().into_iter().filter(|pid| !known.contains(pid)).collect())
}

/// Locks, also after a panic: no code leaves the data under this lock in an inconsistent state.
fn locked() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::process::Process;
    use super::super::program::Program;
    use super::super::wait::wait_for;
    use super::*;
    use offload_core::exit::Exit;
    use rustix::event::PollFlags;
    use rustix::process::{Signal, test_kill_process};
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    const DEADLINE: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Process {
        let program = Program::command(["sh", "-c", script].map(str::to_owned).to_vec());
        Process::spawn(&program, 1 << 20).unwrap()
    }

    /// A process that traces another one, until it is dropped.
    pub(crate) struct Tracer(Child);

    impl Tracer {
        /// None if the system does not allow that (Yama does not, for example).
        pub(crate) fn of(traced: u32) -> Option<Tracer> {
            const PTRACE_SEIZE: u32 = 0x4206;
            let script = "$| = 1; my ($ptrace, $seize, $pid) = map { 0 + $_ } @ARGV;
                print syscall($ptrace, $seize, $pid, 0, 0) == 0 ? qq(traces\\n) : qq($!\\n); sleep 600";
            let numbers = [libc::SYS_ptrace.to_string(), PTRACE_SEIZE.to_string(), traced.to_string()];
            let mut command = Command::new("perl");
            let mut perl = command.args(["-e", script]).args(numbers).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = String::new();
            BufReader::new(perl.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
            let tracer = Tracer(perl);
            if said != "traces\n" {
                eprintln!("skipped: a process may not trace another one here: {said}");
                return None;
            }
            Some(tracer)
        }
    }

    impl Drop for Tracer {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_traced_process_that_has_ended_counts_as_ended_and_is_collected_when_it_is_not_traced_any_more() {
        let mut process = shell("exec sleep 600");
        let Some(tracer) = Tracer::of(process.pid()) else { return };
        assert_eq!(process.try_wait().unwrap(), None);
        process.signal(Signal::KILL).unwrap();
        assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
        assert_eq!(process.try_wait().unwrap(), Some(Exit::Signal(9)));
        assert!(process.cpu_time().is_some());
        let pid = Pid::from_raw(process.pid().cast_signed()).unwrap();
        drop(process);
        collect_left();
        assert!(test_kill_process(pid).is_ok(), "its tracer has it still");
        drop(tracer);
        // Another test may be trying, too.
        until(|| {
            collect_left();
            test_kill_process(pid) == Err(Errno::SRCH)
        });
    }

    #[test]
    fn what_is_started_is_known_until_it_is_collected_and_meanwhile_nobody_else_is() {
        let this = gettid().as_raw().unsigned_abs();
        let start = Start::begin();
        assert_eq!(strangers_of(this, || vec![1, 2]), None, "one of them may be the worker");
        let known = start.became(Pid::from_raw(1).unwrap());
        assert_eq!(strangers_of(this, || vec![1, 2]), Some(vec![2]));
        drop(Start::begin());
        // Its process id was used again before the first one was forgotten.
        let again = Start::begin().became(Pid::from_raw(1).unwrap());
        drop(known);
        assert_eq!(strangers_of(this, || vec![1, 2]), Some(vec![2]));
        drop(again);
        assert_eq!(strangers_of(this, || vec![1, 2]), Some(vec![1, 2]));
    }
}
