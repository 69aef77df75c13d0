//! Starts worker processes and kills stray processes on threads of their own, because the event loop must not wait for
//! either.
//!
//! ```text
//!   event loop                a lane for each program
//!     |---- launch -------->    vfork, exec: waits until the program is loaded
//!     |---- give up ------->    the start is not wanted any more: not made, or its process is killed
//!     |                       keeper
//!     |---- forget -------->    the worker is reaped: processes with its mark are now left-overs
//!     |---- sweep --------->    left-overs are killed and collected
//!     |---- bury ---------->    a process is killed and collected
//!     |
//!     |<--- bell -----------    an answer is available: a process, or the result of a sweep
//! ```
//!
//! A lane may hang when its program is on a file system that does not answer. That delays its own program and no
//! other. All of these threads have a higher niceness than the event loop's thread, and so have the workers from their
//! first moment on: loading a program does not displace the event loop from its CPU core.

use super::lane::{self, Lane, Order, Threads};
use super::marks::{Mark, Marks};
use super::orphans::GENERATION_VARIABLE;
use super::process::{Process, SpawnError};
use super::program::Program;
use super::sweep::{SWEEP_PAUSE, Sweeper, Swept, Whom};
use crate::limits::{LAST_ORDERS_TIMEOUT, LAST_SWEEP_TIMEOUT};
use offload_protocol::limits::MARK_VARIABLE;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Names the lane that starts one version of a program: the index of the program, and the version.
pub(crate) type LaneName = (usize, u64);

/// Starts and ends worker processes on other threads; see the module's documentation. No method waits. Dropping the
/// launcher waits for at most two seconds until its orders are done, except launches that were given up or hang.
#[derive(Debug)]
pub struct Launcher {
    generation: Option<Generation>,
    lanes: BTreeMap<LaneName, Lane>,
    /// The lane of each worker that was ordered and has not been forgotten.
    places: BTreeMap<u64, LaneName>,
    threads: Threads,
    outbox: Outbox,
    answers: Receiver<Answer>,
    keeper: Keeper,
    sweeps_at_the_end: bool,
}

/// How the workers of this launcher and all their descendants are recognized.
#[derive(Debug)]
struct Generation {
    name: String,
    marks: Marks,
}

/// The owner's end of the keeper: the thread that starts nothing.
#[derive(Debug)]
struct Keeper {
    /// This queue has no bound of its own: the owner has at most three orders under way for each worker, whose number
    /// is bounded, and one sweep.
    orders: Option<Sender<Task>>,
    is_over: Receiver<Infallible>,
}

/// The result of an order.
#[derive(Debug)]
pub enum Answer {
    /// The result of [`Launcher::launch`].
    Launched {
        /// The key of the order.
        key: u64,
        /// The process, or why there is none.
        process: Result<Box<Process>, SpawnError>,
    },
    /// The result of [`Launcher::sweep`].
    Swept(Swept),
}

/// Shows that a launch is wanted, for as long as this value exists. A launch that is no longer wanted is not made, or
/// its process is killed by the launcher. It is answered in either case, but a launch that hangs may never be
/// answered.
#[derive(Debug)]
pub struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Where threads put answers. Putting one never waits; the queue is bounded because the owner has a bounded number of
/// orders under way.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    answers: Sender<Answer>,
    bell: Arc<OwnedFd>,
}

impl Outbox {
    pub(super) fn put(&self, answer: Answer) {
        // If the owner is gone, the process is dropped here, which kills it.
        let _ = self.answers.send(answer);
        // The write can fail only if the counter is full of rings that nobody has heard yet.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Launcher {
    /// Starts the keeper. Without the name of a `generation`, left-overs of workers cannot be recognized and are
    /// killed only by [`Launcher::sweep_at_the_end`].
    ///
    /// # Errors
    /// If no thread or descriptor can be created.
    pub fn start(generation: Option<String>) -> io::Result<Launcher> {
        let (sender, answers) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let outbox = Outbox { answers: sender, bell };
        let threads = Threads::default();
        let generation = generation.and_then(|name| Some(Generation { marks: Marks::of(&name)?, name }));
        let marks = generation.as_ref().map(|generation| generation.marks);
        let keeper = Keeper::start(marks, threads.clone(), outbox.clone())?;
        Ok(Launcher {
            generation,
            lanes: BTreeMap::new(),
            places: BTreeMap::new(),
            threads,
            outbox,
            answers,
            keeper,
            sweeps_at_the_end: false,
        })
    }

    /// A descriptor that is readable when there are answers.
    pub fn bell(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.outbox.bell)
    }

