//! The thread that starts the workers of one version of a program, one after another.
//!
//! ```text
//!           request            fork                   exec: its file is loaded
//!   idle ------------> starting ------> loading ----------------------------------> answered ---> idle
//!                          |               |
//!                          '---------------'-- for longer than LAUNCH_HANGS_AFTER, and given up: the start hangs.
//!                                              The forked process is killed. Further requests are refused until the
//!                                              thread is free again, which may never happen.
//! ```
//!
//! Starting a process waits until its file is loaded, which on a dead file system takes forever. So each version of a
//! program has a thread of its own, and a start that hangs delays no other program. The thread lives as long as any
//! worker that it has started, because the parent-death signal of these workers is bound to it (prctl(2),
//! PR_SET_PDEATHSIG).

use super::all_launchers::{add_launch_thread, locked, remove_launch_thread};
use super::launcher::{EventSender, LauncherEvent};
use super::process::{Process, SpawnError};
use super::program::Program;
use super::sweep::kill_children_of_thread;
use crate::limits::LAUNCH_HANGS_AFTER;
use offload_protocol::limits::{NICENESS_ADDED, NICENESS_HIGHEST};
use rustix::process::{getpriority_process, setpriority_process};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A request to start a process.
#[derive(Debug)]
pub(super) struct LaunchRequest {
    pub(super) key: u64,
    pub(super) program: Program,
    pub(super) payload_max: usize,
    pub(super) is_wanted: Arc<AtomicBool>,
}

/// The owner's end of the thread. Dropping it does not wait: the thread ends when it has nothing left to do.
#[derive(Debug)]
pub(super) struct LaunchThread {
    /// The queue of requests. It never holds more requests than there may be workers, because the owner has at most one
    /// start under way for each.
    requests: Option<Sender<LaunchRequest>>,
    state: Arc<Mutex<LaunchThreadState>>,
    ended: Receiver<Infallible>,
    /// Keys that were requested here and have not been forgotten.
    users: BTreeSet<u64>,
}

/// What the thread and its owner share.
#[derive(Debug, Default)]
struct LaunchThreadState {
    thread: Option<u32>,
    current: Option<CurrentLaunch>,
    /// Process ids of the workers that were started here and have not been forgotten, by key.
    started: BTreeMap<u64, u32>,
}

/// The start that the thread is working on.
#[derive(Debug)]
struct CurrentLaunch {
    since: Instant,
    is_wanted: Arc<AtomicBool>,
}

impl CurrentLaunch {
    fn hangs(&self) -> bool {
        !self.is_wanted.load(Ordering::Relaxed) && self.since.elapsed() > LAUNCH_HANGS_AFTER
    }
}

impl LaunchThread {
    /// Starts the thread.
    pub(super) fn start(events: EventSender) -> io::Result<LaunchThread> {
        let (requests, inbox) = channel();
        let (alive, ended) = channel();
        let state = Arc::new(Mutex::new(LaunchThreadState::default()));
        let launch_loop = LaunchLoop { events, state: Arc::clone(&state) };
        thread::Builder::new().name("offload-launch".to_owned()).spawn(move || {
            let _alive: Sender<Infallible> = alive;
            launch_loop.run(&inbox);
        })?;
        Ok(LaunchThread { requests: Some(requests), state, ended, users: BTreeSet::new() })
    }

    /// For how long a start has been hanging here that was given up. None if no start hangs.
    pub(super) fn hanging_for(&self) -> Option<Duration> {
        let state = locked(&self.state);
        state.current.as_ref().filter(|current| current.hangs()).map(|current| current.since.elapsed())
    }

    /// Passes a request to the thread. Returns false if the thread has ended.
    pub(super) fn request(&mut self, request: LaunchRequest) -> bool {
        self.users.insert(request.key);
        self.requests.as_ref().is_some_and(|requests| requests.send(request).is_ok())
    }

    /// Forgets a key. Returns true if nothing needs this thread any more.
    pub(super) fn forget(&mut self, key: u64) -> bool {
        self.users.remove(&key);
        locked(&self.state).started.remove(&key);
        self.users.is_empty()
    }

    /// Kills the process of a start that hangs, if there is one. If it can be killed where it hangs, the thread
    /// becomes free again.
    pub(super) fn kill_hanging_launch(&self) {
        // The thread needs this lock before it begins the next start.
        let state = locked(&self.state);
        if let (Some(thread), Some(_)) =
            (state.thread, state.current.as_ref().filter(|current| current.hangs()))
        {
            let spared = state.started.values().copied().collect();
            kill_children_of_thread(thread, &spared);
        }
    }

    #[cfg(test)]
    pub(super) fn is_launching(&self) -> bool {
        locked(&self.state).current.is_some()
    }

    /// Closes the queue of requests.
    pub(super) fn close(&mut self) {
        self.requests = None;
    }

    /// Waits until all requests are done. A start that hangs is not waited for; its process is killed.
    pub(super) fn wait_until(&self, deadline: Instant) {
        let patience = match self.hanging_for() {
            Some(_) => Duration::ZERO,
            None => deadline.saturating_duration_since(Instant::now()),
        };
        let _ = self.ended.recv_timeout(patience);
        self.kill_hanging_launch();
    }
}

/// What runs on the thread.
struct LaunchLoop {
    events: EventSender,
    state: Arc<Mutex<LaunchThreadState>>,
}

impl LaunchLoop {
    /// Carries out requests until the queue is closed.
    fn run(self, inbox: &Receiver<LaunchRequest>) {
        // If the kernel refuses the higher niceness, starts disturb the event loop a little more.
        let _ = raise_niceness();
        let thread = nix::unistd::gettid().as_raw().unsigned_abs();
        add_launch_thread(thread);
        locked(&self.state).thread = Some(thread);
        for request in inbox {
            let process = self.launch(&request).map(Box::new);
            self.events.send(LauncherEvent::Launched { key: request.key, process });
        }
        remove_launch_thread(thread);
    }

    fn launch(&self, request: &LaunchRequest) -> Result<Process, SpawnError> {
        let LaunchRequest { key, program, is_wanted, .. } = request;
        let is_unwanted = || !is_wanted.load(Ordering::Relaxed);
        if is_unwanted() {
            return Err(failed(program, "its turn did not come in time"));
        }
        let current = CurrentLaunch { since: Instant::now(), is_wanted: Arc::clone(is_wanted) };
        locked(&self.state).current = Some(current);
        let process = spawn(request);
        let mut state = locked(&self.state);
        state.current = None;
        state.started.extend(process.as_ref().ok().map(|process| (*key, process.pid())));
        drop(state);
        match process {
            Ok(_) if is_unwanted() => Err(failed(program, "it took too long")),
            process => process,
        }
    }
}

fn spawn(request: &LaunchRequest) -> Result<Process, SpawnError> {
    // A panic must not end this thread, because all its workers would end with it.
    catch_unwind(AssertUnwindSafe(|| Process::spawn(&request.program, request.payload_max)))
        .unwrap_or_else(|_| Err(failed(&request.program, "a panic, which is a mistake of this program")))
}

/// The error of a start that may be tried again.
pub(super) fn failed(program: &Program, why: &str) -> SpawnError {
    SpawnError { fatal: false, message: format!("cannot start `{}`: {why}", program.name()) }
}

/// Raises the niceness of the calling thread. On Linux each thread has its own, which processes that the thread starts
/// inherit (setpriority(2)).
pub(super) fn raise_niceness() -> rustix::io::Result<()> {
    let niceness = getpriority_process(None)?;
    setpriority_process(None, (niceness + NICENESS_ADDED).min(NICENESS_HIGHEST))
}
