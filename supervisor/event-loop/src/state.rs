//! Everything a loop owns, shared by its [`Context`](super::Context) and its handles on one thread.
//!
//! Each part is borrowed for a single operation only, never while a callback or a future runs or is dropped, so
//! no borrow can ever meet another one.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

use super::blocks::Blocks;
use super::callback::{Callback, Microtask, Queue, Site};
use super::calls::CaughtPanic;
use super::clock::{Clock, Nanos};
use super::config::Time;
use super::error::LoopError;
use super::handles::{Handles, HookPhase};
use super::immediates::Immediates;
use super::limits::CLEARING_ROUNDS;
use super::metrics::Metrics;
use super::on_gone::GoneCallbacks;
use super::poller::{Interest, Poller};
use super::pulse::Pulse;
use super::remote::{Post, Remote};
use super::requests::Requests;
use super::slab::Slab;
use super::tasks::{Leftovers, LocalLoops, Tasks};
use super::timers::Timers;

/// The token of the eventfd by which other threads wake the loop. No handle has it: it would be the last slot in
/// its last generation.
pub(super) const WAKE_TOKEN: u64 = u64::MAX;

pub(super) struct Shared {
    pub(super) clock: Clock,
    /// The time as the loop has read it last for everybody.
    pub(super) loop_time: Cell<Nanos>,
    pub(super) ticks: Queue<Callback>,
    pub(super) microtasks: Queue<Microtask>,
    pub(super) pending: Queue<Callback>,
    pub(super) closing: Queue<Callback>,
    /// Posts of other threads that have arrived on this one.
    pub(super) posts: RefCell<Blocks<Post>>,
    pub(super) immediates: RefCell<Immediates>,
    pub(super) timers: RefCell<Timers>,
    pub(super) handles: RefCell<Handles>,
    pub(super) tasks: RefCell<Tasks>,
    pub(super) leftovers: Leftovers,
    pub(super) requests: RefCell<Requests>,
    pub(super) metrics: RefCell<Metrics>,
    /// How long the slowest callback took.
    pub(super) slowest: Cell<Nanos>,
    /// How much of the callback that runs now is [attributed](super::LoopHandle::attribute) to others.
    pub(super) attributed: Cell<Nanos>,
    /// For how long each of those who may say so wants the loop to poll before it sleeps.
    pub(super) lingerers: RefCell<Slab<Nanos>>,
    /// The longest of these.
    pub(super) linger: Cell<Nanos>,
    /// Where each hold was made.
    pub(super) holds: RefCell<Slab<Site>>,
    pub(super) on_gone: GoneCallbacks,
    pub(super) stopping: Cell<bool>,
    pub(super) is_running: Cell<bool>,
    /// See [`LoopHandle::polls`](super::LoopHandle::polls).
    pub(super) polls: Cell<u64>,
    /// The loop was dropped. What is registered from here on is dropped at once.
    pub(super) is_gone: Cell<bool>,
    is_clearing: Cell<bool>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) poller: Poller,
    pub(super) remote: Remote,
}

impl Shared {
    pub(super) fn new(time: Time) -> Result<Rc<Shared>, LoopError> {
        let (poller, remote) = (Poller::new()?, Remote::new(LocalLoops::next_number())?);
        poller.add(remote.wake_descriptor(), WAKE_TOKEN, Interest::READ)?;
        let clock = match time {
            Time::Real => Clock::monotonic(),
            Time::Virtual => Clock::virtual_time(),
        };
        let shared = Rc::new(Shared {
            loop_time: Cell::new(clock.read()),
            clock,
            ticks: Queue::new(),
            microtasks: Queue::new(),
            pending: Queue::new(),
            closing: Queue::new(),
            posts: RefCell::new(Blocks::new()),
            immediates: RefCell::new(Immediates::new()),
            timers: RefCell::new(Timers::new(time == Time::Virtual)),
            handles: RefCell::new(Handles::new()),
            tasks: RefCell::new(Tasks::new()),
            leftovers: Leftovers::new(),
            requests: RefCell::new(Requests::new()),
            metrics: RefCell::new(Metrics::new()),
            slowest: Cell::new(0),
            attributed: Cell::new(0),
            lingerers: RefCell::new(Slab::new()),
            linger: Cell::new(0),
            holds: RefCell::new(Slab::new()),
            on_gone: GoneCallbacks::default(),
            stopping: Cell::new(false),
            is_running: Cell::new(false),
            polls: Cell::new(0),
            is_gone: Cell::new(false),
            is_clearing: Cell::new(false),
            pulse: Arc::new(Pulse::new()),
            poller,
            remote,
        });
        LocalLoops::register(shared.remote.loop_number(), &shared);
        Ok(shared)
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.is_gone.get() && self.has_anything_alive()
    }

    fn has_anything_alive(&self) -> bool {
        self.handles.borrow().alive() > 0
            || self.timers.borrow().referenced() > 0
            || self.holds.borrow().len() > 0
            || self.requests.borrow().len() > 0
            || self.has_callbacks_waiting()
    }