    /// Takes the answers that are available, and silences the bell.
    pub fn answers(&self) -> Vec<Answer> {
        // The bell is silenced first, so that an answer that comes later rings it again. If it has not rung, the read
        // fails, which is fine.
        let _ = rustix::io::read(&self.outbox.bell, &mut [0; 8]);
        self.answers.try_iter().collect()
    }

    /// Starts a process as [`Process::spawn`] does, after earlier orders of the same lane. No sweep kills the process
    /// or its descendants until the owner calls [`Launcher::forget`] with the same key. A key names one process at a
    /// time. `forget` must be called also if no process was started.
    ///
    /// # Errors
    /// If an earlier start hangs in this lane, or no thread can be created.
    pub fn launch(
        &mut self,
        key: u64,
        lane: LaneName,
        program: Program,
        payload_max: usize,
    ) -> Result<Wanted, SpawnError> {
        let program = match &self.generation {
            Some(Generation { name, marks }) => program
                .with_variable(GENERATION_VARIABLE, name)
                .with_variable(MARK_VARIABLE, &marks.of_worker(key).number().to_string()),
            None => program,
        };
        let place = match self.lanes.entry(lane) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(place) => {
                let started = Lane::start(self.threads.clone(), self.outbox.clone());
                let no_thread =
                    |error| lane::failed(&program, &format!("there is no thread for it: {error}"));
                place.insert(started.map_err(no_thread)?)
            }
        };
        if let Some(hanging) = place.hanging_for() {
            // The hanging start may have been given up before it counted as hanging, so it may not have been killed
            // yet.
            place.kill_what_hangs();
            return Err(lane::failed(&program, &hangs(hanging)));
        }
        self.keeper.order(Task::Spare { key });
        let is_wanted = Arc::new(AtomicBool::new(true));
        let wanted = Wanted(Arc::clone(&is_wanted));
        self.places.insert(key, lane);
        match place.order(Order { key, program: program.clone(), payload_max, is_wanted }) {
            true => Ok(wanted),
            false => Err(lane::failed(&program, "the thread that starts it has ended")),
        }
    }

    /// Gives up a launch. If it hangs, its process is killed where that is possible.
    pub fn give_up(&self, key: u64, wanted: Wanted) {
        drop(wanted);
        if let Some(lane) = self.places.get(&key).and_then(|lane| self.lanes.get(lane)) {
            lane.kill_what_hangs();
        }
    }

    /// The process of this key was reaped, or never came. A lane without workers ends.
    pub fn forget(&mut self, key: u64) {
        self.keeper.order(Task::Forget { key });
        let Some(name) = self.places.remove(&key) else { return };
        if self.lanes.get_mut(&name).is_some_and(|lane| lane.forget(key)) {
            self.lanes.remove(&name);
        }
    }

    /// Kills and collects what forgotten workers have left behind, as [`Sweeper::sweep`] does.
    pub fn sweep(&self) {
        self.keeper.order(Task::Sweep);
    }

    /// Kills a process that nobody needs, and waits for its end on the keeper's thread.
    pub fn bury(&self, process: Box<Process>) {
        self.keeper.order(Task::Bury(process));
    }

    /// Has all stray processes killed when the launcher is dropped, for at most half a second.
    pub fn sweep_at_the_end(&mut self) {
        self.sweeps_at_the_end = true;
    }
}

