//! Why a loop does not end: everything that keeps it alive, with the source line that registered it.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;

use super::LoopHandle;
use super::callback::{Phase, Site};

/// What keeps a loop alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AliveKind {
    /// A referenced timeout or interval.
    Timer,
    /// A referenced idle, prepare or check hook.
    Hook,
    /// A referenced watcher of a descriptor.
    Watcher,
    /// A referenced handler of signals.
    SignalHandler,
    /// A future that waits for a descriptor.
    WaitingFuture,
    /// A stream that is read, connects or has something to write.
    Stream,
    /// A listener that accepts connections.
    Listener,
    /// A UDP socket that receives, or has something to send.
    UdpSocket,
    /// A child process that runs.
    ChildProcess,
    /// A request that was not answered yet.
    Request,
    /// A [`Hold`](super::Hold).
    Hold,
    /// A callback whose turn comes in this phase.
    Callback(Phase),
}

impl fmt::Display for AliveKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AliveKind::Timer => write!(formatter, "timer"),
            AliveKind::Hook => write!(formatter, "hook"),
            AliveKind::Watcher => write!(formatter, "watcher"),
            AliveKind::SignalHandler => write!(formatter, "signal handler"),
            AliveKind::WaitingFuture => write!(formatter, "future waiting for a descriptor"),
            AliveKind::Stream => write!(formatter, "stream"),
            AliveKind::Listener => write!(formatter, "listener"),
            AliveKind::UdpSocket => write!(formatter, "UDP socket"),
            AliveKind::ChildProcess => write!(formatter, "child process"),
            AliveKind::Request => write!(formatter, "unanswered request"),
            AliveKind::Hold => write!(formatter, "hold"),
            AliveKind::Callback(phase) => write!(formatter, "callback waiting for its turn ({phase})"),
        }
    }
}

/// Things of one kind from one place that keep a loop alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    /// What they are.
    pub what: AliveKind,
    /// Where they were registered.
    pub site: &'static Location<'static>,
    /// How many there are.
    pub count: usize,
}

impl fmt::Display for Alive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Alive { what, site, count } = self;
        write!(formatter, "{count} x {what}, from {site}")
    }
}

impl LoopHandle {
    /// Everything that keeps the loop alive, by kind and place. What other threads have posted and the loop has not
    /// received yet is not in it.
    pub fn why_alive(&self) -> Vec<Alive> {
        let mut counts: BTreeMap<(AliveKind, Site), usize> = BTreeMap::new();
        self.for_each_alive(&mut |what, site| *counts.entry((what, site)).or_default() += 1);
        counts.into_iter().map(|((what, site), count)| Alive { what, site, count }).collect()
    }

    fn for_each_alive(&self, see: &mut dyn FnMut(AliveKind, Site)) {
        let shared = &self.shared;
        shared.timers.borrow().for_each_referenced(|site| see(AliveKind::Timer, site));
        shared.handles.borrow().for_each_alive(&mut *see);
        shared.requests.borrow().iter().for_each(|request| see(AliveKind::Request, request.site));
        shared.holds.borrow().iter().for_each(|&site| see(AliveKind::Hold, site));
        let mut see_waiting = |phase, site| see(AliveKind::Callback(phase), site);
        shared.immediates.borrow().for_each_referenced(|callback| see_waiting(Phase::Check, callback.site));
        shared.pending.for_each(|callback| see_waiting(Phase::Pending, callback.site));
        shared.closing.for_each(|callback| see_waiting(Phase::Closing, callback.site));
        shared.ticks.for_each(|callback| see_waiting(Phase::Microtasks, callback.site));
        let tasks = shared.tasks.borrow();
        shared.microtasks.for_each(|microtask| {
            if let Some(site) = microtask.site(&tasks) {
                see_waiting(Phase::Microtasks, site);
            }
        });
        shared.posts.borrow().iter().for_each(|post| {
            if let Some(site) = post.site(&tasks) {
                see_waiting(Phase::Poll, site);
            }
        });
    }
}
