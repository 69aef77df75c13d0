//! Starts worker processes and kills stray processes on threads of their own, because the event loop must not wait for
//! either.
//!
//! ```text
//!   event loop                a launch thread for each version of a program
//!     |---- launch -------->    vfork, exec: waits until the program is loaded
//!     |---- give up ------->    the start is not wanted any more: not made, or its process is killed
//!     |                       the cleanup thread
//!     |---- condemn ------->    the worker was killed: processes with its mark are now left-overs
//!     |---- forget -------->    the worker is reaped: so they are, if it was not killed
//!     |---- sweep --------->    left-overs are killed and collected
//!     |---- kill and reap ->    a process is killed and collected
//!     |
//!     |<--- bell -----------    an event is available: a process, or the result of a sweep
//! ```
//!
//! A launch thread may hang when its program is on a file system that does not answer. That delays its own program and
//! no other. All of these threads have a higher niceness than the event loop's thread, and so have the workers from
//! their first moment on: loading a program does not displace the event loop from its CPU core.

use super::all_launchers::CountedLauncher;
use super::cleanup_thread::{CleanupRequest, CleanupThread};
use super::launch_thread::{self, LaunchRequest, LaunchThread};
use super::marks::Marks;
use super::orphans::GENERATION_VARIABLE;
use super::process::{Process, SpawnError};
use super::program::Program;
use super::sweep::SweepResult;
use crate::limits::LAST_ORDERS_TIMEOUT;
use crate::origin::Origin;
use offload_protocol::limits::MARK_VARIABLE;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Names one version of a program: the index of the program, and the version. Each has a launch thread.
pub(crate) type ProgramVersion = (usize, u64);

/// Starts and ends worker processes on other threads; see the module's documentation. No method waits. Dropping the
/// launcher waits for at most two seconds until its requests are done, except launches that were given up or hang.
#[must_use = "dropping it ends the threads that start workers"]
#[derive(Debug)]
pub struct Launcher {
    origin: Origin,
    generation: Option<Generation>,
    launch_threads: BTreeMap<ProgramVersion, LaunchThread>,
    /// The program version of each worker that was requested and has not been forgotten.
    worker_versions: BTreeMap<u64, ProgramVersion>,
    event_sender: EventSender,
    events: Receiver<LauncherEvent>,
    cleanup_thread: CleanupThread,
    sweeps_at_the_end: bool,
    /// None once this launcher ends.
    counted: Option<CountedLauncher>,
}

/// How the workers of this launcher and all their descendants are recognized.
#[derive(Debug)]
struct Generation {
    name: String,
    marks: Marks,
}

/// The result of a request.
#[derive(Debug)]
pub enum LauncherEvent {
    /// The result of [`Launcher::launch`].
    Launched {
        /// The key of the request.
        key: u64,
        /// The process, or why there is none.
        process: Result<Box<Process>, SpawnError>,
    },
    /// The result of [`Launcher::sweep`].
    Swept(SweepResult),
}

/// Shows that a launch is wanted, for as long as this value exists. A launch that is no longer wanted is not made, or
/// its process is killed by the launcher. It has a result in either case, but a launch that hangs may never have one.
#[derive(Debug)]
pub struct LaunchGuard(Arc<AtomicBool>);

impl Drop for LaunchGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Where threads put events. Sending one never waits; the queue is bounded because the owner has a bounded number of
/// requests under way.
#[derive(Clone, Debug)]
pub(super) struct EventSender {
    events: Sender<LauncherEvent>,
    bell: Arc<OwnedFd>,
}

