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
//! The loop is alive, and [`Context::run`] goes on, while there is a referenced timer, immediate or active handle, a write or
//! a connect under way, an open [`Request`] or task of a pool, a [`Hold`], or a queued callback. A handle is active while it
//! waits for something. It is referenced until `unref` is called on it.
//!
//! All types stay on the thread of the loop, except [`Remote`], [`Notifier`] and [`Request`], which other threads may hold.
//!
//! # Context or LoopHandle?
//!
//! Callbacks get `&mut` [`Context`], the running loop. It cannot be kept beyond the callback. Whatever lives longer, a struct
//! or a future, keeps a [`LoopHandle`] (by [`Context::handle`]): it is cheap to clone and registers the same things, because
//! `Context` dereferences to it. Only these need the context itself: running the loop, [`Context::current`],
//! [`Context::lateness`], and [`Context::set_panic_handler`]. A function that registers something should take `&LoopHandle`:
//! a callback and the owner of the [`EventLoop`] can both call it. A handle that is kept after the loop was dropped does no
//! harm: what it registers is dropped at once, or refused with [`LoopError::Gone`] or [`SourceError::Closed`]. Another thread
//! keeps a [`Remote`].
//!
//! # Errors
//!
//! | error | of | what to do |
//! |---|---|---|
//! | [`LoopError`] | the loop, and what is registered by a [`LoopHandle`] | a variant for each kind of misuse (`NestedRun`, `AlreadyClosed`, ...): correct the program. `OutOfDescriptors`: try again later. `Io`: the system refused |
//! | [`SourceError`] | streams, listeners, UDP sockets, children | `QueueFull`, `SendQueueFull`, `WouldBlock`: wait and try again. `Closed`, `Cancelled`: it is over. `Io`: what the system says, such as a refused connection; [`SourceError::kind`] gives the standard library's kind for each of them |
//! | [`io_pool::IoError`] | tasks of a pool | `Overloaded`: try again later. `TimedOut`, `Panicked`, `Cancelled`, `ShutDown`: there is no result. `NotRegularFile`, `TooLarge`, `Io`: what the task found |
//! | [`LoopGone`] | [`Remote`], [`Notifier`], [`Request`] | the loop was dropped: end the thread |
//! | [`JoinError`] | a future that was awaited | it was cancelled, or panicked |
//!
//! Errors that a call returns are about the call: nothing was begun, and the callback is dropped. Errors that come later are
//! handed to the callback. A panic in a callback leaves [`Context::run`], or goes to the
//! [panic handler](Context::set_panic_handler).
//!
//! # What the public items are for
//!
//! `offload` itself uses the loop, timers, watchers, signals, futures, posts and the pool. The rest is here for one of these
//! reasons: libuv or Node has it, and a program that is ported needs it ([`porting`] lists them; the sources, the names of
//! handles, [`LoopHandle::set_repeat`] and so on); it makes tests of code on the loop possible ([`Time::Virtual`],
//! [`Current`]); it answers why a loop is slow or does not end ([`LoopMetrics`], [`Alive`], [`HandleInfo`]); or it keeps one
//! part of a program from starving the others ([`LoopConfig`], [`OnStarvation`], [`Catchup`], parts and lanes of
//! [`io_pool`], [`LoopHandle::partition`]).
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
//! | `handle.rs`, `pausing.rs`, `closing.rs`, `inspect.rs` | registering, pausing, closing and listing timers and handles |
//! | `timers.rs`, `wheel.rs`, `immediates.rs`, `handles.rs` | the tables of timers, immediates and handles |
//! | `tasks.rs`, `futures.rs`, `one_shot.rs`, `readiness.rs` | futures |
//! | `state.rs`, `on_gone.rs`, `origin.rs` | what the loop owns, and how it is dropped, also in a forked child |
//! | `remote.rs`, `mailbox.rs`, `delivery.rs`, `wakeup.rs`, `requests.rs` | how other threads reach the loop |
//! | `metrics.rs`, `watchdog.rs`, `alive.rs` | how busy the loop is, which callback blocks it, why it does not end |
//! | `sources/` | streams, listeners, UDP sockets, child processes; begin with `sources/base.rs` |
//! | `io_pool/` | a pool of threads for blocking calls |

#![warn(missing_debug_implementations)]

