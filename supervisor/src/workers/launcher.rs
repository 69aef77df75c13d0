//! A thread for what the loop must not wait for: starting processes, and looking for those that escaped.
//!
//! ```text
//!   loop                      launcher
//!     |---- launch -------->    vfork, exec: whoever starts a process waits until its program is loaded
//!     |<--- the process ----
//!     |---- forget -------->    it is reaped, its number may be anybody's
//!     |---- sweep --------->    children of whom nobody was told are killed and collected
//!     |<--- what was found -
//! ```
//!
//! Both are done by one thread, so that no child is found by a sweep before it is known to be a worker. It lives as
//! long as there may be workers, because their parent-death signal is bound to the thread that started them (prctl(2),
//! PR_SET_PDEATHSIG).

use super::process::{Process, SpawnError};
use super::program::Program;
use super::sweep::{Sweeper, Swept};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long dropping a launcher waits for what it is just doing.
const LAST_ORDER_MAX: Duration = Duration::from_secs(1);

/// See the module's documentation. Nothing of this waits but dropping it, for at most one second.
#[derive(Debug)]
pub struct Launcher {
    /// Not bounded here: its owner has no more than one launch and one forgetting under way for each of its workers,
    /// whose number is bounded, and one sweep.
    orders: Option<Sender<Order>>,
    is_over: Receiver<Infallible>,
}

enum Order {
    Launch {
        key: u64,
        program: Box<Program>,
        payload_max: usize,
        then: Box<dyn FnOnce(Result<Process, SpawnError>) + Send>,
    },
    Forget {
        key: u64,
    },
    Sweep {
        then: Box<dyn FnOnce(Swept) + Send>,
    },
}

impl Launcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start() -> io::Result<Launcher> {
        let (orders, inbox) = channel();
        let (alive, is_over) = channel();
        thread::Builder::new().name("offload-launch".to_owned()).spawn(move || {
            let _alive = alive;
            work_off(&inbox);
        })?;
        Ok(Launcher { orders: Some(orders), is_over })
    }

    /// Starts a process as [`Process::spawn`] does and hands it to `then`, on the launcher's thread. No sweep touches
    /// it until the owner says [`Launcher::forget`], with the same key, which is to name one process at a time.
    pub fn launch(
        &self,
        key: u64,
        program: Program,
        payload_max: usize,
        then: impl FnOnce(Result<Process, SpawnError>) + Send + 'static,
    ) {
        let (program, then) = (Box::new(program), Box::new(then));
        self.order(Order::Launch { key, program, payload_max, then });
    }

    /// The process of this key was reaped.
    pub fn forget(&self, key: u64) {
        self.order(Order::Forget { key });
    }

    /// Kills and collects, as [`Sweeper::sweep`] does, the children of this process that were not launched here.
    pub fn sweep(&self, then: impl FnOnce(Swept) + Send + 'static) {
        self.order(Order::Sweep { then: Box::new(then) });
    }

    fn order(&self, order: Order) {
        // The thread ends only after this end of the channel, unless it panics. Then no start is answered any more,
        // which is a worker that does not say hello in time.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.is_over.recv_timeout(LAST_ORDER_MAX);
    }
}

/// Until nobody can give orders any more.
fn work_off(inbox: &Receiver<Order>) {
    let mut sweeper = Sweeper::new();
    let mut launched = BTreeMap::new();
    for order in inbox {
        match order {
            Order::Launch { key, program, payload_max, then } => {
                let process = Process::spawn(&program, payload_max);
                launched.extend(process.as_ref().ok().map(|process| (key, process.pid())));
                then(process);
            }
            Order::Forget { key } => drop(launched.remove(&key)),
            Order::Sweep { then } => then(sweeper.sweep(&|pid| launched.values().any(|known| *known == pid))),
        }
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

    fn launch(launcher: &Launcher, key: u64, program: Program) -> Result<Process, SpawnError> {
        let (sender, receiver) = channel();
        launcher.launch(key, program, PAYLOAD_MAX, move |process| sender.send(process).unwrap());
        receiver.recv_timeout(DEADLINE).unwrap()
    }

    #[test]
    fn a_launched_process_is_the_callers() {
        let launcher = Launcher::start().unwrap();
        let mut process = launch(&launcher, 1, shell("exit 3")).unwrap();
        assert!(wait_for(&process.pidfd(), PollFlags::IN, DEADLINE));
        assert_eq!(process.try_reap().unwrap(), Some(Exit::Code(3)));
    }

    #[test]
    fn what_cannot_be_started_is_told() {
        let launcher = Launcher::start().unwrap();
        let missing = Program::command(vec!["no-such-program".to_owned()]);
        assert!(launch(&launcher, 1, missing).unwrap_err().fatal);
    }

    /// The process is handed over in the last moment, to nobody.
    #[test]
    fn a_process_that_nobody_takes_is_killed_before_the_launcher_is_gone() {
        let launcher = Launcher::start().unwrap();
        let (sender, receiver) = channel();
        launcher.launch(1, shell("exec sleep 600"), PAYLOAD_MAX, move |process| {
            sender.send(process.unwrap().pidfd()).unwrap();
        });
        drop(launcher);
        let pidfd = receiver.try_recv().unwrap();
        assert!(wait_for(&pidfd, PollFlags::IN, DEADLINE));
    }

    #[test]
    fn a_sweep_spares_what_was_launched_until_it_is_forgotten() {
        let test = "workers::launcher::tests::a_sweep_spares_what_was_launched_until_it_is_forgotten";
        alone_as(test, || {
            let launcher = Launcher::start().unwrap();
            let sweep = || {
                let (sender, receiver) = channel();
                launcher.sweep(move |swept| sender.send(swept).unwrap());
                receiver.recv_timeout(DEADLINE).unwrap()
            };
            let mut process = launch(&launcher, 1, shell("exec sleep 600")).unwrap();
            assert_eq!(sweep(), Swept::default());
            assert_eq!(process.try_reap().unwrap(), None);
            launcher.forget(1);
            let swept = sweep();
            assert!(swept.killed == 1 || swept.more, "{swept:?}");
        });
    }
}