/// Explains a hanging start. The text is the end of a sentence about a program.
fn hangs(since: Duration) -> String {
    format!("an earlier start has been hanging for {} s; does the file system answer?", since.as_secs())
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let deadline = Instant::now() + LAST_ORDERS_TIMEOUT;
        self.lanes.values_mut().for_each(Lane::close);
        self.lanes.values().for_each(|lane| lane.wait_until(deadline));
        if self.sweeps_at_the_end {
            self.keeper.order(Task::SweepToTheEnd);
        }
        self.keeper.orders = None;
        let _ = self.keeper.is_over.recv_timeout(LAST_ORDERS_TIMEOUT);
    }
}

#[derive(Debug)]
enum Task {
    /// A worker with this key is being started: processes with its mark are spared.
    Spare {
        key: u64,
    },
    Forget {
        key: u64,
    },
    Bury(Box<Process>),
    Sweep,
    SweepToTheEnd,
}

impl Keeper {
    fn start(marks: Option<Marks>, threads: Threads, outbox: Outbox) -> io::Result<Keeper> {
        let (orders, inbox) = channel();
        let (alive, is_over) = channel();
        let keeper =
            KeeperThread { sweeper: Sweeper::new(), marks, living: BTreeSet::new(), threads, outbox };
        thread::Builder::new().name("offload-keeper".to_owned()).spawn(move || {
            let _alive: Sender<Infallible> = alive;
            keeper.work_off(&inbox);
        })?;
        Ok(Keeper { orders: Some(orders), is_over })
    }

    fn order(&self, task: Task) {
        // The thread ends only when nobody can give orders any more, so sending succeeds.
        let _ = self.orders.as_ref().map(|orders| orders.send(task));
    }
}

/// The state of the keeper's thread.
struct KeeperThread {
    sweeper: Sweeper,
    marks: Option<Marks>,
    /// Marks of the workers that were ordered and have not been forgotten.
    living: BTreeSet<Mark>,
    threads: Threads,
    outbox: Outbox,
}

impl KeeperThread {
    fn work_off(mut self, inbox: &Receiver<Task>) {
        // If the kernel refuses the higher niceness, sweeps disturb the event loop a little more.
        let _ = lane::be_nicer();
        for task in inbox {
            match task {
                Task::Spare { key } => self.living.extend(self.mark_of(key)),
                Task::Forget { key } => drop(self.mark_of(key).map(|mark| self.living.remove(&mark))),
                Task::Bury(process) => drop(process),
                Task::Sweep => {
                    let swept = self.sweep();
                    self.outbox.put(Answer::Swept(swept));
                }
                Task::SweepToTheEnd => self.sweep_to_the_end(),
            }
        }
    }

    fn mark_of(&self, key: u64) -> Option<Mark> {
        self.marks.map(|marks| marks.of_worker(key))
    }

    fn sweep(&mut self) -> Swept {
        let (marks, living) = (self.marks, &self.living);
        let is_left_behind = |mark| marks.is_some_and(|marks| marks.include(mark)) && !living.contains(&mark);
        let threads = &self.threads;
        self.sweeper.sweep(&|thread| threads.include(thread), &Whom::LeftBehind(&is_left_behind))
    }

