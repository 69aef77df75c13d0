//! Futures on the loop. The microtask queue is their ready queue: waking a future queues a microtask that polls it.
//!
//! ```text
//!   spawn -> queued --(its microtask)--> polled --pending--> waiting --(wake)--> queued
//!                                           |
//!                                           +--ready, panicked--> gone       cancel() leads from everywhere to gone
//! ```

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use super::LoopHandle;
use super::callback::{Microtask, Queue, Site};
use super::mailbox::WakeFlag;
use super::remote::{Post, Remote};
use super::slab::{Slab, SlabKey};
use super::state::Shared;

type BoxedFuture = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    /// Out while it is polled.
    future: Option<BoxedFuture>,
    waking: Arc<Waking>,
    site: Site,
}

/// A future that was taken out to be polled.
pub(super) struct TakenTask {
    pub(super) future: BoxedFuture,
    pub(super) waker: Waker,
    pub(super) site: Site,
}

pub(super) struct Tasks(Slab<Task>);

impl Tasks {
    pub(super) fn new() -> Tasks {
        Tasks(Slab::new())
    }

    pub(super) fn site(&self, key: SlabKey) -> Option<Site> {
        self.0.get(key).map(|task| task.site)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// From here on the task may be woken again.
    pub(super) fn take(&mut self, key: SlabKey) -> Option<TakenTask> {
        let task = self.0.get_mut(key)?;
        task.waking.queued.lower();
        let waker = Waker::from(Arc::clone(&task.waking));
        Some(TakenTask { future: task.future.take()?, waker, site: task.site })
    }

    /// Puts a future back that is not finished. Returns it if it was cancelled meanwhile.
    pub(super) fn restore(&mut self, key: SlabKey, future: BoxedFuture) -> Option<BoxedFuture> {
        match self.0.get_mut(key) {
            Some(task) => task.future.replace(future),
            None => Some(future),
        }
    }

    /// Dropping what is returned may run anything, so no borrow may be held then.
    #[must_use]
    pub(super) fn remove(&mut self, key: SlabKey) -> Option<Leftover> {
        self.0.remove(key).map(|task| Leftover { _future: task.future })
    }

    pub(super) fn take_all(&mut self) -> Vec<Leftover> {
        self.0.take_all().into_iter().map(|task| Leftover { _future: task.future }).collect()
    }
}

/// What is left of a task that was removed.
pub(super) struct Leftover {
    _future: Option<BoxedFuture>,
}

/// Cancelled futures that wait to be dropped. A future may own the handle of another task, whose future may own
/// the next: dropped from within each other, a long chain of them would overflow the stack. So the outermost call drops
/// them all, one after the other.
pub(super) struct Leftovers {
    waiting: Queue<Leftover>,
    are_being_dropped: Cell<bool>,
}

impl Leftovers {
    pub(super) fn new() -> Leftovers {
        Leftovers { waiting: Queue::new(), are_being_dropped: Cell::new(false) }
    }

    /// A panic leaves the outermost call, after all are dropped; of several panics, the first one.
    fn drop_in_turn(&self, leftover: Leftover) {
        self.waiting.push(leftover);
        if self.are_being_dropped.replace(true) {
            return;
        }
        let mut panic = None;
        while let Some(leftover) = self.waiting.pop() {
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(leftover)));
            panic = panic.or(dropped.err());
        }
        self.are_being_dropped.set(false);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// What wakes one task, from any thread. A task that is queued already is not queued again.
struct Waking {
    key: SlabKey,
    queued: WakeFlag,
    remote: Remote,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.raise() {
            return;
        }
        let microtask = Microtask::Poll(self.key);
        if !LocalLoops::push(self.remote.loop_number(), microtask) {
            // If the loop is gone, so is the task.
            let _ = self.remote.push(Post::Wake(self.key));
        }
    }
}

thread_local! {
    /// The loops that live on this thread, by number: a wake-up from their own thread needs no lock.
    static LOCAL_LOOPS: RefCell<Vec<(u64, Weak<Shared>)>> = const { RefCell::new(Vec::new()) };
}

/// The loops of the current thread.
pub(super) struct LocalLoops;

impl LocalLoops {
    /// A number for a new loop, different from all others of the process.
    pub(super) fn next_number() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn register(number: u64, shared: &Rc<Shared>) {
        LOCAL_LOOPS.with_borrow_mut(|loops| loops.push((number, Rc::downgrade(shared))));
    }

    pub(super) fn unregister(number: u64) {
        // The thread may be past the end of its locals, and then there is nothing to take back.
        let _ = LOCAL_LOOPS.try_with(|loops| loops.borrow_mut().retain(|(other, _)| *other != number));
    }

    /// False if the loop does not live on this thread, and never did.
    fn push(number: u64, microtask: Microtask) -> bool {
        let Some(shared) = LocalLoops::find(number) else { return LocalLoops::is_registered(number) };
        shared.microtasks.push(microtask);
        if !shared.is_running.get() {
            ring_for_embedder(&shared);
        }
        true
    }

    /// The loop lives on this thread, and this is called by one of its callbacks.
    pub(super) fn is_running_here(number: u64) -> bool {
        LocalLoops::find(number).is_some_and(|shared| shared.is_running.get())
    }

    fn is_registered(number: u64) -> bool {
        let is_there = |loops: &RefCell<Vec<(u64, Weak<Shared>)>>| {
            loops.borrow().iter().any(|(other, _)| *other == number)
        };
        LOCAL_LOOPS.try_with(is_there).unwrap_or(false)
    }

