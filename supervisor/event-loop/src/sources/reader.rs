//! Who reads from a source: nobody, a callback that stays, or one future. And how a source reads, accepts or receives for
//! them, which is the same for streams, listeners and UDP sockets.
//!
//! ```text
//!             start()              an event: take()
//!   Nobody -----------> Callback --------------------> Running
//!          <-----------          <--------------------
//!             stop()                   restore()
//!
//!             a future has to wait
//!   Nobody ----------------------> Future
//!          <----------------------
//!             an event: take(), which wakes it; or the future is dropped
//! ```
//!
//! A callback that stops reading while it runs leads from `Running` to `Nobody`, and is dropped when it returns.

use std::cell::RefCell;
use std::task::{Poll, Waker};

use super::SourceError;
use super::base::Source;
use crate::callback::Site;
use crate::limits::TURNS_PER_EVENT;
use crate::{Context, Phase};

/// A source that something comes in from: bytes, connections or datagrams. One reader at a time takes it, a callback or
/// a future.
pub(super) trait Readable: Source {
    type Callback;

    /// Borrowed for one operation only.
    fn reader(&self) -> &RefCell<Reader<Self::Callback>>;

    /// # Errors
    /// Why nothing can come in any more.
    fn check_open(&self) -> Result<(), SourceError> {
        self.base().descriptor().map(drop)
    }

    fn start(&self, site: Site, callback: Self::Callback) -> Result<(), SourceError> {
        self.check_open()?;
        let refused = self.reader().borrow_mut().start(site, callback);
        // The refused callback is dropped here, without a borrow.
        if refused.is_err() {
            return Err(SourceError::AlreadyReading);
        }
        self.update().inspect_err(|_| self.stop())
    }

    /// Ends the reading of a callback. A future goes on.
    fn stop(&self) {
        let stopped = self.reader().borrow_mut().stop_callback();
        self.want_less();
        drop(stopped);
    }

    /// The descriptor is ready: `call_once` takes one thing in and calls the callback, and says whether there may be more.
    fn take_in(&self, mut call_once: impl FnMut() -> bool) {
        for _ in 0..TURNS_PER_EVENT {
            let next = self.reader().borrow().next();
            match next {
                NextStep::Call if call_once() => {}
                NextStep::Call => return,
                NextStep::Wake => return self.wake_future(),
                NextStep::Nobody => return self.rest(),
            }
        }
    }

    /// Calls the callback that waits. False if none does.
    fn call_back(
        &self,
        context: &mut Context,
        call: impl FnOnce(&mut Self::Callback, &mut Context, Site),
    ) -> bool {
        let wanted = self.reader().borrow_mut().take();
        let Wanted::Callback(site, mut callback) = wanted else { return false };
        let panic = context.call_guarded(Phase::Poll, site, |context| call(&mut callback, context, site));
        let stopped = self.reader().borrow_mut().restore(site, callback);
        let dropped = context.drop_guarded(stopped);
        context.finish_call(panic.or(dropped));
        true
    }

    fn wake_future(&self) {
        let wanted = self.reader().borrow_mut().take();
        let Wanted::Future(waker) = wanted else { return };
        self.want_less();
        waker.wake();
    }

    /// For a future: takes something in at once, or lets it wait.
    fn poll_next<T>(
        &self,
        ticket: u64,
        waker: &Waker,
        take: impl FnOnce() -> Result<T, SourceError>,
    ) -> Poll<Result<T, SourceError>> {
        let admitted = self.reader().borrow().admit(ticket);
        if let Err(error) = admitted {
            return Poll::Ready(Err(error));
        }
        let taken = match self.base().has_turns() {
            true => take(),
            false => self.check_open().and(Err(SourceError::WouldBlock)),
        };
        if !matches!(taken, Err(SourceError::WouldBlock)) {
            self.leave_reading(ticket);
            return Poll::Ready(taken);
        }
        let waker = waker.clone();
        let replaced = self.reader().borrow_mut().wait(ticket, waker);
        drop(replaced);
        match self.update() {
            Ok(()) => Poll::Pending,
            Err(error) => {
                self.leave_reading(ticket);
                Poll::Ready(Err(error))
            }
        }
    }

