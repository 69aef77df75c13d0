//! Who reads from a source: nobody, a callback that stays, or one future. And how a source reads, accepts or receives for
//! them, which is the same for all.

use std::cell::RefMut;
use std::task::{Poll, Waker};

use super::base::SourceBase;
use super::{SourceError, TURNS_PER_EVENT};
use crate::callback::Site;
use crate::{Context, Interest, Phase};

/// A source that something comes in from: bytes, connections or datagrams. One reader at a time takes it, a callback or
/// a future.
pub(super) trait Receiver {
    type Callback;

    fn base(&self) -> &SourceBase;

    /// Borrowed for one operation only.
    fn demand(&self) -> RefMut<'_, Demand<Self::Callback>>;

    /// # Errors
    /// Why nothing can come in any more.
    fn check_open(&self) -> Result<(), SourceError>;

    /// Tells the loop what the source waits for now, and lets it be watched for `also`.
    fn apply(&self, also: Interest) -> Result<(), SourceError>;

    /// Tells the loop what the source waits for now. Reading stays watched until an event comes that nobody
    /// waits for: a reader that stops often starts again.
    fn update(&self) -> Result<(), SourceError> {
        self.apply(self.base().reading_interest())
    }

    /// As [`Receiver::update`], for a change after which it wants less. Asking for less needs no memory, so it cannot fail.
    fn want_less(&self) {
        let _ = self.update();
    }

    /// Watches for nothing that nobody wants.
    fn rest(&self) {
        let _ = self.apply(Interest::NONE);
    }

    fn start(&self, site: Site, callback: Self::Callback) -> Result<(), SourceError> {
        self.check_open()?;
        let refused = self.demand().start(site, callback);
        // The refused callback is dropped here, without a borrow.
        if refused.is_err() {
            return Err(SourceError::AlreadyReading);
        }
        self.update().inspect_err(|_| self.stop())
    }

    fn stop(&self) {
        let mut demand = self.demand();
        let stopped = if demand.is_callback() { demand.stop() } else { Demand::Nobody };
        drop(demand);
        self.want_less();
        drop(stopped);
    }

    /// The descriptor is ready: `call_once` takes one thing in and calls the callback, and says whether there may be more.
    fn take_in(&self, mut call_once: impl FnMut() -> bool) {
        for _ in 0..TURNS_PER_EVENT {
            let next = self.demand().next();
            match next {
                Next::Call if call_once() => {}
                Next::Call => return,
                Next::Wake => return self.wake_future(),
                Next::Nobody => return self.rest(),
            }
        }
    }

    /// Calls the callback that waits. False if none does.
    fn call_back(
        &self,
        context: &mut Context,
        call: impl FnOnce(&mut Self::Callback, &mut Context, Site),
    ) -> bool {
        let wanted = self.demand().take();
        let Wanted::Callback(site, mut callback) = wanted else { return false };
        let panic = context.call_guarded(Phase::Poll, site, |context| call(&mut callback, context, site));
        let stopped = self.demand().restore(site, callback);
        let dropped = context.drop_guarded(stopped);
        context.finish_call(panic.or(dropped));
        true
    }

    fn wake_future(&self) {
        let wanted = self.demand().take();
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
        let admitted = self.demand().admit(ticket);
        if let Err(error) = admitted {
            return Poll::Ready(Err(error));
        }
        let taken = match self.base().has_turns() {
            true => take(),
            false => self.check_open().and(Err(SourceError::WouldBlock)),
        };
        if !matches!(taken, Err(SourceError::WouldBlock)) {
            self.leave(ticket);
            return Poll::Ready(taken);
        }
        let waker = waker.clone();
        let replaced = self.demand().wait(ticket, waker);
        drop(replaced);
        match self.update() {
            Ok(()) => Poll::Pending,
            Err(error) => {
                self.leave(ticket);
                Poll::Ready(Err(error))
            }
        }
    }

    /// The future with this ticket waits no more.
    fn leave(&self, ticket: u64) {
        let left = self.demand().leave(ticket);
        if left.is_some() {
            self.want_less();
        }
    }
}

/// A future that waits for what comes in. Dropping it ends its waiting.
pub(super) struct Waiting<'a, R: Receiver> {
    receiver: &'a R,
    pub(super) ticket: u64,
}

impl<'a, R: Receiver> Waiting<'a, R> {
    pub(super) fn new(receiver: &'a R) -> Waiting<'a, R> {
        Waiting { receiver, ticket: receiver.base().next_ticket() }
    }
}

impl<R: Receiver> Drop for Waiting<'_, R> {
    fn drop(&mut self) {
        self.receiver.leave(self.ticket);
    }
}

pub(super) enum Demand<C> {
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
pub(super) enum Next {
    /// The callback that waits is to be called with it.
    Call,
    /// The future that waits is to be woken: it takes it itself.
    Wake,
    /// It stays where it is.
    Nobody,
}

/// What an event leads to.
pub(super) enum Wanted<C> {
    Nobody,
    Callback(Site, C),
    Future(Waker),
}

impl<C> Demand<C> {
    pub(super) fn is_there(&self) -> bool {
        !matches!(self, Demand::Nobody)
    }

    /// The source has to live on for it.
    pub(super) fn is_callback(&self) -> bool {
        matches!(self, Demand::Callback { .. } | Demand::Running)
    }

    pub(super) fn next(&self) -> Next {
        match self {
            Demand::Callback { .. } => Next::Call,
            Demand::Future { .. } => Next::Wake,
            Demand::Nobody | Demand::Running => Next::Nobody,
        }
    }

    /// The error is the callback, which the caller drops when no borrow is held.
    pub(super) fn start(&mut self, site: Site, callback: C) -> Result<(), C> {
        if self.is_there() {
            return Err(callback);
        }
        *self = Demand::Callback { site, callback };
        Ok(())
    }

    #[must_use]
    pub(super) fn stop(&mut self) -> Demand<C> {
        std::mem::replace(self, Demand::Nobody)
    }

    /// Takes the callback out to be called. A future is woken once and then has to ask again.
    pub(super) fn take(&mut self) -> Wanted<C> {
        match std::mem::replace(self, Demand::Nobody) {
            Demand::Callback { site, callback } => {
                *self = Demand::Running;
                Wanted::Callback(site, callback)
            }
            Demand::Future { waker, .. } => Wanted::Future(waker),
            Demand::Nobody | Demand::Running => Wanted::Nobody,
        }
    }

    /// Gives the callback back after it ran. Returns it if it was stopped meanwhile.
    #[must_use]
    pub(super) fn restore(&mut self, site: Site, callback: C) -> Option<C> {
        if !matches!(self, Demand::Running) {
            return Some(callback);
        }
        *self = Demand::Callback { site, callback };
        None
    }

    /// Whether the future with this ticket may ask.
    pub(super) fn admit(&self, own: u64) -> Result<(), SourceError> {
        match self {
            Demand::Nobody => Ok(()),
            Demand::Future { ticket, .. } if *ticket == own => Ok(()),
            _ => Err(SourceError::AlreadyReading),
        }
    }

    /// Lets the future with this ticket wait. Drop what is returned only when no borrow is held.
    #[must_use]
    pub(super) fn wait(&mut self, ticket: u64, waker: Waker) -> Demand<C> {
        std::mem::replace(self, Demand::Future { ticket, waker })
    }

    /// The future with this ticket waits no more.
    #[must_use]
    pub(super) fn leave(&mut self, own: u64) -> Option<Demand<C>> {
        match self {
            Demand::Future { ticket, .. } if *ticket == own => Some(self.stop()),
            _ => None,
        }
    }
}