    /// Something can run without any event.
    pub(super) fn has_callbacks_waiting(&self) -> bool {
        self.immediates.borrow().referenced() > 0
            || !self.pending.is_empty()
            || !self.closing.is_empty()
            || self.has_microtasks()
            || !self.posts.borrow().is_empty()
            || self.remote.has_posts()
    }

    pub(super) fn has_microtasks(&self) -> bool {
        !self.ticks.is_empty() || !self.microtasks.is_empty()
    }

    pub(super) fn stop_is_done(&self) {
        self.stopping.set(false);
        self.remote.forget_stop();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get() || self.remote.is_stopping()
    }

    /// How long the poll phase may wait if it starts at `now`; `None` is for ever.
    pub(super) fn time_to_sleep(&self, now: Nanos) -> Option<Nanos> {
        let must_not_wait = self.is_stopping()
            || self.has_callbacks_waiting()
            || self.handles.borrow().has_hooks(HookPhase::Idle)
            || !self.is_alive();
        if must_not_wait {
            return Some(0);
        }
        self.timers.borrow().next_wake().map(|due| due.saturating_sub(now))
    }

    /// Fetches what other threads have posted, whether they have woken the loop or not: they may have been interrupted before
    /// that, and perhaps need the CPU that this thread runs on to continue.
    pub(super) fn take_posts(&self) {
        if self.remote.has_posts() {
            self.remote.take(&mut self.posts.borrow_mut());
        }
    }

    pub(super) fn linger_as_told(&self) {
        self.linger.set(self.lingerers.borrow().iter().copied().max().unwrap_or(0));
    }

    /// The kernel may have events. Without a watched descriptor, only other threads can have caused one.
    pub(super) fn may_have_events(&self) -> bool {
        let only_wake = self.poller.members() == 1;
        !only_wake || self.remote.may_be_rung()
    }

    pub(super) fn timer_is_due(&self, now: Nanos) -> bool {
        self.timers.borrow().next_wake().is_some_and(|due| due <= now)
    }

    /// The loop is dropped, and with it everything that waits. Callbacks may own handles of this loop, and those would
    /// own it for ever.
    pub(super) fn clear(&self) {
        self.is_gone.set(true);
        // In a forked child it stays registered, so that no future that is woken meanwhile or later takes the way of other threads,
        // which has a lock.
        if self.remote.is_of_this_process() {
            LocalLoops::unregister(self.remote.loop_number());
        }
        let mut panic = drop_each(self.remote.close().into_iter().flatten());
        // What they register is dropped with everything else, not from within.
        self.is_clearing.set(true);
        panic = panic.or(self.on_gone.call_all());
        self.is_clearing.set(false);
        let_out(panic.or(self.drop_everything()));
    }

    /// # Errors
    /// [`LoopError::Gone`]: nothing may be registered any more that somebody would wait for.
    pub(super) fn check_not_gone(&self) -> Result<(), LoopError> {
        if self.is_gone.get() { Err(LoopError::Gone) } else { Ok(()) }
    }

    /// To be called after something was registered: a loop that is gone would never run it.
    #[inline]
    pub(super) fn drop_if_gone(&self) {
        if self.is_gone.get() {
            let_out(self.drop_everything());
        }
    }

    /// Returns the first panic of what is dropped, when all is dropped.
    fn drop_everything(&self) -> Option<CaughtPanic> {
        // What is dropped may register something again. It is dropped in the next round, not from within.
        if self.is_clearing.replace(true) {
            return None;
        }
        let mut panic = None;
        for _ in 0..CLEARING_ROUNDS {
            panic = panic.or(drop_each(self.ticks.take_all())).or(drop_each(self.microtasks.take_all()));
            panic = panic.or(drop_each(self.pending.take_all())).or(drop_each(self.closing.take_all()));
            // Each taken under its own short borrow, and dropped after it.
            let immediates = self.immediates.borrow_mut().take_all();
            let timers = self.timers.borrow_mut().take_all();
            let handles = self.handles.borrow_mut().take_all();
            let tasks = self.tasks.borrow_mut().take_all();
            let posts = self.posts.borrow_mut().take_all();
            let requests = self.requests.borrow_mut().take_all();
            panic = panic.or(drop_each(posts.into_iter().flatten())).or(drop_each(immediates));
            panic = panic.or(drop_each(timers)).or(drop_each(handles));
            panic = panic.or(drop_each(tasks)).or(drop_each(requests));
            if !self.has_callbacks_waiting() && !self.has_anything_alive() && self.tasks.borrow().len() == 0 {
                break;
            }
        }
        self.is_clearing.set(false);
        panic
    }
}

/// Drops them one after the other, whichever of them panics. Returns the first panic.
fn drop_each<T>(things: impl IntoIterator<Item = T>) -> Option<CaughtPanic> {
    let panics = things.into_iter().filter_map(|it| catch_unwind(AssertUnwindSafe(|| drop(it))).err());
    panics.reduce(|first, _| first)
}

/// A thread that panics already would abort.
fn let_out(panic: Option<CaughtPanic>) {
    if let Some(panic) = panic
        && !std::thread::panicking()
    {
        resume_unwind(panic);
    }
}