impl EventSender {
    pub(super) fn send(&self, event: LauncherEvent) {
        // If the owner is gone, the process is dropped here, which kills it.
        let _ = self.events.send(event);
        // The write can fail only if the counter is full of rings that nobody has heard yet.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

impl Launcher {
    /// Starts the cleanup thread. Without the name of a `generation`, left-overs of workers cannot be recognized and
    /// are killed only by [`Launcher::sweep_at_the_end`].
    ///
    /// # Errors
    /// If no thread or descriptor can be created.
    pub fn start(generation: Option<String>) -> io::Result<Launcher> {
        let (sender, events) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let event_sender = EventSender { events: sender, bell };
        let counted = Some(CountedLauncher::new());
        let generation = generation.and_then(|name| Some(Generation { marks: Marks::of(&name)?, name }));
        let marks = generation.as_ref().map(|generation| generation.marks);
        let cleanup_thread = CleanupThread::start(marks, event_sender.clone())?;
        Ok(Launcher {
            origin: Origin::here(),
            generation,
            launch_threads: BTreeMap::new(),
            worker_versions: BTreeMap::new(),
            event_sender,
            events,
            cleanup_thread,
            sweeps_at_the_end: false,
            counted,
        })
    }

    /// A descriptor that is readable when there are events.
    pub fn bell(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.event_sender.bell)
    }

    /// Takes the events that are available, and silences the bell.
    pub fn take_events(&self) -> Vec<LauncherEvent> {
        // The bell is silenced first, so that an event that comes later rings it again. If it has not rung, the read
        // fails, which is fine.
        let _ = rustix::io::read(&self.event_sender.bell, &mut [0; 8]);
        self.events.try_iter().collect()
    }

    /// Starts a process as [`Process::spawn`] does, after earlier requests for the same program version. No sweep
    /// kills the process or its descendants until the owner calls [`Launcher::condemn`] or [`Launcher::forget`] with the same
    /// key. A key names
    /// one process at a time. `forget` must be called also if no process was started.
    ///
    /// # Errors
    /// If an earlier start of this program version hangs, or no thread can be created.
    pub fn launch(
        &mut self,
        key: u64,
        version: ProgramVersion,
        program: Program,
        payload_max: usize,
    ) -> Result<LaunchGuard, SpawnError> {
        let program = match &self.generation {
            Some(Generation { name, marks }) => program
                .with_variable(GENERATION_VARIABLE, name)
                .with_variable(MARK_VARIABLE, &marks.of_worker(key).number().to_string()),
            None => program,
        };
        let launch_thread = match self.launch_threads.entry(version) {
            Entry::Occupied(launch_thread) => launch_thread.into_mut(),
            Entry::Vacant(vacant) => {
                let started = LaunchThread::start(self.event_sender.clone());
                let no_thread =
                    |error| launch_thread::failed(&program, &format!("there is no thread for it: {error}"));
                vacant.insert(started.map_err(no_thread)?)
            }
        };
        if let Some(hanging) = launch_thread.hanging_for() {
            // The hanging start may have been given up before it counted as hanging, so it may not have been killed
            // yet.
            launch_thread.kill_hanging_launch();
            return Err(launch_thread::failed(&program, &why_refused(hanging)));
        }
        self.cleanup_thread.request(CleanupRequest::Protect { key });
        let is_wanted = Arc::new(AtomicBool::new(true));
        let guard = LaunchGuard(Arc::clone(&is_wanted));
        self.worker_versions.insert(key, version);
        let request = LaunchRequest { key, program: program.clone(), payload_max, is_wanted };
        match launch_thread.request(request) {
            true => Ok(guard),
            false => Err(launch_thread::failed(&program, "the thread that starts it has ended")),
        }
    }

    /// Gives up a launch. If it hangs, its process is killed where that is possible.
    pub fn give_up(&self, key: u64, guard: LaunchGuard) {
        drop(guard);
        let version = self.worker_versions.get(&key);
        if let Some(launch_thread) = version.and_then(|version| self.launch_threads.get(version)) {
            launch_thread.kill_hanging_launch();
        }
    }

    /// The process of this key was sent SIGKILL: what it has started is killed by sweeps from now on. One of these processes
    /// may trace it, which can keep it from ending.
    pub fn condemn(&self, key: u64) {
        self.cleanup_thread.request(CleanupRequest::Unprotect { key });
    }

    /// The process of this key was reaped, or never came. A launch thread without workers ends.
    pub fn forget(&mut self, key: u64) {
        self.cleanup_thread.request(CleanupRequest::Unprotect { key });
        let Some(version) = self.worker_versions.remove(&key) else { return };
        if self.launch_threads.get_mut(&version).is_some_and(|launch_thread| launch_thread.forget(key)) {
            self.launch_threads.remove(&version);
        }
    }

    /// Kills and collects what forgotten workers have left behind, as
    /// [`Sweeper::sweep`](super::sweep::Sweeper::sweep) does.
    pub fn sweep(&self) {
        self.cleanup_thread.request(CleanupRequest::Sweep);
    }

    /// Kills a process that nobody needs, and waits for its end on the cleanup thread.
    pub fn kill_and_reap(&self, process: Box<Process>) {
        self.cleanup_thread.request(CleanupRequest::KillAndReap(process));
    }

    /// Whether this process is not the one that has the threads of this launcher, but was forked from it.
    pub fn is_of_parent(&self) -> bool {
        !self.origin.is_here()
    }

    /// From now on this process seems to be one that was forked, or the one that has started the threads.
    #[cfg(test)]
    pub(crate) fn seem_forked(&mut self, is_forked: bool) {
        self.origin = if is_forked { Origin::elsewhere() } else { Origin::here() };
    }

    /// Has its stray processes killed when the launcher is dropped, for at most half a second. If it is the last launcher of this
    /// process, these are all that there are.
    pub fn sweep_at_the_end(&mut self) {
        self.sweeps_at_the_end = true;
    }
}

/// Explains why a launch is refused. The text is the end of a sentence about a program.
fn why_refused(hanging: Duration) -> String {
    format!("an earlier start has been hanging for {} s; does the file system answer?", hanging.as_secs())
}

impl Drop for Launcher {
    fn drop(&mut self) {
        if self.is_of_parent() {
            return;
        }
        let deadline = Instant::now() + LAST_ORDERS_TIMEOUT;
        self.launch_threads.values_mut().for_each(LaunchThread::close);
        self.launch_threads.values().for_each(|launch_thread| launch_thread.wait_until(deadline));
        self.counted = None;
        if self.sweeps_at_the_end {
            self.cleanup_thread.request(CleanupRequest::SweepAll);
        }
        self.cleanup_thread.finish(LAST_ORDERS_TIMEOUT);
    }
}

#[cfg(test)]
mod tests;
