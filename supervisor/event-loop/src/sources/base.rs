//! The base of every source: what a stream, a listener, a UDP socket and a child process have in common.
//!
//! A [`Base`] owns the source's file descriptor and its entry in the loop's table of handles. The source owns a base and
//! implements [`Source`]: what it waits for now, what it does when its descriptor is ready, and who is told when it is closed.
//! After every change of what it waits for it calls [`Source::update`], which tells the poller and the table.
//!
//! ```text
//!               update(): it waits for something
//!   +-------+ -----------------------------------> +---------+ --the descriptor is ready--> Source::on_ready
//!   | quiet |                                      | watched |                                      |
//!   +-------+ <----------------------------------- +---------+ <------------------------------------+
//!       |       update(): it waits for nothing          |
//!       |                                               |
//!       +-----------------------+-----------------------+
//!                               |
//!                               +--give_up(why)--> without a descriptor: connecting failed, the end of a
//!                               |                  pipe was shut down, or the child process has exited
//!                               |                                |
//!                               +--------------------------------+--leave()--> closed
//! ```
//!
//! A source that is made when its loop is gone is closed from the start, so nothing can be started on it. Otherwise it leaves in
//! one of three ways: [`Source::close`] tells everybody who waits; the loop is dropped, or the last handle
//! is, and nobody is told ([`Source::abandon`], and the [`Drop`] of the base).

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::task::Waker;

use rustix::net::SocketAddrAny;

use super::SourceError;
use super::transport;
use crate::callback::{Callback, OnClosed, Site};
use crate::handles::{HandleId, HandleKind};
use crate::limits::TURNS_PER_EVENT;
use crate::slab::SlabKey;
use crate::{AliveKind, Context, Interest, LoopHandle, Readiness};

/// A stream, a listener, a UDP socket or a child process: what differs between them.
pub(super) trait Source: Sized + 'static {
    /// The callbacks and futures that wait for it.
    type Waiting;

    fn base(&self) -> &Base;

    /// In which directions its descriptor has to be watched now.
    fn interest(&self) -> Interest;

    /// Whether it keeps the loop alive now, and the loop keeps it.
    fn liveness(&self) -> Liveness;

    /// The descriptor is ready. The source reads or writes, and calls its callbacks.
    fn on_ready(self: &Rc<Self>, context: &mut Context, readiness: Readiness);

    /// Takes out everybody who waits. It is called once, after the source has left the loop.
    fn take_waiting(&self) -> Self::Waiting;

    /// Lets the closing phase tell the callbacks that the source was closed. The futures that are returned are woken.
    fn tell_closed(self: &Rc<Self>, waiting: Self::Waiting) -> Vec<Waker>;

    /// Tells the loop what the source waits for now. Reading stays watched until an event comes that nobody waits for: a
    /// reader that stops often starts again.
    ///
    /// # Errors
    /// [`SourceError::OutOfDescriptors`] if the kernel has no room to watch for more, [`SourceError::Closed`] while the loop
    /// is being dropped. Without a descriptor there is nothing to watch and no error.
    fn update(&self) -> Result<(), SourceError> {
        self.base().apply(self.interest() | self.base().reading_interest(), self.liveness())
    }

    /// As [`Source::update`], for a change after which it waits for less. That needs no memory, so it cannot fail.
    fn want_less(&self) {
        let _ = self.update();
    }

    /// As [`Source::want_less`], and reading is not watched either if nobody reads.
    fn rest(&self) {
        let _ = self.base().apply(self.interest(), self.liveness());
    }

    /// Leaves the loop. The closing phase tells everybody who waits, and calls `on_closed` last.
    fn close(
        self: &Rc<Self>,
        site: Site,
        on_closed: impl FnOnce(&mut Context) + 'static,
    ) -> Result<(), SourceError> {
        let waiting = self.leave().ok_or(SourceError::Closed)?;
        let futures = self.tell_closed(waiting);
        self.base().run_in_closing(site, on_closed);
        futures.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Leaves the loop without telling anybody.
    fn abandon(&self) {
        drop(self.leave());
    }

    /// Nothing if it has left before.
    fn leave(&self) -> Option<Self::Waiting> {
        self.base().leave().then(|| self.take_waiting())
    }
}

/// What the loop can do with a source of any kind.
pub(crate) trait Registered {
    fn on_ready(self: Rc<Self>, context: &mut Context, readiness: Readiness);

