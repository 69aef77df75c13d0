//! A thread for what the loop must not wait for: starting processes, and looking for those that escaped.
//!
//! ```text
//!   loop                      launcher
//!     |---- launch -------->    vfork, exec: whoever starts a process waits until its program is loaded
//!     |---- forget -------->    it is reaped, its number may be anybody's
//!     |---- sweep --------->    children of whom nobody was told are killed and collected
//!     |
//!     |<--- bell -----------    an answer is there: the process, or what was swept
//! ```
//!
//! Both are done by one thread, so that no child is found by a sweep before it is known to be a worker. It lives as
//! long as there may be workers, because their parent-death signal is bound to the thread that started them (prctl(2),
//! PR_SET_PDEATHSIG). It is nicer than the loop's thread, and so are the workers from their first moment on: loading a
//! program does not take the core away from the loop.

use super::process::{Process, SpawnError};
use super::program::Program;
use super::sweep::{SWEEP_PAUSE, Sweeper, Swept};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{getpriority_process, setpriority_process};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How much nicer it is: as much as confined workers are.
const NICER: i32 = 5;
const NICENESS_HIGHEST: i32 = 19;
/// How long the last sweep goes on.
const LAST_SWEEP_MAX: Duration = Duration::from_millis(500);
/// How long dropping a launcher waits for what was ordered.
const LAST_ORDER_MAX: Duration = Duration::from_secs(1);

/// See the module's documentation. Nothing of this waits but dropping it, for at most one second: then what was
/// ordered is done, but for launches that nobody wants.
#[derive(Debug)]
pub struct Launcher {
    /// Neither of the two is bounded here: the owner has no more than one launch and one forgetting under way for each
    /// of its workers, whose number is bounded, and one sweep.
    orders: Option<Sender<Order>>,
    answers: Receiver<Answer>,
    bell: Arc<OwnedFd>,
    is_over: Receiver<Infallible>,
}

/// What comes of an order.
#[derive(Debug)]
pub enum Answer {
    /// Of [`Launcher::launch`].
    Launched {
        /// As in the order.
        key: u64,
        /// The process, or why there is none.
        process: Result<Box<Process>, SpawnError>,
    },
    /// Of [`Launcher::sweep`].
    Swept(Swept),
}

/// As long as this is there, a launch is wanted. What is not wanted any more is not started, or killed by the launcher
/// before anybody sees it; it is answered all the same.
#[derive(Debug)]
pub struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Order {
    Launch { key: u64, program: Box<Program>, payload_max: usize, is_wanted: Arc<AtomicBool> },
    Forget { key: u64 },
    Sweep,
    SweepToTheEnd,
}

impl Launcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be no more threads or descriptors.
    pub fn start() -> io::Result<Launcher> {
        let (orders, inbox) = channel();
        let (outbox, answers) = channel();
        let (alive, is_over) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let worker = Thread {
            sweeper: Sweeper::new(),
            launched: BTreeMap::new(),
            answers: outbox,
            bell: Arc::clone(&bell),
        };
        thread::Builder::new().name("offload-launch".to_owned()).spawn(move || {
            let _alive = alive;
            worker.work_off(&inbox);
        })?;
        Ok(Launcher { orders: Some(orders), answers, bell, is_over })
    }

    /// Readable when there are answers.
    pub fn bell(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.bell)
    }

    /// The answers that are there. Silences the bell.
    pub fn answers(&self) -> Vec<Answer> {
        // Silence comes first: who answers after that rings again. Nothing to silence is fine.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.answers.try_iter().collect()
    }

    /// Starts a process as [`Process::spawn`] does. No sweep touches it until the owner says [`Launcher::forget`], with
    /// the same key, which is to name one process at a time.
    ///
    /// # Errors
    /// If the thread has ended, which it does not.
    pub fn launch(&self, key: u64, program: Program, payload_max: usize) -> Result<Wanted, SpawnError> {
        let is_wanted = Arc::new(AtomicBool::new(true));
        let wanted = Wanted(Arc::clone(&is_wanted));
        let order = Order::Launch { key, program: Box::new(program), payload_max, is_wanted };
        match self.order(order) {
            true => Ok(wanted),
            false => Err(SpawnError {
                fatal: true,
                message: "the thread that starts workers has ended".to_owned(),
            }),
        }
    }

    /// The process of this key was reaped.
    pub fn forget(&self, key: u64) {
        self.order(Order::Forget { key });
    }

    /// Kills and collects, as [`Sweeper::sweep`] does, the children of this process that were not launched here.
    pub fn sweep(&self) {
        self.order(Order::Sweep);
    }

    /// Sweeps until nothing is left, for at most half a second. To be the last order; there is no answer.
    pub fn sweep_to_the_end(&self) {
        self.order(Order::SweepToTheEnd);
    }

    /// Whether somebody is there who will do it.
    fn order(&self, order: Order) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok())
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.is_over.recv_timeout(LAST_ORDER_MAX);
    }
}

