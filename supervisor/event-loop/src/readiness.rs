//! Futures that wait until a descriptor is ready.
//!
//! All futures that wait for the same descriptor share one entry in the poller, armed for a single event:
//!
//! ```text
//!   (first future) -> armed --event--> fired: everybody is woken
//!                       ^                |
//!                       +--(a future whose direction was not ready polls again: armed for those that still wait)
//!   (last future done or dropped) -> gone
//!   close() of the entry: everybody is woken, and told that the waiting was cancelled
//! ```

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use super::LoopHandle;
use super::callback::Site;
use super::error::LoopError;
use super::handles::{HandleKind, Handles};
use super::poller::{Interest, Readiness};
use super::slab::SlabKey;

/// How far the waiting of one future is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    Waiting,
    Ready,
    /// Its handle was closed.
    Cancelled,
}

/// What one future waits for, seen from the poller.
pub(super) struct Waiter {
    interest: Interest,
    state: Cell<WaiterState>,
    waker: RefCell<Waker>,
}

impl Waiter {
    pub(super) fn wake(&self) {
        let waker = self.waker.borrow().clone();
        waker.wake();
    }

    /// To be called in [`Handles::change`]: it may be the last one that has kept the loop alive.
    pub(super) fn cancel(&self) {
        if self.state.get() == WaiterState::Waiting {
            self.state.set(WaiterState::Cancelled);
        }
    }

    fn see(&self, readiness: Readiness) {
        if self.state.get() == WaiterState::Waiting && self.direction_is_ready(readiness) {
            self.state.set(WaiterState::Ready);
        }
    }

    fn direction_is_ready(&self, readiness: Readiness) -> bool {
        match self.interest {
            Interest::WRITE => readiness.is_writable(),
            _ => readiness.is_readable(),
        }
    }
}

/// All futures that wait for one descriptor.
pub(super) struct Waiters {
    descriptor: RawFd,
    waiting: Vec<Rc<Waiter>>,
}

impl Waiters {
    pub(super) fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    /// Marks the waiters for which the descriptor is ready, and returns all that have waited, to be woken when no borrow is held.
    /// One that waits for the other direction arms the entry again when it is polled.
    pub(super) fn fire(&self, readiness: Readiness) -> Vec<Rc<Waiter>> {
        let waiting: Vec<_> = self.unanswered().cloned().collect();
        waiting.iter().for_each(|waiter| waiter.see(readiness));
        waiting
    }

    pub(super) fn all(&self) -> Vec<Rc<Waiter>> {
        self.waiting.clone()
    }

    /// They were closed, and each of them only has to learn it.
    pub(super) fn is_cancelled(&self) -> bool {
        self.waiting.iter().all(|waiter| waiter.state.get() == WaiterState::Cancelled)
    }

    /// Only of those that wait still. A future that was woken and is not polled, because its task awaits something else, would
    /// be told the same again and again, and its task with it.
    fn interest(&self) -> Interest {
        self.unanswered().fold(Interest::NONE, |interest, waiter| interest | waiter.interest)
    }

    fn unanswered(&self) -> impl Iterator<Item = &Rc<Waiter>> {
        self.waiting.iter().filter(|waiter| waiter.state.get() == WaiterState::Waiting)
    }
}

/// Resolves when a descriptor is ready; made by [`LoopHandle::readable`] and [`LoopHandle::writable`]. Keeps the
/// loop alive while it waits. Dropping it ends the waiting.
#[must_use = "a future does nothing until it is awaited"]
pub struct Ready<S: AsFd> {
    event_loop: LoopHandle,
    source: S,
    interest: Interest,
    site: Site,
    waiting: Option<Rc<Waiter>>,
}

impl<S: AsFd> Ready<S> {
    pub(super) fn new(event_loop: LoopHandle, source: S, interest: Interest, site: Site) -> Ready<S> {
        Ready { event_loop, source, interest, site, waiting: None }
    }

    fn arm(&mut self, waker: &Waker) -> Result<(), LoopError> {
        self.event_loop.shared.check_not_gone()?;
        let waiter = match &self.waiting {
            Some(waiter) => {
                waiter.waker.replace(waker.clone());
                Rc::clone(waiter)
            }
            None => Rc::new(Waiter {
                interest: self.interest,
                state: Cell::new(WaiterState::Waiting),
                waker: RefCell::new(waker.clone()),
            }),
        };
        let shared = &self.event_loop.shared;
        let source = self.source.as_fd();
        let mut handles = shared.handles.borrow_mut();
        match handles.waiting.get(&source.as_raw_fd()).copied() {
            Some(key) => join(&mut handles, key, &waiter, |interest| {
                shared.poller.modify(source, key.to_bits(), interest.once())
            })?,
            None => {
                let waiters = Waiters { descriptor: source.as_raw_fd(), waiting: vec![Rc::clone(&waiter)] };
                let key = handles.insert(HandleKind::Waiters(waiters), self.site).0;
                if let Err(error) = shared.poller.add(source, key.to_bits(), self.interest.once()) {
                    drop(handles.forget(key));
                    return Err(error);
                }
                handles.waiting.insert(source.as_raw_fd(), key);
            }
        }
        self.waiting = Some(waiter);
        Ok(())
    }

    fn leave(&mut self) {
        let Some(waiter) = self.waiting.take() else { return };
        let shared = &self.event_loop.shared;
        let source: BorrowedFd<'_> = self.source.as_fd();
        let mut handles = shared.handles.borrow_mut();
        let Some(&key) = handles.waiting.get(&source.as_raw_fd()) else { return };
        let is_empty = handles.change(key, |handle| match &mut handle.kind {
            HandleKind::Waiters(waiters) => {
                waiters.waiting.retain(|other| !Rc::ptr_eq(other, &waiter));
                waiters.waiting.is_empty()
            }
            _ => false,
        });
        if is_empty == Some(true) {
            shared.poller.remove(source);
            let gone = handles.forget(key);
            drop(handles);
            drop(gone);
        }
    }
}

/// Adds a future to those that wait already and arms the place for all of them.
fn join(
    handles: &mut Handles,
    key: SlabKey,
    waiter: &Rc<Waiter>,
    arm: impl FnOnce(Interest) -> Result<(), LoopError>,
) -> Result<(), LoopError> {
    let armed = handles.change(key, |handle| {
        let HandleKind::Waiters(waiters) = &mut handle.kind else { return Ok(()) };
        if !waiters.waiting.iter().any(|other| Rc::ptr_eq(other, waiter)) {
            waiters.waiting.push(Rc::clone(waiter));
        }
        arm(waiters.interest())
    });
    armed.unwrap_or(Ok(()))
}

impl<S: AsFd + Unpin> Future for Ready<S> {
    /// An error when the descriptor cannot be watched, [`LoopError::Cancelled`], or [`LoopError::Gone`].
    type Output = Result<(), LoopError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let state = self.waiting.as_ref().map_or(WaiterState::Waiting, |waiter| waiter.state.get());
        let result = match state {
            WaiterState::Waiting => match self.arm(context.waker()) {
                Ok(()) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            },
            WaiterState::Ready => Ok(()),
            WaiterState::Cancelled => Err(LoopError::Cancelled),
        };
        self.leave();
        Poll::Ready(result)
    }
}

impl<S: AsFd> Drop for Ready<S> {
    fn drop(&mut self) {
        self.leave();
    }
}
