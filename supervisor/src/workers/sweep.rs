//! Grandchildren that escaped. The kill of a worker's group gets those that stayed in it; one that left it, by setsid
//! or twice forked, lives on when its worker has ended. Then its parent is whoever declared itself to be that: us.
//!
//! ```text
//!   supervisor --- worker --- grandchild, in a session of its own
//!   supervisor --- (ended)    grandchild          the kernel looks for the next ancestor that is a subreaper
//!   supervisor ------------ grandchild            a stranger: a child that no thread of ours has started
//! ```
//!
//! A stranger may just as well be the helper of a job that is fine, in a worker that lives: whoever forks twice is our
//! child at once. So each is asked for its mark, and ends with its worker:
//!
//! ```text
//!   mark of a worker that has ended ---> killed and collected
//!   mark of one that lives -----------> stays
//!   no mark, or another's ------------> stays until this supervisor ends, with which all of them end
//!   has ended by itself --------------> collected, whosever it was
//! ```
//!
//! What is killed may fork faster than it is killed. So a sweep goes over the children a few times, each time gets
//! what the last one has set free, and gives up after a while: whoever sweeps has other work, and is called again.

use super::marks::Mark;
use crate::limits::{CHILDREN_LIST_READ_MAX, SWEEP_KILLS_MAX, SWEEP_ROUNDS_MAX};
use nix::sys::prctl;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// When a sweep says that there is more, how long to wait for the next one: what was killed needs time to die. If a
/// SIGCHLD comes sooner, sweep sooner.
pub const SWEEP_PAUSE: Duration = Duration::from_millis(5);

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
    /// Processes collected that had been killed here. Others that had ended are collected, but not counted.
    pub killed: usize,
    /// Whether there are strangers left that are to end, dying or not touched yet: sweep again after [`SWEEP_PAUSE`].
    /// One that hangs in the kernel (state D) can take for ever.
    pub more: bool,
}

/// Which strangers are to end.
pub enum Whom<'a> {
    /// Those with a mark of which this is true: that of a worker that has ended.
    LeftBehind(&'a dyn Fn(Mark) -> bool),
    /// All of them, as nobody is left whom they could belong to.
    Everybody,
}

/// Kills and collects strangers. See the module's documentation.
#[derive(Debug, Default)]
pub struct Sweeper {
    /// Killed and not collected yet.
    dying: BTreeSet<u32>,
    /// The marks of strangers that are not collected: they keep them, as they keep their numbers.
    marks: BTreeMap<u32, Mark>,
}

impl Sweeper {
    /// One that has killed nobody yet.
    pub fn new() -> Sweeper {
        Sweeper::default()
    }

    /// Kills strangers and collects them and those that have ended by themselves. Does not wait, and is bounded by
    /// [`SWEEP_ROUNDS_MAX`] and [`SWEEP_KILLS_MAX`].
    ///
    /// `is_launcher` is true of the threads of this process that start workers: what they have started is no stranger,
    /// from the moment of its fork on. The kernel keeps the children of each thread apart, and gives those that have lost their
    /// parent to the first thread of the process. Where it does not list children (CONFIG_PROC_CHILDREN) nothing is
    /// swept.
    pub fn sweep(&mut self, is_launcher: &dyn Fn(u32) -> bool, whom: &Whom<'_>) -> Swept {
        let mut swept = Swept::default();
        let mut kills_left = SWEEP_KILLS_MAX;
        for _ in 0..SWEEP_ROUNDS_MAX {
            let strangers: BTreeSet<u32> = strangers(is_launcher);
            let condemned = self.condemned(&strangers, whom);
            swept.more = !condemned.is_empty();
            let kills = self.kill(&condemned, &mut kills_left);
            let collected = self.collect(&strangers, &mut swept);
            // Nobody new to kill and nobody dead yet: looking again at once would find the same.
            if kills + collected == 0 {
                break;
            }
        }
        swept
    }

    fn condemned(&mut self, strangers: &BTreeSet<u32>, whom: &Whom<'_>) -> BTreeSet<u32> {
        self.dying.retain(|pid| strangers.contains(pid));
        self.marks.retain(|pid, _| strangers.contains(pid));
        match whom {
            Whom::Everybody => strangers.clone(),
            Whom::LeftBehind(is_left_behind) => strangers
                .iter()
                .copied()
                .filter(|pid| self.mark_of(*pid).is_some_and(is_left_behind))
                .collect(),
        }
    }

    fn mark_of(&mut self, pid: u32) -> Option<Mark> {
        if let Some(known) = self.marks.get(&pid) {
            return Some(*known);
        }
        let mark = Mark::of_process(pid)?;
        self.marks.insert(pid, mark);
        Some(mark)
    }

