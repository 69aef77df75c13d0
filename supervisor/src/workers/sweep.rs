//! Kills stray processes: descendants of workers that escaped. When a worker ends, its process group is killed. A
//! descendant that left the group (by setsid, or a double fork) survives, and gets a new parent: the nearest ancestor
//! that is a subreaper, which is the supervisor.
//!
//! ```text
//!   supervisor --- worker --- grandchild, in a session of its own
//!   supervisor --- (ended)    grandchild          the kernel looks for the next ancestor that is a subreaper
//!   supervisor ------------ grandchild            a stranger: a child that no thread of ours has started
//!   supervisor --- worker
//!              '-- its sibling                    a stranger that a worker has made as a child of its own parent: the
//!                                                 thread that starts workers (clone(2), CLONE_PARENT)
//! ```
//!
//! A stranger may also be the helper of a healthy job in a living worker, because a helper that was forked twice
//! becomes our child at once. So the marks of each stranger are read, which tell the worker that it descends from:
//!
//! ```text
//!   mark of a worker that has ended ---> killed and collected, whatever its other mark is
//!   mark of a living worker ----------> stays
//!   no mark, or another's ------------> stays until this supervisor ends, and is killed then
//!   has ended by itself --------------> collected, whatever its mark is
//! ```
//!
//! Processes may fork faster than they are killed. So one sweep goes over the children several times, and each round
//! finds what the previous one has set free. A sweep has a limit, because the sweeping thread has other work. If
//! anything is left, the sweep is to be repeated.

use super::children;
use super::confinement::status_field;
use super::marks::Mark;
use crate::limits::{CHILDREN_LIST_READ_MAX, SWEEP_KILLS_MAX, SWEEP_ROUNDS_MAX};
use nix::sys::prctl;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// How long to wait for the next sweep after one that reported more: killed processes need time to die.
pub const SWEEP_PAUSE: Duration = Duration::from_millis(5);

/// Makes this process the parent of all its descendants that lose their own parent. Only for a program that has no
/// children but workers and that calls [`Sweeper::sweep`]: nobody else would collect these processes.
///
/// # Errors
/// What the kernel reports. Since Linux 3.4 this call does not fail.
pub fn become_subreaper() -> io::Result<()> {
    prctl::set_child_subreaper(true).map_err(io::Error::from)
}

/// Whether a child of this process, of whatever thread, has ended and was not collected. Does not wait.
pub(crate) fn has_dead_child() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, look), Ok(Some(_)))
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Number of collected processes that a sweeper had killed. Processes that ended by themselves are collected but
    /// not counted.
    pub killed: usize,
    /// Whether strangers are left that must end, dying or not signalled yet: sweep again after [`SWEEP_PAUSE`]. A
    /// process that hangs in the kernel (state D) can take forever. Those that have ended and are kept by the process that
    /// traces them do not count: that can take forever too, and its end is told like that of any child.
    pub more: bool,
}

/// Which strangers must end.
pub enum SweepTarget<'a> {
    /// Those with a mark for which the function returns true: the mark of a worker that has ended.
    LeftBehind(&'a dyn Fn(Mark) -> bool),
    /// All of them, because no worker is left.
    All,
}

impl std::fmt::Debug for SweepTarget<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            SweepTarget::LeftBehind(_) => "LeftBehind(..)",
            SweepTarget::All => "All",
        })
    }
}

/// Kills and collects strangers. See the module's documentation.
#[derive(Debug, Default)]
pub struct Sweeper {
    /// Processes that were killed and have not been collected.
    dying: BTreeSet<u32>,
    /// The marks of strangers that have not been collected.
    marks: BTreeMap<u32, SeenMarks>,
}

/// All marks that were ever seen of a process: one that changes its mark keeps the old one here.
#[derive(Debug, Default)]
struct SeenMarks {
    in_limits: BTreeSet<Mark>,
    /// None also while the process is in the middle of an exec.
    in_environment: Option<Mark>,
}

impl SeenMarks {
    /// Looks again, unless everything is known that the process cannot get rid of.
    fn look_at(&mut self, pid: u32) {
        if self.in_environment.is_none() {
            self.in_limits.extend(Mark::in_limits_of(pid));
            self.in_environment = Mark::in_environment_of(pid);
        }
    }

