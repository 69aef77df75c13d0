//! Futures that wait for the loop itself: for some time, for the ready microtasks, for the next iteration.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use super::LoopHandle;
use super::callback::{Callback, Site};
use super::immediates::ImmediateId;
use super::timers::{Due, TimerId};

/// Something that happens once, and who waits for it.
#[derive(Default)]
struct Happening {
    happened: Cell<bool>,
    waiter: RefCell<Option<Waker>>,
}

impl Happening {
    fn happen(&self) {
        self.happened.set(true);
        let waiter = self.waiter.take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn poll(&self, context: &mut TaskContext<'_>) -> Poll<()> {
        if self.happened.get() {
            return Poll::Ready(());
        }
        let previous = self.waiter.replace(Some(context.waker().clone()));
        drop(previous);
        Poll::Pending
    }
}

/// Resolves after a time; made by [`LoopHandle::sleep`]. Dropping it stops its timer.
#[must_use = "a future does nothing until it is awaited"]
pub struct Sleep {
    event_loop: LoopHandle,
    due: Due,
    site: Site,
    timer: Option<(TimerId, Rc<Happening>)>,
}

impl Sleep {
    fn start(&self) -> (TimerId, Rc<Happening>) {
        let end = Rc::new(Happening::default());
        let happening = Rc::clone(&end);
        let callback = Box::new(move |_: &mut super::Context| happening.happen());
        let shared = &self.event_loop.shared;
        let timer = shared.timers.borrow_mut().start_once(self.due, self.site, callback);
        shared.drop_if_gone();
        (timer, end)
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        if self.timer.is_none() {
            self.timer = Some(self.start());
        }
        match &self.timer {
            Some((_, end)) => end.poll(context),
            None => Poll::Pending,
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((timer, _)) = &self.timer {
            self.event_loop.clear(*timer);
        }
    }
}

/// Resolves when the microtasks queued before it have run; made by [`LoopHandle::yield_now`].
#[must_use = "a future does nothing until it is awaited"]
#[derive(Debug, Default)]
pub struct YieldNow {
    has_yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        if self.has_yielded {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Resolves in the next check phase; made by [`LoopHandle::next_iteration`]. Dropping it takes the immediate back.
#[must_use = "a future does nothing until it is awaited"]
pub struct NextIteration {
    event_loop: LoopHandle,
    site: Site,
    immediate: Option<(ImmediateId, Rc<Happening>)>,
}

impl Future for NextIteration {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        let event_loop = self.event_loop.clone();
        let site = self.site;
        let (_, turn) = self.immediate.get_or_insert_with(|| {
            let turn = Rc::new(Happening::default());
            let happening = Rc::clone(&turn);
            let callback = Callback::new(site, move |_| happening.happen());
            let immediate = event_loop.shared.immediates.borrow_mut().push(callback);
            event_loop.shared.drop_if_gone();
            (immediate, turn)
        });
        turn.poll(context)
    }
}

impl Drop for NextIteration {
    fn drop(&mut self) {
        if let Some((immediate, _)) = &self.immediate {
            self.event_loop.clear(*immediate);
        }
    }
}

impl LoopHandle {
    /// Resolves `duration` after this call, never earlier.
    #[track_caller]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let due = Due::after(self.shared.clock.read(), duration);
        Sleep { event_loop: self.clone(), due, site: std::panic::Location::caller(), timer: None }
    }

    /// Lets the microtasks and futures that are ready go first. The loop itself does not go on meanwhile.
    pub fn yield_now(&self) -> YieldNow {
        YieldNow::default()
    }

    /// Lets the loop handle everything that is ready now: resolves in the check phase after that.
    #[track_caller]
    pub fn next_iteration(&self) -> NextIteration {
        NextIteration { event_loop: self.clone(), site: std::panic::Location::caller(), immediate: None }
    }
}