    /// See [`Source::close`].
    fn close(self: Rc<Self>, site: Site, on_closed: OnClosed) -> Result<(), SourceError>;

    /// The loop has forgotten the source, which drops its callbacks: they will never be called.
    fn on_loop_gone(&self);
}

impl<S: Source> Registered for S {
    fn on_ready(self: Rc<Self>, context: &mut Context, readiness: Readiness) {
        self.base().turns.set(0);
        Source::on_ready(&self, context, readiness);
    }

    fn close(self: Rc<Self>, site: Site, on_closed: OnClosed) -> Result<(), SourceError> {
        Source::close(&self, site, on_closed)
    }

    fn on_loop_gone(&self) {
        self.abandon();
    }
}

/// Whether a source keeps the loop alive, and whether the loop keeps the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Liveness {
    /// Somebody waits for what comes in. It keeps the loop alive unless it was unreferenced.
    pub(super) is_active: bool,
    /// A write or a connect is under way. It keeps the loop alive in any case.
    pub(super) is_busy: bool,
    /// It goes on without a handle.
    pub(super) is_kept: bool,
}

/// The entry of a source in the loop's table of handles.
pub(crate) struct Registration {
    pub(crate) kind: AliveKind,
    source: Weak<dyn Registered>,
    kept: Option<Rc<dyn Registered>>,
    liveness: Liveness,
}

impl Registration {
    pub(crate) fn source(&self) -> Option<Rc<dyn Registered>> {
        self.source.upgrade()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.liveness.is_busy || self.liveness.is_active
    }

    pub(crate) fn keeps_alive(&self, referenced: bool) -> bool {
        self.liveness.is_busy || (referenced && self.liveness.is_active)
    }

    /// What is returned may be the last reference to the source, so no borrow may be held when it is dropped.
    fn set_liveness(&mut self, liveness: Liveness) -> Option<Rc<dyn Registered>> {
        self.liveness = liveness;
        let kept = if liveness.is_kept { self.source.upgrade() } else { None };
        std::mem::replace(&mut self.kept, kept)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(source) = self.source.upgrade() {
            source.on_loop_gone();
        }
    }
}

/// Why a source has no descriptor any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// A stream could not be connected.
    NotConnected,
    /// It was the writing end of a pipe, which was shut down.
    ShutDown,
    /// A child process has exited.
    Exited,
    /// The source has left the loop.
    Closed,
}

impl From<Gone> for SourceError {
    fn from(gone: Gone) -> SourceError {
        match gone {
            Gone::NotConnected => SourceError::NotConnected,
            Gone::ShutDown => SourceError::AlreadyShutDown,
            Gone::Exited => SourceError::AlreadyExited,
            Gone::Closed => SourceError::Closed,
        }
    }
}

/// What every source owns. Dropping it leaves the loop.
pub(super) struct Base {
    event_loop: LoopHandle,
    site: Site,
    /// Of the entry in the table of handles; also what the poller calls the descriptor.
    key: SlabKey,
    descriptor: RefCell<Result<Rc<OwnedFd>, Gone>>,
    /// The directions in which the poller watches the descriptor.
    watched: Cell<Interest>,
    liveness: Cell<Liveness>,
    next_ticket: Cell<u64>,
    /// How often futures read or wrote since the last event.
    turns: Cell<u32>,
}

impl Base {
    /// Enters the source, which is not watched yet, into the loop's table of handles. If the loop is gone, the source is closed
    /// from the start: nobody could take it out again.
    pub(super) fn new<S: Source>(
        event_loop: &LoopHandle,
        site: Site,
        kind: AliveKind,
        source: &Weak<S>,
        descriptor: Result<OwnedFd, Gone>,
    ) -> Base {
        let source: Weak<S> = source.clone();
        let registration = Registration { kind, source, kept: None, liveness: Liveness::default() };
        let shared = &event_loop.shared;
        let key = shared.handles.borrow_mut().insert(HandleKind::Source(registration), site).0;
        let descriptor = match shared.check_not_gone() {
            Ok(()) => descriptor.map(Rc::new),
            Err(_) => {
                let refused = shared.handles.borrow_mut().forget(key);
                drop(refused);
                Err(Gone::Closed)
            }
        };
        Base {
            event_loop: event_loop.clone(),
            site,
            key,
            descriptor: RefCell::new(descriptor),
            watched: Cell::new(Interest::NONE),
            liveness: Cell::new(Liveness::default()),
            next_ticket: Cell::new(0),
            turns: Cell::new(0),
        }
    }