    fn sweep_to_the_end(&mut self) {
        let deadline = Instant::now() + LAST_SWEEP_TIMEOUT;
        let threads = &self.threads;
        while self.sweeper.sweep(&|thread| threads.include(thread), &Whom::Everybody).more
            && Instant::now() < deadline
        {
            thread::sleep(SWEEP_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::{NICENESS_HIGHEST, NICER};
    use super::super::orphans::new_generation;
    use super::super::sweep::tests::alone_as;
    use super::super::wait::wait_for;
    use super::*;
    use offload_core::exit::Exit;
    use rustix::event::PollFlags;
    use rustix::process::getpriority_process;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, ChildStdout, Command, Stdio};

    const DEADLINE: Duration = Duration::from_secs(20);
    const PAYLOAD_MAX: usize = 1 << 20;
    const LANE: LaneName = (0, 0);

    fn start() -> Launcher {
        Launcher::start(new_generation()).unwrap()
    }

    fn shell(script: &str) -> Program {
        Program::command(["sh", "-c", script].map(str::to_owned).to_vec())
    }

    /// Waits for as many answers as were ordered, and returns them in the order in which they arrive.
    fn answers<const COUNT: usize>(launcher: &Launcher) -> [Answer; COUNT] {
        let mut answers = Vec::new();
        while answers.len() < COUNT {
            assert!(
                wait_for(&launcher.bell(), PollFlags::IN, DEADLINE),
                "no more than {} come",
                answers.len()
            );
            answers.extend(launcher.answers());
        }
        <[Answer; COUNT]>::try_from(answers).expect("no more than were ordered")
    }

    fn next_answer(launcher: &Launcher) -> Answer {
        let [answer] = answers(launcher);
        answer
    }

    fn launch(launcher: &mut Launcher, program: Program) -> Result<Process, SpawnError> {
        let _wanted = launcher.launch(1, LANE, program, PAYLOAD_MAX).unwrap();
        match next_answer(launcher) {
            Answer::Launched { key: 1, process } => process.map(|process| *process),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_launched_process_is_the_callers() {
        let mut launcher = start();
        let mut process = launch(&mut launcher, shell("exit 3")).unwrap();
        assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
        assert_eq!(process.try_reap().unwrap(), Some(Exit::Code(3)));
    }

    #[test]
    fn a_process_is_nicer_from_its_first_moment_on() {
        let mut launcher = start();
        let process = launch(&mut launcher, shell("exec sleep 600")).unwrap();
        let ours = getpriority_process(None).unwrap();
        assert_eq!(process.confinement().unwrap().nice, (ours + NICER).min(NICENESS_HIGHEST));
    }

    #[test]
    fn what_cannot_be_started_is_told() {
        let mut launcher = start();
        let missing = Program::command(vec!["no-such-program".to_owned()]);
        assert!(launch(&mut launcher, missing).unwrap_err().fatal);
    }

    /// The file that a process would make is not there when another one, which was ordered later, is done.
    #[test]
    fn a_launch_that_is_not_wanted_any_more_is_not_carried_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("started");
        let mut launcher = start();
        let lease = Lease::of(folder.path());
        let _first = launcher.launch(1, LANE, lease.program(), PAYLOAD_MAX).unwrap();
        let program = shell(&format!("echo yes >{}", file.display()));
        let second = launcher.launch(2, LANE, program, PAYLOAD_MAX).unwrap();
        launcher.give_up(2, second);
        lease.end();
        let [first, second] = answers(&launcher);
        assert!(matches!(first, Answer::Launched { key: 1, process: Ok(_) }));
        let Answer::Launched { key: 2, process: Err(error) } = second else { panic!("it was started") };
        assert!(error.message.ends_with("its turn did not come in time") && !error.fatal, "{error}");
        assert!(!file.exists());
    }

    /// A program that cannot be loaded, because another process has a lease on its file: whoever opens it waits until
    /// that gives it back, for 45 seconds if it never does (fcntl(2), F_SETLEASE).
    struct Lease {
        holder: Child,
        _pipe: BufReader<ChildStdout>,
        file: std::path::PathBuf,
    }

    impl Lease {
        fn of(folder: &std::path::Path) -> Lease {
            let file = folder.join("leased");
            std::fs::copy("/bin/true", &file).unwrap();
            let script = "$SIG{IO} = q(IGNORE); $| = 1; open(F, q(<), $ARGV[0]) or die; \
                          fcntl(F, 1024, 1) or die; print qq(held\\n); sleep 600";
            let mut perl = Command::new("perl");
            let mut holder = perl
                .args(["-e", script])
                .arg(&file)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut pipe = BufReader::new(holder.stdout.take().unwrap());
            let mut line = String::new();
            pipe.read_line(&mut line).unwrap();
            assert_eq!(line, "held\n");
            Lease { holder, _pipe: pipe, file }
        }

        fn program(&self) -> Program {
            Program::command(vec![self.file.to_str().unwrap().to_owned()])
        }

        fn end(self) {}
    }

    impl Drop for Lease {
        fn drop(&mut self) {
            self.holder.kill().unwrap();
            self.holder.wait().unwrap();
        }
    }

    fn wait_until_it_is_being_made(launcher: &Launcher) {
        let deadline = Instant::now() + DEADLINE;
        while !launcher.lanes[&LANE].is_making() {
            assert!(Instant::now() < deadline, "it is not begun");
            thread::yield_now();
        }
    }

    /// Waits until a launch that was given up counts as hanging, so that the next one is refused.
    fn refusal(launcher: &mut Launcher, lease: &Lease) -> SpawnError {
        let deadline = Instant::now() + DEADLINE;
        while launcher.lanes[&LANE].hanging_for().is_none() {
            assert!(Instant::now() < deadline, "it does not count as hanging");
            thread::park_timeout(Duration::from_millis(1));
        }
        launcher.launch(99, LANE, lease.program(), PAYLOAD_MAX).expect_err("it would wait behind what hangs")
    }

    #[test]
    fn a_launch_that_hangs_keeps_no_other_program_waiting_and_others_of_its_own_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let lease = Lease::of(folder.path());
        let mut launcher = start();
        let hanging = launcher.launch(1, LANE, lease.program(), PAYLOAD_MAX).unwrap();
        for key in 2..10 {
            let _wanted = launcher.launch(key, (1, 0), shell("exit 3"), PAYLOAD_MAX).unwrap();
            let Answer::Launched { process, .. } = next_answer(&launcher) else { panic!("no launch") };
            let mut process = process.unwrap();
            assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
            assert_eq!(process.try_reap().unwrap(), Some(Exit::Code(3)));
        }
        wait_until_it_is_being_made(&launcher);
        drop(hanging);
        let error = refusal(&mut launcher, &lease);
        assert!(error.message.contains("hanging for") && !error.fatal, "{error}");
        lease.end();
    }

    /// A process that hangs while it is being loaded can be killed. Then the thread is free again.
    #[test]
    fn a_launch_that_hangs_and_is_given_up_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let lease = Lease::of(folder.path());
        let mut launcher = start();
        let hanging = launcher.launch(1, LANE, lease.program(), PAYLOAD_MAX).unwrap();
        let _next = launcher.launch(2, LANE, shell("exec sleep 600"), PAYLOAD_MAX).unwrap();
        wait_until_it_is_being_made(&launcher);
        drop(hanging);
        refusal(&mut launcher, &lease);
        let [first, second] = answers(&launcher);
        assert!(matches!(first, Answer::Launched { key: 1, process: Err(_) }));
        let Answer::Launched { key: 2, process } = second else { panic!("another order") };
        assert_eq!(process.unwrap().try_reap().unwrap(), None, "what waited behind it is not killed");
        lease.end();
    }

    #[test]
    fn a_launcher_with_a_launch_that_hangs_can_be_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let lease = Lease::of(folder.path());
        let mut launcher = start();
        let hanging = launcher.launch(1, LANE, lease.program(), PAYLOAD_MAX).unwrap();
        wait_until_it_is_being_made(&launcher);
        launcher.give_up(1, hanging);
        drop(launcher);
        // The lease is held to the end: who waits for the file waits in vain.
        lease.end();
    }