    /// Nobody else collects these children, so as long as they are listed their numbers are theirs.
    fn kill(&mut self, condemned: &BTreeSet<u32>, left: &mut usize) -> usize {
        let new: Vec<u32> = condemned.difference(&self.dying).copied().take(*left).collect();
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
                self.marks.remove(pid);
                collected += 1;
                let was_killed = status.terminating_signal() == Some(Signal::KILL.as_raw());
                swept.killed += usize::from(self.dying.remove(pid) && was_killed);
            }
        }
        collected
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Kills the children of one thread of this process, but for those in `spared`. Only for a thread that collects no child
/// meanwhile: the numbers must stay theirs.
pub(super) fn kill_children_of_thread(thread: u32, spared: &BTreeSet<u32>) {
    let children = children_in(&Path::new("/proc/self/task").join(thread.to_string()).join("children"));
    for pid in children.into_iter().filter(|pid| !spared.contains(pid)) {
        // It may have ended.
        let _ = to_pid(pid).map(|pid| kill_process(pid, Signal::KILL));
    }
}

/// The children of the threads that start none, zombies too. A thread is asked whether it starts some after its
/// children were looked at: if it had any by then, it is known to.
fn strangers(is_launcher: &dyn Fn(u32) -> bool) -> BTreeSet<u32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return BTreeSet::new() };
    let mut strangers = BTreeSet::new();
    for entry in threads.flatten() {
        let children = children_in(&entry.path().join("children"));
        let thread = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if thread.is_some_and(|thread| !is_launcher(thread)) {
            strangers.extend(children);
        }
    }
    strangers
}

fn children_in(file: &Path) -> Vec<u32> {
    let mut list = String::new();
    let read =
        File::open(file).and_then(|file| file.take(CHILDREN_LIST_READ_MAX as u64).read_to_string(&mut list));
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
    use super::super::marks::Marks;
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

    fn children() -> Vec<u32> {
        strangers(&no_thread).into_iter().collect()
    }

    /// Of the threads that start workers: there is none, unless a test says that it is one itself.
    fn no_thread(_: u32) -> bool {
        false
    }

    fn this_thread(thread: u32) -> bool {
        thread == rustix::thread::gettid().as_raw_pid().unsigned_abs()
    }

    fn sweep_everybody(sweeper: &mut Sweeper) -> Swept {
        sweeper.sweep(&no_thread, &Whom::Everybody)
    }

    fn sweep_nobody(sweeper: &mut Sweeper) -> Swept {
        sweeper.sweep(&no_thread, &Whom::LeftBehind(&|_| false))
    }

    /// Sweeps until nothing is left, as the loop would; returns how many were killed.
    fn sweep_all(sweeper: &mut Sweeper, is_launcher: &dyn Fn(u32) -> bool, whom: &Whom<'_>) -> usize {
        let deadline = Instant::now() + DEADLINE;
        let mut killed = 0;
        loop {
            let swept = sweeper.sweep(is_launcher, whom);
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
            assert_eq!(sweep_all(&mut Sweeper::new(), &this_thread, &Whom::Everybody), 6);
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
            assert_eq!(Sweeper::new().sweep(&this_thread, &Whom::Everybody), Swept::default());
            assert_eq!(worker.wait().unwrap().code(), Some(3));
        });
    }

    #[test]
    fn a_stranger_that_ended_by_itself_is_collected_and_not_counted() {
        alone("a_stranger_that_ended_by_itself_is_collected_and_not_counted", || {
            let mut stranger = start("exit 3");
            let pid = Pid::from_child(&stranger);
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            assert_eq!(sweep_nobody(&mut Sweeper::new()), Swept::default());
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
            assert_eq!(sweep_all(&mut Sweeper::new(), &no_thread, &Whom::Everybody), 3);
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
            let first = sweep_everybody(&mut sweeper);
            assert!(first.more && first.killed <= SWEEP_KILLS_MAX, "{first:?}");
            assert!(children().len() >= many - SWEEP_KILLS_MAX);
            assert_eq!(first.killed + sweep_all(&mut sweeper, &no_thread, &Whom::Everybody), many);
        });
    }

    /// Two workers have helpers in sessions of their own, one has one without a mark; the first worker has ended.
    #[test]
    fn only_what_bears_the_mark_of_the_dead_is_killed() {
        alone("only_what_bears_the_mark_of_the_dead_is_killed", || {
            let marks = Marks::of(&"7".repeat(32)).unwrap();
            let helper = |worker: u64| {
                let mark = marks.of_worker(worker).number();
                start(&format!("OFFLOAD_MARK={mark} setsid -f sleep 600")).wait().unwrap();
            };
            [1, 1, 2].into_iter().for_each(helper);
            start("setsid -f sleep 600").wait().unwrap();
            assert_eq!(children().len(), 4);
            let mut sweeper = Sweeper::new();
            let of_the_first = |mark| mark == marks.of_worker(1);
            assert_eq!(sweep_all(&mut sweeper, &no_thread, &Whom::LeftBehind(&of_the_first)), 2);
            assert_eq!(sweeper.sweep(&no_thread, &Whom::LeftBehind(&of_the_first)), Swept::default());
            let of_ours = |mark| marks.include(mark);
            assert_eq!(sweep_all(&mut sweeper, &no_thread, &Whom::LeftBehind(&of_ours)), 1);
            assert_eq!(children().len(), 1, "the one without a mark");
            assert_eq!(sweep_all(&mut sweeper, &no_thread, &Whom::Everybody), 1);
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
