//! A single-threaded event loop for Linux, with the phases, timers, ticks and immediates of Node and libuv, callbacks and
//! futures, sockets, pipes, child processes and signals. Blocking calls run on a [pool of threads](io_pool).
//!
//! The README of this crate has a complete first program, a comparison with libuv, Node and tokio, and a list of what the
//! crate does not do.
//!
//! One iteration, as [`Context::run_mode`] goes through it:
//!
//! ```text
//!      +--> pending     results that were put off, such as a refused connection
//!      |    idle        hooks
//!      |    prepare     hooks
//!      |    poll        ready descriptors, signals, posts of other threads; waits if there is nothing else to do
//!      |    pending     what the poll has put off
//!      |    check       hooks, then the immediates that were set before this phase
//!      |    closing     what follows closed handles
//!      +--- timers      the ones that are due; once also before the first iteration
//!
//!      after every single callback: all ticks, then all microtasks, until both queues are empty
//! ```
//!
//! The loop is alive, and [`Context::run`] goes on, while there is a referenced timer or active handle, a [`Hold`], a
//! [`Request`], or a callback that waits.
//!
//! All types stay on the thread of the loop, except [`Remote`], [`Notifier`] and [`Request`], which other threads may hold.
//! Callbacks get `&mut Context`. Structs and futures keep a [`LoopHandle`], which registers the same things.
//!
//! ```
//! use offload_event_loop::{EventLoop, WATCHDOG_THRESHOLD};
//! use std::time::Duration;
//!
//! let mut event_loop = EventLoop::new()?;
//! let _watchdog = event_loop.watchdog(WATCHDOG_THRESHOLD, |blocked| eprintln!("{blocked}"))?;
//! event_loop.set_timeout(Duration::from_millis(100), |cx| {
//!     cx.set_immediate(|_| println!("second"));
//!     cx.next_tick(|_| println!("first"));
//! });
//! event_loop.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | read | for |
//! |---|---|
//! | `lib.rs`, `phases.rs`, `calls.rs` | the loop, its phases, and how it calls callbacks |
//! | `limits.rs` | every bound of this crate |
//! | `handle.rs`, `pausing.rs`, `inspect.rs` | registering, pausing and listing timers and handles |
//! | `timers.rs`, `wheel.rs`, `immediates.rs`, `handles.rs` | the tables of timers, immediates and handles |
//! | `tasks.rs`, `futures.rs`, `one_shot.rs`, `readiness.rs` | futures |
//! | `remote.rs`, `mailbox.rs`, `wakeup.rs`, `requests.rs` | how other threads reach the loop |
//! | `metrics.rs`, `watchdog.rs`, `alive.rs` | how busy the loop is, which callback blocks it, why it does not end |
//! | `sources/` | streams, listeners, UDP sockets, child processes; begin with `sources/base.rs` |
//! | `io_pool/` | a pool of threads for blocking calls |

/// The programs in the README are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod alarm;
mod alive;
mod callback;
mod calls;
mod clock;
mod config;
mod error;
mod futures;
mod handle;
mod handles;
mod immediates;
mod inspect;
pub mod io_pool;
mod limits;
mod mailbox;
mod metrics;
mod one_shot;
mod partition;
mod pausing;
mod phases;
mod poller;
mod pulse;
mod readiness;
mod remote;
mod requests;
mod rest;
mod signals;
mod slab;
mod sources;
mod state;
mod sync;
mod sys;
mod tasks;
#[cfg(test)]
mod tests;
mod timers;
mod wakeup;
mod watchdog;
mod wheel;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::epoll;

pub use alive::{Alive, AliveKind};
pub use callback::{CallbackId, CallbackPanic, Current, Phase};
pub use config::{LoopConfig, OnStarvation, RunMode, Time};
pub use error::{LoopError, LoopGone};
pub use futures::{NextIteration, Sleep, YieldNow};
pub use handle::{Clearable, Hold, LoopHandle, Referable};
pub use handles::HandleId;
pub use immediates::ImmediateId;
pub use inspect::HandleInfo;
pub use limits::{SEND_QUEUE_BYTES_MAX, SEND_QUEUE_LEN_MAX};
pub use metrics::{Lag, Lateness, LoopMetrics, PhaseTime, SlowCallback, Starvation};
pub use partition::PARTITION_BUDGET;
pub use poller::{Interest, Readiness};
pub use readiness::Ready;
pub use remote::{Notifier, Remote};
pub use requests::{Request, RequestId};
pub use sources::{
    Address, BoundTcp, Child, Datagram, Descriptor, Incoming, Listener, MulticastGroup, SourceError, Stream,
    TcpOptions, UdpOptions, UdpSocket,
};
pub use tasks::{JoinError, JoinHandle};
pub use timers::{Catchup, TimerId};
pub use watchdog::{Blocked, WATCHDOG_THRESHOLD, Watchdog};