    #[test]
    fn a_lane_ends_with_its_last_worker_and_not_before() {
        let mut launcher = start();
        let mut processes = Vec::new();
        for key in [1, 2] {
            let _wanted = launcher.launch(key, LANE, shell("exec sleep 600"), PAYLOAD_MAX).unwrap();
            let Answer::Launched { process, .. } = next_answer(&launcher) else { panic!("no launch") };
            processes.push(process.unwrap());
        }
        drop(processes.pop());
        launcher.forget(2);
        assert_eq!(launcher.lanes.len(), 1);
        assert_eq!(processes[0].try_reap().unwrap(), None, "it has lost its parent");
        drop(processes);
        launcher.forget(1);
        assert!(launcher.lanes.is_empty() && launcher.places.is_empty());
    }

    /// A pipe that the process would hold for ten minutes ends: whether it was started or not, it is gone.
    #[test]
    fn what_nobody_wants_is_gone_with_the_launcher() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let keeper = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let mut launcher = start();
        let program = shell(&format!("exec sleep 600 >{}", pipe.display()));
        let wanted: Vec<Wanted> =
            (0..8).map(|key| launcher.launch(key, LANE, program.clone(), PAYLOAD_MAX).unwrap()).collect();
        drop((wanted, launcher));
        let mut reader = std::fs::File::open(&pipe).unwrap();
        drop(keeper);
        assert_eq!(std::io::Read::read(&mut reader, &mut [0; 1]).unwrap(), 0);
    }

    fn sweep(launcher: &Launcher) -> Swept {
        launcher.sweep();
        match next_answer(launcher) {
            Answer::Swept(swept) => swept,
            other => panic!("{other:?}"),
        }
    }

    /// A worker with a helper that has left it, and the pipe that ends when both are gone.
    fn worker_with_a_helper(launcher: &mut Launcher, key: u64, then: &str) -> (Box<Process>, std::fs::File) {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let script =
            format!("exec >{0}; setsid -f sh -c 'echo ready; exec sleep 600'; {then}", pipe.display());
        let _wanted = launcher.launch(key, LANE, shell(&script), PAYLOAD_MAX).unwrap();
        let mut reader = std::fs::File::open(&pipe).unwrap();
        std::io::Read::read_exact(&mut reader, &mut [0; 6]).unwrap();
        match next_answer(launcher) {
            Answer::Launched { process, .. } => (process.unwrap(), reader),
            other => panic!("{other:?}"),
        }
    }

    fn is_open(pipe: &std::fs::File) -> bool {
        !wait_for(pipe, PollFlags::IN, Duration::ZERO)
    }

    #[test]
    fn what_a_worker_left_behind_is_swept_when_it_is_forgotten_and_what_others_did_is_not() {
        let test = "workers::launcher::tests::\
                    what_a_worker_left_behind_is_swept_when_it_is_forgotten_and_what_others_did_is_not";
        alone_as(test, || {
            let mut launcher = start();
            let (mut living, pipe_of_the_living) = worker_with_a_helper(&mut launcher, 1, "exec sleep 600");
            let (mut dead, pipe_of_the_dead) = worker_with_a_helper(&mut launcher, 2, "exit 3");
            assert!(wait_for(&dead.pidfd(), PollFlags::IN, DEADLINE));
            assert_eq!(sweep(&launcher), Swept::default());
            assert_eq!(dead.try_reap().unwrap(), Some(Exit::Code(3)));
            assert!(is_open(&pipe_of_the_dead), "it is not known yet that its worker has ended");
            launcher.forget(2);
            let swept = sweep(&launcher);
            assert!(swept.killed == 1 || swept.more, "{swept:?}");
            assert!(wait_for(&pipe_of_the_dead, PollFlags::IN, DEADLINE), "it lives on");
            while sweep(&launcher).more {}
            assert!(is_open(&pipe_of_the_living) && living.try_reap().unwrap().is_none());
            drop(living);
            launcher.forget(1);
            while sweep(&launcher).more {}
            assert!(!is_open(&pipe_of_the_living));
        });
    }

    /// Each has a child of its own, which is set free only when it is dead.
    #[test]
    fn the_last_sweep_gets_what_others_set_free() {
        alone_as("workers::launcher::tests::the_last_sweep_gets_what_others_set_free", || {
            let script = "setsid -f sh -c 'setsid sh -c \"setsid sleep 600 & echo deep; wait\" & wait'";
            let (mut reader, writer) = std::io::pipe().unwrap();
            let mut worker = std::process::Command::new("sh");
            worker.args(["-c", script]).stdout(writer).spawn().unwrap().wait().unwrap();
            drop(worker);
            let mut said = [0; 5];
            std::io::Read::read_exact(&mut reader, &mut said).unwrap();
            let mut launcher = start();
            launcher.sweep_at_the_end();
            drop(launcher);
            assert_eq!(std::io::Read::read(&mut reader, &mut said).unwrap(), 0, "somebody holds the pipe");
        });
    }
}