    fn any(&self, is_meant: &dyn Fn(Mark) -> bool) -> bool {
        self.in_limits.iter().chain(&self.in_environment).any(|mark| is_meant(*mark))
    }
}

impl Sweeper {
    /// A sweeper that has killed nothing yet.
    pub const fn new() -> Sweeper {
        Sweeper { dying: BTreeSet::new(), marks: BTreeMap::new() }
    }

    /// Kills strangers, and collects them and those that have ended by themselves. Does not wait. Bounded by
    /// [`SWEEP_ROUNDS_MAX`] and [`SWEEP_KILLS_MAX`].
    ///
    /// `is_launcher` returns true for the threads of this process that start workers: a worker that they have started is no
    /// stranger, from its fork on. While one of them starts a worker, its children are left out: sweep again after that.
    /// The kernel lists the children of each thread separately, and gives processes that have lost their parent to the
    /// first thread of the process. If the kernel does not list children (it does
    /// with CONFIG_PROC_CHILDREN), nothing is swept.
    pub fn sweep(&mut self, is_launcher: &dyn Fn(u32) -> bool, target: &SweepTarget<'_>) -> SweepResult {
        let mut swept = SweepResult::default();
        let mut kills_left = SWEEP_KILLS_MAX;
        for _ in 0..SWEEP_ROUNDS_MAX {
            let (strangers, are_all) = strangers(is_launcher);
            if are_all {
                self.dying.retain(|pid| strangers.contains(pid));
                self.marks.retain(|pid, _| strangers.contains(pid));
            }
            let must_end = self.must_end(&strangers, target);
            swept.more = !must_end.is_empty();
            let kills = self.kill(&must_end, &mut kills_left);
            let collected = self.collect(&strangers, &mut swept);
            // Nothing new to kill and nothing dead yet: another round now would find the same.
            if kills + collected == 0 {
                swept.more = !must_end.iter().all(|pid| is_held_by_tracer(*pid));
                break;
            }
        }
        swept
    }

    fn must_end(&mut self, strangers: &BTreeSet<u32>, target: &SweepTarget<'_>) -> BTreeSet<u32> {
        match target {
            SweepTarget::All => strangers.clone(),
            SweepTarget::LeftBehind(is_left_behind) => strangers
                .iter()
                .copied()
                .filter(|pid| {
                    let marks = self.marks.entry(*pid).or_default();
                    marks.look_at(*pid);
                    marks.any(is_left_behind)
                })
                .collect(),
        }
    }

    /// Signals the processes that must end and have not been signalled. Their process ids cannot be reused while they
    /// are listed, because nobody else collects these children.
    fn kill(&mut self, must_end: &BTreeSet<u32>, left: &mut usize) -> usize {
        let new: Vec<u32> = must_end.difference(&self.dying).copied().take(*left).collect();
        for pid in new.iter().copied() {
            let _ = to_pid(pid).map(|pid| kill_process(pid, Signal::KILL));
            self.dying.insert(pid);
        }
        *left -= new.len();
        new.len()
    }

    fn collect(&mut self, strangers: &BTreeSet<u32>, swept: &mut SweepResult) -> usize {
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

/// Whether a process is a zombie whose end is told to nobody but the process that traces it.
fn is_held_by_tracer(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_zombie = status_field(&status, "State").is_some_and(|state| state.starts_with('Z'));
    is_zombie && status_field(&status, "TracerPid").is_some_and(|tracer| tracer != "0")
}

fn to_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Kills the children of one thread of this process, except those in `spared`. The thread must not collect a child
/// meanwhile, so that process ids are not reused.
pub(super) fn kill_children_of_thread(thread: u32, spared: &BTreeSet<u32>) {
    let children = children_in(&Path::new("/proc/self/task").join(thread.to_string()).join("children"));
    for pid in children.into_iter().filter(|pid| !spared.contains(pid)) {
        // The child may have ended already.
        let _ = to_pid(pid).map(|pid| kill_process(pid, Signal::KILL));
    }
}

/// The children of all threads, zombies included, without the workers of threads that start workers. Whether a thread starts
/// workers is asked after its children are listed: a thread that had any by then is known as such. False if those of some
/// thread are left out.
fn strangers(is_launcher: &dyn Fn(u32) -> bool) -> (BTreeSet<u32>, bool) {
    let (mut strangers, mut are_all) = (BTreeSet::new(), true);
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return (strangers, false) };
    for entry in threads.flatten() {
        let list = || children_in(&entry.path().join("children"));
        let children = list();
        match entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            Some(thread) if is_launcher(thread) => match children::strangers_of(thread, list) {
                Some(some) => strangers.extend(some),
                None => are_all = false,
            },
            Some(_) => strangers.extend(children),
            None => {}
        }
    }
    (strangers, are_all)
}