pub(crate) use callback::message_of as panic_message;

use clock::Nanos;
use limits::EVENTS_PER_CALL;
use metrics::PhaseTimes;
use state::Shared;

/// An event loop. It dereferences to [`Context`], so its owner can do whatever a callback can do.
///
/// Dropping it drops everything that was registered.
pub struct EventLoop {
    context: Context,
}

impl EventLoop {
    /// A loop with the default limits.
    ///
    /// # Errors
    /// [`LoopError::OutOfDescriptors`] or another refusal of the system: a loop needs two descriptors.
    pub fn new() -> Result<EventLoop, LoopError> {
        EventLoop::with(LoopConfig::default())
    }

    /// A loop with the given limits.
    ///
    /// # Errors
    /// As [`EventLoop::new`].
    pub fn with(config: LoopConfig) -> Result<EventLoop, LoopError> {
        let handle = LoopHandle { shared: Shared::new(config.time)? };
        Ok(EventLoop { context: Context::new(handle, config) })
    }

    /// A descriptor for watching this loop in another event loop. Call [`run_mode`](Context::run_mode) with
    /// [`RunMode::NoWait`] when it is readable, or when the [`backend_timeout`](EventLoop::backend_timeout) is over.
    pub fn backend_fd(&self) -> BorrowedFd<'_> {
        self.context.handle.shared.poller.as_fd()
    }

    /// How long the loop would wait for events if it ran now. `None`: until an event comes.
    ///
    /// It counts in nanoseconds, as `ppoll` and `epoll_pwait2` do. For `poll(2)` or `epoll_wait`, which wait in whole
    /// milliseconds, round it up: rounded down, the loop would spin through the last part of a millisecond before a timer is
    /// due.
    pub fn backend_timeout(&self) -> Option<Duration> {
        if !self.context.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let shared = &self.context.handle.shared;
        shared.time_to_sleep(shared.clock.read()).map(Duration::from_nanos)
    }
}

impl Deref for EventLoop {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl DerefMut for EventLoop {
    fn deref_mut(&mut self) -> &mut Context {
        &mut self.context
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.context.handle.shared.clear();
    }
}

/// The running loop, as its callbacks see it. It dereferences to [`LoopHandle`], which registers timers and handles.
pub struct Context {
    handle: LoopHandle,
    config: LoopConfig,
    /// The code outside of `run`.
    entry: Current,
    /// The callback that runs now.
    current: Current,
    /// The last reading of the clock: when the last callback ended, or the poll phase began.
    clock_reading: Nanos,
    /// When the last poll phase began to handle what it had waited for.
    busy_since: Nanos,
    /// The ticks are done, and now all microtasks have their turn.
    is_in_microtasks: bool,
    lateness: Nanos,
    /// How long the callbacks of each phase took in this iteration.
    phase_times: PhaseTimes,
    /// Events that were fetched from the kernel and not yet handled.
    ready: VecDeque<epoll::Event>,
    /// The kernel filled the whole array for events, so it may have more.
    kernel_has_more: bool,
    /// A post was handled last, so an event has its turn.
    is_turn_of_events: bool,
    panic_handler: Option<PanicHandler>,
    buffers: Buffers,
}

/// Memory that is used again and again.
struct Buffers {
    hooks: Vec<slab::SlabKey>,
    /// Empty between two polls. Its capacity is how many events one call to the kernel can bring.
    events: Vec<epoll::Event>,
    /// What was read last from any source.
    incoming: Vec<u8>,
}

type PanicHandler = Box<dyn FnMut(&mut Context, CallbackPanic)>;

impl Context {
    fn new(handle: LoopHandle, config: LoopConfig) -> Context {
        let entry = Current::nameless(Phase::Entry, Location::caller());
        Context {
            clock_reading: handle.shared.clock.read(),
            handle,
            config,
            entry,
            current: entry,
            busy_since: 0,
            is_in_microtasks: false,
            lateness: 0,
            phase_times: PhaseTimes::default(),
            ready: VecDeque::new(),
            kernel_has_more: false,
            is_turn_of_events: false,
            panic_handler: None,
            buffers: Buffers {
                hooks: Vec::new(),
                events: Vec::with_capacity(EVENTS_PER_CALL),
                incoming: Vec::new(),
            },
        }
    }