/// What the thread has.
struct Thread {
    sweeper: Sweeper,
    /// Process ids by the keys of their owner.
    launched: BTreeMap<u64, u32>,
    answers: Sender<Answer>,
    bell: Arc<OwnedFd>,
}

impl Thread {
    /// Until nobody can give orders any more.
    fn work_off(mut self, inbox: &Receiver<Order>) {
        // Where it is refused, starts disturb the loop a little more.
        let _ = be_nicer();
        for order in inbox {
            match order {
                Order::Launch { key, program, payload_max, is_wanted } => {
                    let process = launch(&program, payload_max, &is_wanted);
                    self.launched.extend(process.as_ref().ok().map(|process| (key, process.pid())));
                    self.answer(Answer::Launched { key, process: process.map(Box::new) });
                }
                Order::Forget { key } => drop(self.launched.remove(&key)),
                Order::Sweep => {
                    let swept = self.sweep();
                    self.answer(Answer::Swept(swept));
                }
                Order::SweepToTheEnd => {
                    let deadline = Instant::now() + LAST_SWEEP_MAX;
                    while self.sweep().more && Instant::now() < deadline {
                        thread::sleep(SWEEP_PAUSE);
                    }
                }
            }
        }
    }

    fn sweep(&mut self) -> Swept {
        let launched = &self.launched;
        self.sweeper.sweep(&|pid| launched.values().any(|known| *known == pid))
    }