    pub(super) fn event_loop(&self) -> &LoopHandle {
        &self.event_loop
    }

    /// Where the source was made.
    pub(super) fn site(&self) -> Site {
        self.site
    }

    /// # Errors
    /// Why there is no descriptor any more.
    pub(super) fn descriptor(&self) -> Result<Rc<OwnedFd>, SourceError> {
        Ok(self.descriptor.borrow().clone()?)
    }

    /// The address of this end of a socket.
    ///
    /// # Errors
    /// As [`Base::descriptor`], and what the system says, for example of what is no socket.
    pub(super) fn local_address<A: TryFrom<SocketAddrAny>>(&self) -> Result<A, SourceError>
    where
        SourceError: From<A::Error>,
    {
        transport::local_address(&*self.descriptor()?)
    }

    /// Its name in the loop's table.
    pub(super) fn id(&self) -> HandleId {
        HandleId(self.key)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.descriptor.borrow(), Err(Gone::Closed))
    }

    /// Lets go of the descriptor, which is not watched any more. The source stays in the table.
    pub(super) fn give_up(&self, why: Gone) {
        let descriptor = self.descriptor.replace(Err(why));
        let was_watched = !self.watched.replace(Interest::NONE).is_none();
        if let Ok(descriptor) = descriptor
            && was_watched
        {
            // The file may stay open: a `Descriptor` may have it, or another process.
            self.event_loop.shared.poller.remove(descriptor.as_fd());
        }
    }

    /// Leaves the poller and the table. False if it has left before.
    fn leave(&self) -> bool {
        if self.is_closed() {
            return false;
        }
        self.give_up(Gone::Closed);
        let forgotten = self.event_loop.shared.handles.borrow_mut().forget(self.key);
        drop(forgotten);
        true
    }

    /// Reading, if the descriptor is watched for that now.
    fn reading_interest(&self) -> Interest {
        let watched = self.watched.get();
        if watched | Interest::READ == watched { Interest::READ } else { Interest::NONE }
    }

    fn apply(&self, interest: Interest, liveness: Liveness) -> Result<(), SourceError> {
        let result = self.watch(interest);
        self.set_liveness(liveness);
        result
    }

    /// Lets the descriptor be watched for `interest` and for nothing else.
    fn watch(&self, interest: Interest) -> Result<(), SourceError> {
        let watched = self.watched.get();
        if watched == interest {
            return Ok(());
        }
        let Ok(descriptor) = self.descriptor() else { return Ok(()) };
        let shared = &self.event_loop.shared;
        if shared.handles.borrow().get(self.key).is_none() {
            return Err(SourceError::Closed);
        }
        shared.poller.change(descriptor.as_fd(), self.key.to_bits(), watched, interest)?;
        self.watched.set(interest);
        Ok(())
    }

    fn set_liveness(&self, liveness: Liveness) {
        if self.liveness.replace(liveness) == liveness {
            return;
        }
        let previously_kept =
            self.event_loop.shared.handles.borrow_mut().change(self.key, |handle| match &mut handle.kind {
                HandleKind::Source(registration) => registration.set_liveness(liveness),
                _ => None,
            });
        drop(previously_kept);
    }

    /// Futures that never have to wait would keep the loop from its other sources. After some turns they wait for an event
    /// as if they had to.
    pub(super) fn has_turns(&self) -> bool {
        self.turns.replace(self.turns.get().saturating_add(1)) < TURNS_PER_EVENT
    }

    /// A number for a future that waits, different from all others of this source.
    pub(super) fn next_ticket(&self) -> u64 {
        self.next_ticket.replace(self.next_ticket.get() + 1)
    }

    pub(super) fn run_in_closing(&self, site: Site, callback: impl FnOnce(&mut Context) + 'static) {
        self.event_loop.shared.closing.push(Callback::new(site, callback));
        self.event_loop.shared.drop_if_gone();
    }

    pub(super) fn ref_(&self) {
        self.event_loop.ref_(self.id());
    }

    pub(super) fn unref(&self) {
        self.event_loop.unref(self.id());
    }

    pub(super) fn is_referenced(&self) -> bool {
        self.event_loop.is_referenced(self.id())
    }

    pub(super) fn is_active(&self) -> bool {
        self.event_loop.is_active(self.id())
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        self.leave();
    }
}
