//! The thread that kills what must end: stray processes, and processes that nobody needs. It starts nothing. It waits
//! for the end of what it kills, which the event loop must not.

use super::all_launchers;
use super::children;
use super::launch_thread;
use super::launcher::{EventSender, LauncherEvent};
use super::marks::{Mark, Marks};
use super::process::Process;
use super::sweep::{SWEEP_PAUSE, SweepResult};
use crate::limits::LAST_SWEEP_TIMEOUT;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum CleanupRequest {
    /// A worker with this key is being started: processes with its mark are protected from sweeps.
    Protect {
        /// The key of the worker.
        key: u64,
    },
    /// The worker with this key is gone, or was sent SIGKILL: processes with its mark are left-overs from now on.
    Unprotect {
        /// The key of the worker.
        key: u64,
    },
    /// Kill this process, unless it has ended, and wait for its end.
    KillAndReap(Box<Process>),
    /// Kill and collect left-overs. The result is sent as [`LauncherEvent::Swept`].
    Sweep,
    /// Kill and collect the stray processes that no other launcher of this process cares for, for at most half a second.
    SweepAll,
}

/// The owner's end of the thread.
#[derive(Debug)]
pub(super) struct CleanupThread {
    /// This queue has no bound of its own: the owner has at most four requests under way for each worker, whose
    /// number is bounded, and one sweep.
    requests: Option<Sender<CleanupRequest>>,
    ended: Receiver<Infallible>,
}

impl CleanupThread {
    /// Starts the thread. Without `marks` no left-overs can be recognized.
    pub(super) fn start(marks: Option<Marks>, events: EventSender) -> io::Result<CleanupThread> {
        let (requests, inbox) = channel();
        let (alive, ended) = channel();
        let cleanup = CleanupLoop { marks, protected: BTreeSet::new(), events };
        thread::Builder::new().name("offload-cleanup".to_owned()).spawn(move || {
            let _alive: Sender<Infallible> = alive;
            cleanup.run(&inbox);
        })?;
        Ok(CleanupThread { requests: Some(requests), ended })
    }

    /// Passes a request to the thread.
    pub(super) fn request(&self, request: CleanupRequest) {
        // The thread ends only when nobody can make requests any more, so sending succeeds.
        let _ = self.requests.as_ref().map(|requests| requests.send(request));
    }

    /// Closes the queue of requests, and waits until all of them are done or `limit` is over.
    pub(super) fn finish(&mut self, limit: Duration) {
        self.requests = None;
        let _ = self.ended.recv_timeout(limit);
    }
}

/// What runs on the thread, and its state.
struct CleanupLoop {
    marks: Option<Marks>,
    /// Marks of the workers that were requested and have not been forgotten.
    protected: BTreeSet<Mark>,
    events: EventSender,
}

impl CleanupLoop {
    fn run(mut self, inbox: &Receiver<CleanupRequest>) {
        // If the kernel refuses the higher niceness, sweeps disturb the event loop a little more.
        let _ = launch_thread::raise_niceness();
        for request in inbox {
            match request {
                CleanupRequest::Protect { key } => self.protected.extend(self.mark_of_worker(key)),
                CleanupRequest::Unprotect { key } => {
                    self.mark_of_worker(key).map(|mark| self.protected.remove(&mark));
                }
                CleanupRequest::KillAndReap(process) => drop(process),
                CleanupRequest::Sweep => {
                    let swept = self.sweep();
                    self.events.send(LauncherEvent::Swept(swept));
                }
                CleanupRequest::SweepAll => self.sweep_all(),
            }
            children::collect_left();
        }
    }

    fn mark_of_worker(&self, key: u64) -> Option<Mark> {
        self.marks.map(|marks| marks.of_worker(key))
    }

    fn sweep(&self) -> SweepResult {
        all_launchers::sweep_left_behind(&|mark| self.is_own(mark) && !self.protected.contains(&mark))
    }

    fn sweep_all(&self) {
        let deadline = Instant::now() + LAST_SWEEP_TIMEOUT;
        while all_launchers::sweep_at_the_end(&|mark| self.is_own(mark)).more && Instant::now() < deadline {
            thread::sleep(SWEEP_PAUSE);
        }
    }

    fn is_own(&self, mark: Mark) -> bool {
        self.marks.is_some_and(|marks| marks.include(mark))
    }
}