    fn answer(&self, answer: Answer) {
        // Without an owner a process is dropped here, which kills it.
        let _ = self.answers.send(answer);
        // It can only be full of rings that nobody has heard yet.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// Of this thread alone: niceness is a thread's own in Linux, and is passed on to what it starts (setpriority(2)).
fn be_nicer() -> rustix::io::Result<()> {
    let niceness = getpriority_process(None)?;
    setpriority_process(None, (niceness + NICER).min(NICENESS_HIGHEST))
}

fn launch(program: &Program, payload_max: usize, is_wanted: &AtomicBool) -> Result<Process, SpawnError> {
    let ended = |message: &str| {
        let message = format!("cannot start `{}`: {message}", program.name());
        SpawnError { fatal: false, message }
    };
    let is_unwanted = || !is_wanted.load(Ordering::Relaxed);
    if is_unwanted() {
        return Err(ended("its turn did not come in time"));
    }
    // With this thread all workers would end.
    let process = catch_unwind(AssertUnwindSafe(|| Process::spawn(program, payload_max)))
        .unwrap_or_else(|_| Err(ended("a panic, which is a mistake of this program")))?;
    match is_unwanted() {
        false => Ok(process),
        true => Err(ended("it took too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sweep::tests::alone_as;
    use super::super::wait::wait_for;
    use super::*;
    use crate::exit::Exit;
    use rustix::event::PollFlags;

    const DEADLINE: Duration = Duration::from_secs(20);
    const PAYLOAD_MAX: usize = 1 << 20;

    fn shell(script: &str) -> Program {
        Program::command(["sh", "-c", script].map(str::to_owned).to_vec())
    }

    fn next_answer(launcher: &Launcher) -> Answer {
        loop {
            assert!(wait_for(&launcher.bell(), PollFlags::IN, DEADLINE), "no answer comes");
            let mut answers = launcher.answers();
            assert!(answers.len() <= 1, "one was ordered: {answers:?}");
            if let Some(answer) = answers.pop() {
                return answer;
            }
        }
    }

    fn launch(launcher: &Launcher, program: Program) -> Result<Process, SpawnError> {
        let _wanted = launcher.launch(1, program, PAYLOAD_MAX).unwrap();
        match next_answer(launcher) {
            Answer::Launched { key: 1, process } => process.map(|process| *process),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_launched_process_is_the_callers() {
        let launcher = Launcher::start().unwrap();
        let mut process = launch(&launcher, shell("exit 3")).unwrap();
        assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
        assert_eq!(process.try_reap().unwrap(), Some(Exit::Code(3)));
    }

    #[test]
    fn a_process_is_nicer_from_its_first_moment_on() {
        let launcher = Launcher::start().unwrap();
        let process = launch(&launcher, shell("exec sleep 600")).unwrap();
        let ours = getpriority_process(None).unwrap();
        assert_eq!(process.confinement().unwrap().nice, (ours + NICER).min(NICENESS_HIGHEST));
    }

    #[test]
    fn what_cannot_be_started_is_told() {
        let launcher = Launcher::start().unwrap();
        let missing = Program::command(vec!["no-such-program".to_owned()]);
        assert!(launch(&launcher, missing).unwrap_err().fatal);
    }

    /// The file that a process would make is not there after all that was ordered is done.
    #[test]
    fn a_launch_that_is_not_wanted_any_more_is_not_carried_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("started");
        let is_wanted = AtomicBool::new(false);
        let program = shell(&format!("echo yes >{}", file.display()));
        let error = super::launch(&program, PAYLOAD_MAX, &is_wanted).unwrap_err();
        assert!(!error.fatal && error.message.ends_with("its turn did not come in time"), "{error}");
        assert!(!file.exists());
    }

    /// A pipe that the process would hold for ten minutes ends: whether it was started or not, it is gone.
    #[test]
    fn what_nobody_wants_is_gone_with_the_launcher() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let keeper = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let launcher = Launcher::start().unwrap();
        let program = shell(&format!("exec sleep 600 >{}", pipe.display()));
        let wanted: Vec<Wanted> =
            (0..8).map(|key| launcher.launch(key, program.clone(), PAYLOAD_MAX).unwrap()).collect();
        drop((wanted, launcher));
        let mut reader = std::fs::File::open(&pipe).unwrap();
        drop(keeper);
        assert_eq!(std::io::Read::read(&mut reader, &mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn a_sweep_spares_what_was_launched_until_it_is_forgotten() {
        let test = "workers::launcher::tests::a_sweep_spares_what_was_launched_until_it_is_forgotten";
        alone_as(test, || {
            let launcher = Launcher::start().unwrap();
            let sweep = || {
                launcher.sweep();
                match next_answer(&launcher) {
                    Answer::Swept(swept) => swept,
                    other => panic!("{other:?}"),
                }
            };
            let mut process = launch(&launcher, shell("exec sleep 600")).unwrap();
            assert_eq!(sweep(), Swept::default());
            assert_eq!(process.try_reap().unwrap(), None);
            launcher.forget(1);
            let swept = sweep();
            assert!(swept.killed == 1 || swept.more, "{swept:?}");
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
            let launcher = Launcher::start().unwrap();
            launcher.sweep_to_the_end();
            drop(launcher);
            assert_eq!(std::io::Read::read(&mut reader, &mut said).unwrap(), 0, "somebody holds the pipe");
        });
    }
}
