//! Grandchildren that escaped. The kill of a worker's group gets those that stayed in it; one that left it, by setsid
//! or twice forked, lives on when its worker has ended. Then its parent is whoever declared itself to be that: us.
//!
//! ```text
//!   supervisor --- worker --- grandchild, in a session of its own
//!   supervisor --- (ended)    grandchild          the kernel looks for the next ancestor that is a subreaper
//!   supervisor ------------ grandchild            a child that is none of ours: killed and collected here
//! ```
//!
//! What is killed may fork faster than it is killed. So a sweep goes over the children a few times, each time gets
//! what the last one has set free, and gives up after a while: whoever sweeps has other work, and is called again.

use nix::sys::prctl;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// How often one call of [`Sweeper::sweep`] looks at all children.
pub const SWEEP_ROUNDS_MAX: usize = 8;
/// How many processes one call of [`Sweeper::sweep`] signals for the first time.
pub const SWEEP_KILLS_MAX: usize = 256;
/// When a sweep says that there is more, how long to wait for the next one: what was killed needs time to die. If a
/// SIGCHLD comes sooner, sweep sooner.
pub const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// How much is read of one thread's list of children: some 8000 of them.
const LIST_READ_MAX: usize = 64 * 1024;

/// Makes this process the parent of all its descendants that lose theirs. For a program that has no other children
/// than workers, and that calls [`Sweeper::sweep`]: nobody else would collect them.
///
/// # Errors
/// What the kernel reports; since Linux 3.4 it does not.
pub fn become_subreaper() -> io::Result<()> {
    prctl::set_child_subreaper(true).map_err(io::Error::from)
}

/// What a sweep has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Processes collected that had been killed. Those that had ended by themselves are collected, but not counted.
    pub killed: usize,
    /// Whether there are strangers left, dying or not touched yet: sweep again after [`SWEEP_PAUSE`]. One that hangs
    /// in the kernel (state D) can take for ever.
    pub more: bool,
}

/// Kills and collects the children of this process that nobody owns.
#[derive(Debug, Default)]
pub struct Sweeper {
    /// Killed and not collected yet.
    dying: BTreeSet<u32>,
}

impl Sweeper {
    /// One that has killed nobody yet.
    pub fn new() -> Sweeper {
        Sweeper::default()
    }

    /// Kills and collects the children for which `is_ours` is false. It must be true for every
    /// [`super::Process`] that has not been reaped, also of an ended one, and is asked about no other numbers than
    /// those of children. Does not wait, and is bounded by [`SWEEP_ROUNDS_MAX`] and [`SWEEP_KILLS_MAX`].
    ///
    /// To be called by the thread that starts the workers, so that no worker is a child before it is known to be ours.
    /// Where the kernel does not list children (CONFIG_PROC_CHILDREN) nothing is swept.
    pub fn sweep(&mut self, is_ours: &dyn Fn(u32) -> bool) -> Swept {
        let mut swept = Swept::default();
        let mut kills_left = SWEEP_KILLS_MAX;
        for _ in 0..SWEEP_ROUNDS_MAX {
            let strangers: BTreeSet<u32> = children().into_iter().filter(|pid| !is_ours(*pid)).collect();
            swept.more = !strangers.is_empty();
            let kills = self.kill(&strangers, &mut kills_left);
            let collected = self.collect(&strangers, &mut swept);
            // Nobody new to kill and nobody dead yet: looking again at once would find the same.
            if kills + collected == 0 {
                break;
            }
        }
        swept
    }

    /// Nobody else collects these children, so as long as they are listed their numbers are theirs.
    fn kill(&mut self, strangers: &BTreeSet<u32>, left: &mut usize) -> usize {
        self.dying.retain(|pid| strangers.contains(pid));
        let new: Vec<u32> = strangers.difference(&self.dying).copied().take(*left).collect();
        for pid in new.iter().copied() {
            let _ = to_pid(pid).map(|pid| kill_process(pid, Signal::KILL));
            self.dying.insert(pid);
        }
        *left -= new.len();
        new.len()
    }

