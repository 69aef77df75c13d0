//! Callbacks as the queues hold them: what to run, and where it was registered.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;

use super::Context;
use super::handles::HandleId;
use super::immediates::ImmediateId;
use super::slab::SlabKey;
use super::tasks::Tasks;
use super::timers::TimerId;

/// The source line that registered a callback.
pub(super) type Site = &'static Location<'static>;

/// A callback that runs again and again.
pub(super) type Repeated = Box<dyn FnMut(&mut Context)>;

/// What the closing phase calls after something was closed.
pub(crate) type OnClosed = Box<dyn FnOnce(&mut Context)>;

/// A callback that runs once.
pub(super) struct Callback {
    pub(super) site: Site,
    pub(super) run: Box<dyn FnOnce(&mut Context)>,
}

impl Callback {
    pub(super) fn new(site: Site, run: impl FnOnce(&mut Context) + 'static) -> Callback {
        Callback { site, run: Box::new(run) }
    }
}

/// An entry of the microtask queue, which is the ready queue of the futures on the loop.
pub(super) enum Microtask {
    Run(Callback),
    /// Poll the future in this slot.
    Poll(SlabKey),
}

impl Microtask {
    /// Where it comes from; `None` for the wake-up of a future that has ended.
    pub(super) fn site(&self, tasks: &Tasks) -> Option<Site> {
        match self {
            Microtask::Run(callback) => Some(callback.site),
            Microtask::Poll(key) => tasks.site(*key),
        }
    }
}

/// In which part of an iteration a callback ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Outside of all others: the code that ran before the loop did.
    Entry,
    /// Callbacks of timers that are due.
    Timers,
    /// Results that were put off, such as asynchronous errors.
    Pending,
    /// Once an iteration, even when nothing happens.
    Idle,
    /// Right before the poll phase.
    Prepare,
    /// Ready descriptors, signals, and what other threads posted.
    Poll,
    /// Immediates.
    Check,
    /// What follows a closed handle.
    Closing,
    /// Ticks, microtasks and futures, after any callback of the other phases.
    Microtasks,
}

impl Phase {
    /// All of them, in the order of their declaration.
    pub const ALL: [Phase; 9] = [
        Phase::Entry,
        Phase::Timers,
        Phase::Pending,
        Phase::Idle,
        Phase::Prepare,
        Phase::Poll,
        Phase::Check,
        Phase::Closing,
        Phase::Microtasks,
    ];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Entry => "entry",
            Phase::Timers => "timers",
            Phase::Pending => "pending",
            Phase::Idle => "idle",
            Phase::Prepare => "prepare",
            Phase::Poll => "poll",
            Phase::Check => "check",
            Phase::Closing => "closing",
            Phase::Microtasks => "microtasks",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} phase", self.name())
    }
}

/// The name of what a callback belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallbackId {
    /// A timeout, which is over when its callback runs, or an interval.
    Timer(TimerId),
    /// An immediate, which is over when its callback runs.
    Immediate(ImmediateId),
    /// A hook, a watcher or a signal handler.
    Handle(HandleId),
}

/// The callback that runs now. See [`Context::current`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Current {
    /// The phase in which it runs.
    pub phase: Phase,
    /// Where it was registered.
    pub site: Site,
    /// What it belongs to. Ticks, microtasks, posts, answers, and callbacks that were put off or follow a closed handle
    /// have no name; the callbacks of sources are given their source.
    pub id: Option<CallbackId>,
}

impl Current {
    pub(super) fn nameless(phase: Phase, site: Site) -> Current {
        Current { phase, site, id: None }
    }

    pub(super) fn of(phase: Phase, site: Site, id: CallbackId) -> Current {
        Current { phase, site, id: Some(id) }
    }
}

/// A panic that a callback let out.
#[derive(Debug)]
pub struct CallbackPanic {
    /// Where the callback was registered.
    pub site: Site,
    /// The phase in which it ran.
    pub phase: Phase,
    /// What `panic!` was given.
    pub payload: Box<dyn Any + Send>,
}

impl CallbackPanic {
    /// The message of the panic, if it had one.
    pub fn message(&self) -> &str {
        message_of(&*self.payload)
    }
}

/// What a panic said, if it said anything.
pub(crate) fn message_of(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(message), _) => message,
        (None, Some(message)) => message,
        (None, None) => "a panic without a message",
    }
}

/// A first-in first-out queue that several owners on one thread push to. It lends nothing out, so no borrow can
/// be held while a callback runs.
pub(super) struct Queue<T>(RefCell<VecDeque<T>>);

impl<T> Queue<T> {
    pub(super) fn new() -> Queue<T> {
        Queue(RefCell::new(VecDeque::new()))
    }

    #[inline]
    pub(super) fn push(&self, value: T) {
        self.0.borrow_mut().push_back(value);
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<T> {
        self.0.borrow_mut().pop_front()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// `see` must not come back to the queue.
    pub(super) fn for_each(&self, see: impl FnMut(&T)) {
        self.0.borrow().iter().for_each(see);
    }

    pub(super) fn take_all(&self) -> VecDeque<T> {
        self.0.take()
    }
}