fn children_in(file: &Path) -> Vec<u32> {
    let mut list = String::new();
    let read =
        File::open(file).and_then(|file| file.take(CHILDREN_LIST_READ_MAX as u64).read_to_string(&mut list));
    if read.is_ok() { parse(&list) } else { Vec::new() }
}

/// Parses a list such as "12 345 6 ". A number without a space after it was cut off by the limit and is ignored.
fn parse(list: &str) -> Vec<u32> {
    let complete = list.rsplit_once(' ').map_or("", |(complete, _)| complete);
    complete.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The tests. A sweep takes every child of a process, so each test starts this test program again to have a process
/// for itself.
#[cfg(test)]
pub(super) mod tests {
    use super::super::children::tests::Tracer;
    use super::super::children::{Known, Start};
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
        // Into a file: a pipe would not end before all that a test which has failed has left behind.
        let mut file = tempfile::tempfile().unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file.try_clone().unwrap());
        let status = command.env(ALONE, "1").status().unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let said = io::read_to_string(file).unwrap();
        assert!(status.success() && said.contains("1 passed"), "{status}: {said}");
    }

    fn start(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    /// Whether a process has become `sleep`. In the middle of an exec its environment, and so its mark, cannot be read.
    pub(in super::super) fn sleeps(pid: u32) -> bool {
        let is_sleep = std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"sleep\n");
        is_sleep && super::super::orphans::environment_of(pid).is_some_and(|variables| !variables.is_empty())
    }

    pub(in super::super) fn until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain");
            std::thread::yield_now();
        }
    }

    pub(in super::super) fn children() -> Vec<u32> {
        strangers(&no_thread).0.into_iter().collect()
    }

    /// Which threads start workers: none, unless a test says that its own thread does.
    fn no_thread(_: u32) -> bool {
        false
    }

    fn this_thread(thread: u32) -> bool {
        thread == rustix::thread::gettid().as_raw_pid().unsigned_abs()
    }

    /// Makes a child of this thread known as a worker.
    fn worker_of(child: &Child) -> Known {
        Start::begin().became(Pid::from_child(child))
    }

    fn sweep_everybody(sweeper: &mut Sweeper) -> SweepResult {
        sweeper.sweep(&no_thread, &SweepTarget::All)
    }

    fn sweep_nobody(sweeper: &mut Sweeper) -> SweepResult {
        sweeper.sweep(&no_thread, &SweepTarget::LeftBehind(&|_| false))
    }

    /// Sweeps until nothing is left, as the loop would; returns how many were killed.
    fn sweep_all(
        sweeper: &mut Sweeper,
        is_launcher: &dyn Fn(u32) -> bool,
        target: &SweepTarget<'_>,
    ) -> usize {
        let deadline = Instant::now() + DEADLINE;
        let mut killed = 0;
        loop {
            let swept = sweeper.sweep(is_launcher, target);
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
            let _known = worker_of(&ours);
            let mut worker = start("for i in 1 2 3 4 5 6; do setsid -f sleep 600; done");
            worker.wait().unwrap();
            assert_eq!(sweep_all(&mut Sweeper::new(), &this_thread, &SweepTarget::All), 6);
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
            let _known = worker_of(&worker);
            let pid = Pid::from_child(&worker);
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            assert_eq!(Sweeper::new().sweep(&this_thread, &SweepTarget::All), SweepResult::default());
            assert_eq!(worker.wait().unwrap().code(), Some(3));
        });
    }

    #[test]
    fn a_stranger_that_ended_by_itself_is_collected_and_not_counted() {
        alone("a_stranger_that_ended_by_itself_is_collected_and_not_counted", || {
            let mut stranger = start("exit 3");
            let pid = Pid::from_child(&stranger);
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            assert_eq!(sweep_nobody(&mut Sweeper::new()), SweepResult::default());
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
            assert_eq!(sweep_all(&mut Sweeper::new(), &no_thread, &SweepTarget::All), 3);
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
            assert_eq!(first.killed + sweep_all(&mut sweeper, &no_thread, &SweepTarget::All), many);
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
            until(|| children().into_iter().all(sleeps));
            let mut sweeper = Sweeper::new();
            let of_the_first = |mark| mark == marks.of_worker(1);
            assert_eq!(sweep_all(&mut sweeper, &no_thread, &SweepTarget::LeftBehind(&of_the_first)), 2);
            assert_eq!(
                sweeper.sweep(&no_thread, &SweepTarget::LeftBehind(&of_the_first)),
                SweepResult::default()
            );
            let of_ours = |mark| marks.include(mark);
            assert_eq!(sweep_all(&mut sweeper, &no_thread, &SweepTarget::LeftBehind(&of_ours)), 1);
            assert_eq!(children().len(), 1, "the one without a mark");
            assert_eq!(sweep_all(&mut sweeper, &no_thread, &SweepTarget::All), 1);
        });
    }

    /// A stray of a dead worker has set the limit to the mark of a living one; a helper of the living one has not.
    #[test]
    fn who_takes_the_mark_of_a_living_worker_still_ends_with_its_own() {
        alone("who_takes_the_mark_of_a_living_worker_still_ends_with_its_own", || {
            let marks = Marks::of(&"7".repeat(32)).unwrap();
            let [dead, living] = [2, 1].map(|worker| marks.of_worker(worker).number());
            let helper = |own: u64| {
                let limit = format!("--locks={living}:{living}");
                start(&format!("OFFLOAD_MARK={own} setsid -f prlimit {limit} sleep 600")).wait().unwrap();
            };
            [dead, living].into_iter().for_each(helper);
            let is_limited = |pid| Mark::in_limits_of(pid).is_some_and(|mark| mark.number() == living);
            until(|| children().into_iter().all(|pid| sleeps(pid) && is_limited(pid)));
            let of_the_dead = |mark: Mark| mark.number() == dead;
            let swept = sweep_all(&mut Sweeper::new(), &no_thread, &SweepTarget::LeftBehind(&of_the_dead));
            let rest = sweep_all(&mut Sweeper::new(), &no_thread, &SweepTarget::All);
            assert_eq!((swept, rest), (1, 1));
        });
    }

    /// Its tracer has no mark, and may stay for ever.
    #[test]
    fn a_stranger_that_is_dead_and_traced_is_not_swept_again_and_again_and_collected_when_it_can_be() {
        let test =
            "a_stranger_that_is_dead_and_traced_is_not_swept_again_and_again_and_collected_when_it_can_be";
        alone(test, || {
            let mark = Marks::of(&"7".repeat(32)).unwrap().of_worker(1);
            let mut stranger = start(&format!("OFFLOAD_MARK={} exec sleep 600", mark.number()));
            until(|| Mark::in_environment_of(stranger.id()) == Some(mark));
            let tracer = Tracer::of(stranger.id());
            if tracer.is_none() {
                stranger.kill().unwrap();
                stranger.wait().unwrap();
                return;
            }
            let target = |seen| seen == mark;
            let mut sweeper = Sweeper::new();
            assert_eq!(sweep_all(&mut sweeper, &no_thread, &SweepTarget::LeftBehind(&target)), 0);
            assert!(children().contains(&stranger.id()));
            drop(tracer);
            assert_eq!(sweep_all(&mut sweeper, &no_thread, &SweepTarget::LeftBehind(&target)), 1);
            assert!(stranger.wait().is_err(), "nobody has collected it");
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