    fn collect(&mut self, strangers: &BTreeSet<u32>, swept: &mut Swept) -> usize {
        let mut collected = 0;
        for pid in strangers {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            let ended = to_pid(*pid).and_then(|pid| waitid(WaitId::Pid(pid), options).ok().flatten());
            if let Some(status) = ended {
                self.dying.remove(pid);
                collected += 1;
                swept.killed += usize::from(status.terminating_signal() == Some(Signal::KILL.as_raw()));
            }
        }
        collected
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// The children of all threads of this process, zombies too.
fn children() -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    threads.flatten().flat_map(|thread| children_in(&thread.path().join("children"))).collect()
}

fn children_in(file: &Path) -> Vec<u32> {
    let mut list = String::new();
    let read = File::open(file).and_then(|file| file.take(LIST_READ_MAX as u64).read_to_string(&mut list));
    if read.is_ok() { parse(&list) } else { Vec::new() }
}

/// "12 345 6 ": a number without a space after it was cut off by the limit.
fn parse(list: &str) -> Vec<u32> {
    let complete = list.rsplit_once(' ').map_or("", |(complete, _)| complete);
    complete.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// A sweep takes every child of a process: the tests start this test program once more to have one for themselves.
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::Instant;

    const ALONE: &str = "OFFLOAD_TEST_ALONE";
    const DEADLINE: Duration = Duration::from_secs(20);

    fn alone(name: &str, body: impl FnOnce()) {
        alone_as(&format!("workers::sweep::tests::{name}"), body);
    }

    /// Runs `body` in a process of its own, which is a subreaper, as the test of this name.
    pub(in super::super) fn alone_as(test: &str, body: impl FnOnce()) {
        if std::env::var_os(ALONE).is_some() {
            become_subreaper().unwrap();
            return body();
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        let output = command.env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }

    fn start(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    /// Sweeps until nothing is left, as the loop would; returns how many were killed.
    fn sweep_all(sweeper: &mut Sweeper, is_ours: &dyn Fn(u32) -> bool) -> usize {
        let deadline = Instant::now() + DEADLINE;
        let mut killed = 0;
        loop {
            let swept = sweeper.sweep(is_ours);
            killed += swept.killed;
            if !swept.more {
                return killed;
            }
            assert!(Instant::now() < deadline, "{:?} do not die", children());
            std::thread::yield_now();
        }
    }

    #[test]
    fn grandchildren_that_left_the_group_are_killed_and_our_own_children_are_not() {
        alone("grandchildren_that_left_the_group_are_killed_and_our_own_children_are_not", || {
            let mut ours = start("exec sleep 600");
            let mut worker = start("for i in 1 2 3 4 5 6; do setsid -f sleep 600; done");
            worker.wait().unwrap();
            assert_eq!(sweep_all(&mut Sweeper::new(), &|pid| pid == ours.id()), 6);
            assert_eq!(children(), [ours.id()]);
            assert_eq!(ours.try_wait().unwrap(), None);
            ours.kill().unwrap();
            ours.wait().unwrap();
        });
    }

    #[test]
    fn the_end_of_a_worker_is_left_to_its_owner() {
        alone("the_end_of_a_worker_is_left_to_its_owner", || {
            let mut worker = start("exit 3");
            let pid = Pid::from_child(&worker);
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            assert_eq!(Sweeper::new().sweep(&|pid| pid == worker.id()), Swept::default());
            assert_eq!(worker.wait().unwrap().code(), Some(3));
        });
    }

    #[test]
    fn a_stranger_that_ended_by_itself_is_collected_and_not_counted() {
        alone("a_stranger_that_ended_by_itself_is_collected_and_not_counted", || {
            let mut stranger = start("exit 3");
            let pid = Pid::from_child(&stranger);
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            assert_eq!(Sweeper::new().sweep(&|_| false), Swept::default());
            assert!(stranger.wait().is_err(), "nobody has collected it");
        });
    }

    #[test]
    fn what_a_stranger_sets_free_is_swept_too() {
        alone("what_a_stranger_sets_free_is_swept_too", || {
            // Each of these has a child in a session of its own, which becomes ours only when its parent is killed.
            let script = "setsid -f sh -c 'setsid sh -c \"setsid sleep 600 & echo deep; wait\" & wait'";
            let mut worker = Command::new("sh");
            let mut worker =
                worker.args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().unwrap();
            let mut deep = [0; 5];
            worker.stdout.as_mut().unwrap().read_exact(&mut deep).unwrap();
            worker.wait().unwrap();
            assert_eq!(sweep_all(&mut Sweeper::new(), &|_| false), 3);
            let left = worker.stdout.as_mut().unwrap().read(&mut deep).unwrap();
            assert_eq!(left, 0, "somebody still holds the pipe");
        });
    }

    #[test]
    fn one_sweep_does_not_kill_everybody_if_they_are_very_many() {
        alone("one_sweep_does_not_kill_everybody_if_they_are_very_many", || {
            let many = SWEEP_KILLS_MAX + 44;
            let script = format!("perl -e 'for (1..{many}) {{ if (!fork) {{ sleep 600; exit }} }}'");
            start(&script).wait().unwrap();
            assert_eq!(children().len(), many);
            let mut sweeper = Sweeper::new();
            let first = sweeper.sweep(&|_| false);
            assert!(first.more && first.killed <= SWEEP_KILLS_MAX, "{first:?}");
            assert!(children().len() >= many - SWEEP_KILLS_MAX);
            assert_eq!(first.killed + sweep_all(&mut sweeper, &|_| false), many);
        });
    }

    #[test]
    fn a_list_that_was_cut_loses_the_number_that_may_be_incomplete() {
        assert_eq!(parse("12 345 6 "), [12, 345, 6]);
        assert_eq!(parse("12 345 6"), [12, 345]);
        assert_eq!(parse(""), Vec::<u32>::new());
        assert_eq!(parse("x -1 7 99999999999 "), [7]);
    }
}