    /// The future with this ticket reads no more.
    fn leave_reading(&self, ticket: u64) {
        let left = self.reader().borrow_mut().leave(ticket);
        if left.is_some() {
            self.want_less();
        }
    }
}

#[derive(Default)]
pub(super) enum Reader<C> {
    #[default]
    Nobody,
    Callback {
        site: Site,
        callback: C,
    },
    /// The callback is out of here, because it runs.
    Running,
    Future {
        ticket: u64,
        waker: Waker,
    },
}

/// What is to be done about what comes in.
enum NextStep {
    /// The callback that waits is to be called with it.
    Call,
    /// The future that waits is to be woken: it takes it itself.
    Wake,
    /// It stays where it is.
    Nobody,
}

/// What an event leads to.
enum Wanted<C> {
    Nobody,
    Callback(Site, C),
    Future(Waker),
}

impl<C> Reader<C> {
    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Reader::Nobody)
    }

    /// The source has to live on for it.
    pub(super) fn is_callback(&self) -> bool {
        matches!(self, Reader::Callback { .. } | Reader::Running)
    }

    fn next(&self) -> NextStep {
        match self {
            Reader::Callback { .. } => NextStep::Call,
            Reader::Future { .. } => NextStep::Wake,
            Reader::Nobody | Reader::Running => NextStep::Nobody,
        }
    }

    /// The error is the callback, which the caller drops when no borrow is held.
    fn start(&mut self, site: Site, callback: C) -> Result<(), C> {
        if self.is_there() {
            return Err(callback);
        }
        *self = Reader::Callback { site, callback };
        Ok(())
    }

    #[must_use]
    fn stop(&mut self) -> Reader<C> {
        std::mem::replace(self, Reader::Nobody)
    }

    #[must_use]
    fn stop_callback(&mut self) -> Option<Reader<C>> {
        self.is_callback().then(|| self.stop())
    }

    /// The future that waits, if it is a future.
    pub(super) fn into_future(self) -> Option<Waker> {
        match self {
            Reader::Future { waker, .. } => Some(waker),
            Reader::Nobody | Reader::Callback { .. } | Reader::Running => None,
        }
    }

    /// Takes the callback out to be called. A future is woken once and then has to ask again.
    fn take(&mut self) -> Wanted<C> {
        match std::mem::take(self) {
            Reader::Callback { site, callback } => {
                *self = Reader::Running;
                Wanted::Callback(site, callback)
            }
            Reader::Future { waker, .. } => Wanted::Future(waker),
            Reader::Nobody | Reader::Running => Wanted::Nobody,
        }
    }

    /// Gives the callback back after it ran. Returns it if it was stopped meanwhile.
    #[must_use]
    fn restore(&mut self, site: Site, callback: C) -> Option<C> {
        if !matches!(self, Reader::Running) {
            return Some(callback);
        }
        *self = Reader::Callback { site, callback };
        None
    }

    /// Whether the future with this ticket may ask.
    fn admit(&self, own: u64) -> Result<(), SourceError> {
        match self {
            Reader::Nobody => Ok(()),
            Reader::Future { ticket, .. } if *ticket == own => Ok(()),
            _ => Err(SourceError::AlreadyReading),
        }
    }

    /// Lets the future with this ticket wait. Drop what is returned only when no borrow is held.
    #[must_use]
    fn wait(&mut self, ticket: u64, waker: Waker) -> Reader<C> {
        std::mem::replace(self, Reader::Future { ticket, waker })
    }

    /// The future with this ticket waits no more.
    #[must_use]
    fn leave(&mut self, own: u64) -> Option<Reader<C>> {
        match self {
            Reader::Future { ticket, .. } if *ticket == own => Some(self.stop()),
            _ => None,
        }
    }
}