/// The programs in the README are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What ends something when it is dropped has to be kept, and the compiler says so:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// offload_event_loop::EventLoop::new().unwrap().hold();
/// ```
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// offload_event_loop::EventLoop::new().unwrap().lingerer();
/// ```
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// offload_event_loop::EventLoop::new().unwrap().on_gone(|| ());
/// ```
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// offload_event_loop::EventLoop::new().unwrap().request(|_, ()| ());
/// ```
///
/// This one compiles, so it is that:
///
/// ```
/// #![deny(unused_must_use)]
/// let _hold = offload_event_loop::EventLoop::new().unwrap().hold();
/// ```
#[cfg(doctest)]
struct Guards;

mod alarm;
mod alive;
mod attribution;
mod blocks;
mod callback;
mod calls;
mod clock;
mod closing;
mod config;
mod debug;
mod delivery;
mod error;
mod futures;
mod handle;
mod handles;
mod immediates;
mod inspect;
pub mod io_pool;
mod limits;
mod linger;
mod mailbox;
mod metrics;
mod on_gone;
mod one_shot;
mod origin;
mod partition;
mod pausing;
mod phases;
mod poller;
pub mod porting;
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
pub use handle::{Clearable, Hold, Lingerer, LoopHandle, Referable};
pub use handles::HandleId;
pub use immediates::ImmediateId;
pub use inspect::HandleInfo;
pub use limits::{SEND_QUEUE_BYTES_MAX, SEND_QUEUE_LEN_MAX};
pub use metrics::{
    Lag, Lateness, Lingering, LoopMetrics, PhaseTime, SPREAD_BOUNDS, SlowCallback, Spread, Starvation,
};
pub use on_gone::OnGone;
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

use clock::{Nanos, Reading};
use limits::EVENTS_PER_CALL;
use linger::Linger;
use metrics::PhaseTimes;
use state::Shared;

/// An event loop. It dereferences to [`Context`], so its owner can do whatever a callback can do.
///
/// Dropping it drops everything that was registered, after it has called what waits [for that](LoopHandle::on_gone). If some of that
/// panics when it is dropped, the rest is dropped nevertheless; then the first of these panics goes on, unless the thread is
/// panicking already.
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
    ///
    /// It becomes readable also when the other loop, on the same thread, posts something or wakes a future of this one. It does
    /// not when a callback, a timer or a future is registered from there: ask for the timeout again after that.
    ///
    /// ```
    /// use offload_event_loop::{EventLoop, RunMode};
    /// use rustix::event::{PollFd, PollFlags, Timespec, poll};
    /// use std::time::Duration;
    ///
    /// let mut event_loop = EventLoop::new()?;
    /// event_loop.set_timeout(Duration::from_millis(5), |_| println!("from within another loop"));
    ///
    /// // The other loop: here, one that waits for nothing else.
    /// while event_loop.is_alive() {
    ///     let timeout = event_loop.backend_timeout().map(Timespec::try_from).transpose()?;
    ///     poll(&mut [PollFd::new(&event_loop.backend_fd(), PollFlags::IN)], timeout.as_ref())?;
    ///     event_loop.run_mode(RunMode::NoWait)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    clock_reading: Reading,
    /// When the last poll phase began to handle what it had waited for.
    busy_since: Nanos,
    /// The ticks are done, and now all microtasks have their turn.
    is_in_microtasks: bool,
    lateness: Nanos,
    /// Whether it looks for events before it sleeps.
    linger: Linger,
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
            clock_reading: handle.shared.clock.reading(),
            handle,
            config,
            entry,
            current: entry,
            busy_since: 0,
            is_in_microtasks: false,
            lateness: 0,
            linger: Linger::default(),
            phase_times: PhaseTimes::default(),
            ready: VecDeque::new(),
            kernel_has_more: false,
            is_turn_of_events: false,
            panic_handler: None,
            buffers: Buffers { events: Vec::with_capacity(EVENTS_PER_CALL), incoming: Vec::new() },
        }
    }

    /// Runs until nothing keeps the loop alive, or it is stopped. True if it was stopped and is still alive: run it again to
    /// go on with what is left, or drop it to give that up. False if nothing is left.
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

    /// Runs as far as `mode` says. True if the loop is still alive: something is left to run or to wait for, so call it again,
    /// at once or (with [`RunMode::NoWait`]) when the [`backend_fd`](EventLoop::backend_fd) says so. False if nothing is left.
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
        self.lateness = 0;
        shared.is_running.set(false);
        shared.pulse.rest();
        shared.stop_is_done();
        shared.remote.ring_for_what_is_left();
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
    /// in timer steps of 66 us, rounded up.
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