    /// Runs until nothing keeps the loop alive, or it is stopped. True if it was stopped and is still alive.
    ///
    /// # Errors
    /// [`LoopError::NestedRun`] inside a callback of this loop; [`LoopError::Io`] if the poller fails.
    ///
    /// # Panics
    /// With the panic of a callback, if there is no [panic handler](Context::set_panic_handler). The loop stays
    /// usable: running it again goes on with what is left.
    pub fn run(&mut self) -> Result<bool, LoopError> {
        self.run_mode(RunMode::Default)
    }

    /// Runs as far as `mode` says. True if the loop is still alive.
    ///
    /// # Errors
    /// As [`Context::run`].
    ///
    /// # Panics
    /// As [`Context::run`].
    pub fn run_mode(&mut self, mode: RunMode) -> Result<bool, LoopError> {
        // A callback can exchange this context for another one; the loop that was begun is the one that ends.
        let shared = Rc::clone(&self.handle.shared);
        if shared.is_running.replace(true) {
            return Err(LoopError::NestedRun);
        }
        shared.pulse.go_on();
        let result = catch_unwind(AssertUnwindSafe(|| self.iterate(mode)));
        self.current = self.entry;
        shared.is_running.set(false);
        shared.pulse.rest();
        shared.stop_is_done();
        self.measure_turn(0);
        match result {
            Ok(result) => result.map(|()| self.is_alive()),
            Err(panic) => {
                self.is_in_microtasks = false;
                resume_unwind(panic)
            }
        }
    }

    fn iterate(&mut self, mode: RunMode) -> Result<(), LoopError> {
        self.start_measuring();
        self.drain();
        if mode == RunMode::Default && self.is_alive() && !self.is_stopping() {
            self.run_due_timers();
        }
        while self.is_alive() && !self.is_stopping() {
            self.run_pending();
            self.run_idle_and_prepare();
            self.poll(mode)?;
            self.run_pending();
            self.run_check();
            self.run_closing();
            self.run_due_timers();
            if mode != RunMode::Default {
                break;
            }
        }
        if !self.is_alive() {
            self.silence_late_rings();
        }
        Ok(())
    }

    /// A wake-up may arrive after its post was fetched. In a loop that has ended nothing would take it, and
    /// [`backend_fd`](EventLoop::backend_fd) would stay readable for no reason.
    fn silence_late_rings(&self) {
        let remote = &self.handle.shared.remote;
        if remote.may_be_rung() {
            remote.silence();
        }
    }

    /// A handle for futures and structs on this thread.
    pub fn handle(&self) -> LoopHandle {
        self.handle.clone()
    }

    /// The callback that runs now: its phase, where it was registered, and the name of its timer, immediate or handle. So
    /// a callback can clear, close or unreference itself without being told its own name. Outside of
    /// [`run`](Context::run) it is the code of the owner, in [`Phase::Entry`].
    pub fn current(&self) -> Current {
        self.current
    }

    /// How long after its due time the timer's callback was called that runs now. The due time of a timeout is counted
    /// in ticks of 66 us, rounded up.
    pub fn lateness(&self) -> Duration {
        Duration::from_nanos(self.lateness)
    }

    /// From here on a panic in a callback or future is reported to `handler` and the loop goes on. Without
    /// a handler it leaves [`run`](Context::run). A panic in the handler itself does so, too.
    pub fn set_panic_handler(&mut self, handler: impl FnMut(&mut Context, CallbackPanic) + 'static) {
        self.panic_handler = Some(Box::new(handler));
    }
}

impl Deref for Context {
    type Target = LoopHandle;

    fn deref(&self) -> &LoopHandle {
        &self.handle
    }
}
