//! The thread that starts the workers of one program, one after another.
//!
//! ```text
//!            order               fork                   exec: its file is loaded
//!   idle ------------> starting ------> loading ----------------------------------> answered ---> idle
//!                          |               |
//!                          '---------------'-- for longer than LAUNCH_HANGS_AFTER, and given up: the start hangs.
//!                                              The forked process is killed. Further orders are refused until the
//!                                              thread is free again, which may never happen.
//! ```
//!
//! Starting a process waits until its file is loaded, which on a dead file system takes forever. So each program has a
//! thread of its own, and a start that hangs delays no other program. The thread lives as long as any worker that it
//! has started, because the parent-death signal of these workers is bound to it (prctl(2), PR_SET_PDEATHSIG).

use super::launcher::{Answer, Outbox};
use super::process::{Process, SpawnError};
use super::program::Program;
use super::sweep::kill_children_of_thread;
use crate::limits::LAUNCH_HANGS_AFTER;
use rustix::process::{getpriority_process, setpriority_process};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How much is added to the niceness of a starting thread: as much as to that of confined workers.
pub(super) const NICER: i32 = 5;
pub(super) const NICENESS_HIGHEST: i32 = 19;

/// An order to start a process.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) key: u64,
    pub(super) program: Program,
    pub(super) payload_max: usize,
    pub(super) is_wanted: Arc<AtomicBool>,
}

/// The ids of all threads that start workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads(Arc<Mutex<BTreeSet<u32>>>);

/// The owner's end of the thread. Dropping it does not wait: the thread ends when it has nothing left to do.
#[derive(Debug)]
pub(super) struct Lane {
    /// The queue of orders. It never holds more orders than there are places for workers, because the owner has at
    /// most one start under way for each place.
    orders: Option<Sender<Order>>,
    state: Arc<Mutex<State>>,
    is_over: Receiver<Infallible>,
    /// Keys that were ordered here and have not been forgotten.
    users: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct State {
    thread: Option<u32>,
    making: Option<Making>,
    /// Process ids of the workers that were started here and have not been forgotten, by key.
    started: BTreeMap<u64, u32>,
}

/// The start that the thread is working on.
#[derive(Debug)]
struct Making {
    since: Instant,
    is_wanted: Arc<AtomicBool>,
}

impl Making {
    fn hangs(&self) -> bool {
        !self.is_wanted.load(Ordering::Relaxed) && self.since.elapsed() > LAUNCH_HANGS_AFTER
    }
}

impl Threads {
    pub(super) fn include(&self, thread: u32) -> bool {
        locked(&self.0).contains(&thread)
    }
}

impl Lane {
    /// Starts the thread.
    pub(super) fn start(threads: Threads, outbox: Outbox) -> io::Result<Lane> {
        let (orders, inbox) = channel();
        let (alive, is_over) = channel();
        let state = Arc::new(Mutex::new(State::default()));
        let worker = Thread { threads, outbox, state: Arc::clone(&state) };
        thread::Builder::new().name("offload-launch".to_owned()).spawn(move || {
            let _alive: Sender<Infallible> = alive;
            worker.work_off(&inbox);
        })?;
        Ok(Lane { orders: Some(orders), state, is_over, users: BTreeSet::new() })
    }

    /// For how long a start has been hanging here that was given up. None if no start hangs.
    pub(super) fn hanging_for(&self) -> Option<Duration> {
        let state = locked(&self.state);
        state.making.as_ref().filter(|making| making.hangs()).map(|making| making.since.elapsed())
    }

    /// Passes an order to the thread. Returns false if the thread has ended.
    pub(super) fn order(&mut self, order: Order) -> bool {
        self.users.insert(order.key);
        self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok())
    }

    /// Forgets a key. Returns true if nothing needs this thread any more.
    pub(super) fn forget(&mut self, key: u64) -> bool {
        self.users.remove(&key);
        locked(&self.state).started.remove(&key);
        self.users.is_empty()
    }

    /// Kills the process of a start that hangs, if there is one. If it can be killed where it hangs, the thread
    /// becomes free again.
    pub(super) fn kill_what_hangs(&self) {
        // The thread needs this lock before it begins the next start.
        let state = locked(&self.state);
        if let (Some(thread), Some(_)) = (state.thread, state.making.as_ref().filter(|making| making.hangs()))
        {
            let spared = state.started.values().copied().collect();
            kill_children_of_thread(thread, &spared);
        }
    }

    #[cfg(test)]
    pub(super) fn is_making(&self) -> bool {
        locked(&self.state).making.is_some()
    }

    /// Closes the queue of orders.
    pub(super) fn close(&mut self) {
        self.orders = None;
    }

    /// Waits until all orders are done. A start that hangs is not waited for; its process is killed.
    pub(super) fn wait_until(&self, deadline: Instant) {
        let patience = match self.hanging_for() {
            Some(_) => Duration::ZERO,
            None => deadline.saturating_duration_since(Instant::now()),
        };
        let _ = self.is_over.recv_timeout(patience);
        self.kill_what_hangs();
    }
}

/// The state of the thread.
struct Thread {
    threads: Threads,
    outbox: Outbox,
    state: Arc<Mutex<State>>,
}

impl Thread {
    /// Carries out orders until the queue is closed.
    fn work_off(self, inbox: &Receiver<Order>) {
        // If the kernel refuses the higher niceness, starts disturb the event loop a little more.
        let _ = be_nicer();
        let thread = nix::unistd::gettid().as_raw().unsigned_abs();
        locked(&self.threads.0).insert(thread);
        locked(&self.state).thread = Some(thread);
        for order in inbox {
            let process = self.launch(&order).map(Box::new);
            self.outbox.put(Answer::Launched { key: order.key, process });
        }
        locked(&self.threads.0).remove(&thread);
    }

    fn launch(&self, order: &Order) -> Result<Process, SpawnError> {
        let Order { key, program, is_wanted, .. } = order;
        let is_unwanted = || !is_wanted.load(Ordering::Relaxed);
        if is_unwanted() {
            return Err(failed(program, "its turn did not come in time"));
        }
        let making = Making { since: Instant::now(), is_wanted: Arc::clone(is_wanted) };
        locked(&self.state).making = Some(making);
        let process = spawn(order);
        let mut state = locked(&self.state);
        state.making = None;
        state.started.extend(process.as_ref().ok().map(|process| (*key, process.pid())));
        drop(state);
        match process {
            Ok(_) if is_unwanted() => Err(failed(program, "it took too long")),
            process => process,
        }
    }
}

fn spawn(order: &Order) -> Result<Process, SpawnError> {
    // A panic must not end this thread, because all its workers would end with it.
    catch_unwind(AssertUnwindSafe(|| Process::spawn(&order.program, order.payload_max)))
        .unwrap_or_else(|_| Err(failed(&order.program, "a panic, which is a mistake of this program")))
}

/// The error of a start that may be tried again.
pub(super) fn failed(program: &Program, why: &str) -> SpawnError {
    SpawnError { fatal: false, message: format!("cannot start `{}`: {why}", program.name()) }
}

/// Raises the niceness of the calling thread. On Linux each thread has its own, which processes that the thread starts
/// inherit (setpriority(2)).
pub(super) fn be_nicer() -> rustix::io::Result<()> {
    let niceness = getpriority_process(None)?;
    setpriority_process(None, (niceness + NICER).min(NICENESS_HIGHEST))
}

/// Locks, also after a panic: no code leaves the data under these locks in an inconsistent state.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