    fn find(number: u64) -> Option<Rc<Shared>> {
        let find = |loops: &RefCell<Vec<(u64, Weak<Shared>)>>| {
            loops.borrow().iter().find(|(other, _)| *other == number).and_then(|(_, shared)| shared.upgrade())
        };
        // The thread may be past the end of its locals.
        LOCAL_LOOPS.try_with(find).ok().flatten()
    }
}

/// Whoever runs this loop from within another one may wait for its descriptor, and knows nothing of the wake-up. One ring is
/// enough until the loop runs. A loop that runs looks at its microtasks by itself, so nothing of this is in its way.
#[cold]
fn ring_for_embedder(shared: &Shared) {
    if !shared.remote.may_be_rung() {
        shared.remote.ring();
    }
}

/// Why a spawned future has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// It was cancelled, or its loop was dropped.
    Cancelled,
    /// It panicked. The panic itself goes to the panic handler, or leaves `run`, as that of any callback.
    Panicked,
}

impl fmt::Display for JoinError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Cancelled => write!(formatter, "the task was cancelled"),
            JoinError::Panicked => write!(formatter, "the task panicked"),
        }
    }
}

impl std::error::Error for JoinError {}

/// Where a task leaves its result and who waits for it.
struct Join<T> {
    result: Cell<Option<Result<T, JoinError>>>,
    is_finished: Cell<bool>,
    /// The future is being polled, or has panicked when it was, or when it was dropped after that.
    is_running: Cell<bool>,
    waiter: Cell<Option<Waker>>,
}

impl<T> Join<T> {
    /// The first result counts.
    fn finish(&self, result: Result<T, JoinError>) {
        if self.is_finished.get() {
            return;
        }
        self.result.set(Some(result));
        self.is_finished.set(true);
        if let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
    }
}

/// A future of more bytes gets an allocation of its own.
const COPIED_MAX: usize = 512;

/// Lives inside the task: however the task ends, somebody is told.
struct Finisher<T>(Rc<Join<T>>);

impl<T> Drop for Finisher<T> {
    fn drop(&mut self) {
        if self.0.is_finished.get() {
            return;
        }
        let cause = if self.0.is_running.get() { JoinError::Panicked } else { JoinError::Cancelled };
        self.0.finish(Err(cause));
    }
}

/// The finisher is moved in, so that it is dropped with the future's own state when that panics.
async fn finishing<T>(finisher: Finisher<T>, future: impl Future<Output = T>) {
    let value = {
        let mut future = pin!(future);
        let is_running = &finisher.0.is_running;
        let polling = poll_fn(|context| {
            is_running.set(true);
            let polled = future.as_mut().poll(context);
            is_running.set(polled.is_ready());
            polled
        });
        polling.await
    };
    finisher.0.finish(Ok(value));
}

/// The result of a spawned future, which is a future itself. Dropping it lets the task run on alone.
pub struct JoinHandle<T> {
    event_loop: LoopHandle,
    key: SlabKey,
    join: Rc<Join<T>>,
    cancels_on_drop: bool,
}

impl<T> JoinHandle<T> {
    /// Drops the future at once, or when it returns if it runs right now. Nothing happens if it has ended. If the task is
    /// cancelled while another task is being dropped, it is dropped right after that one, not within: so a long chain of tasks
    /// that own each other does not overflow the stack.
    pub fn cancel(&self) {
        let shared = &self.event_loop.shared;
        let leftover = shared.tasks.borrow_mut().remove(self.key);
        let Some(leftover) = leftover else { return };
        if !self.join.is_finished.get() {
            self.join.finish(Err(JoinError::Cancelled));
        }
        shared.leftovers.drop_in_turn(leftover);
    }

    /// Ties the task to this handle: dropping the handle cancels it.
    #[must_use]
    pub fn cancel_on_drop(mut self) -> JoinHandle<T> {
        self.cancels_on_drop = true;
        self
    }

    /// The task has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.join.is_finished.get()
    }

    /// The result, if the task has ended and the result was not taken before.
    pub fn take_result(&self) -> Option<Result<T, JoinError>> {
        self.join.result.take()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.join.result.take() {
            return Poll::Ready(result);
        }
        if self.join.is_finished.get() {
            return Poll::Ready(Err(JoinError::Cancelled));
        }
        self.join.waiter.set(Some(context.waker().clone()));
        Poll::Pending
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.cancels_on_drop {
            self.cancel();
        }
    }
}

impl LoopHandle {
    /// Runs a future on the loop; it is polled for the first time as a microtask.
    ///
    /// Like a promise in Node, a task does not keep the loop alive by itself: what it waits for does. A future that waits to be
    /// woken by another thread needs a [`hold`](LoopHandle::hold).
    #[track_caller]
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let site = std::panic::Location::caller();
        let join = Rc::new(Join {
            result: Cell::new(None),
            is_finished: Cell::new(false),
            is_running: Cell::new(false),
            waiter: Cell::new(None),
        });
        let finisher = Finisher(Rc::clone(&join));
        // A block that awaits a future has room for it twice: once as it was given, once as it is polled.
        let future: BoxedFuture = match size_of_val(&future) > COPIED_MAX {
            true => Box::pin(finishing(finisher, Box::pin(future))),
            false => Box::pin(finishing(finisher, future)),
        };
        let key = self.insert_task(future, site);
        JoinHandle { event_loop: self.clone(), key, join, cancels_on_drop: false }
    }

    fn insert_task(&self, future: BoxedFuture, site: Site) -> SlabKey {
        let shared = &self.shared;
        let key = shared.tasks.borrow_mut().0.insert_with(|key| {
            let waking = Arc::new(Waking { key, queued: WakeFlag::new(true), remote: shared.remote.clone() });
            Task { future: Some(future), waking, site }
        });
        shared.microtasks.push(Microtask::Poll(key));
        shared.drop_if_gone();
        key
    }
}
