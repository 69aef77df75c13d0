//! The place that a source has in its loop: its slot, what it is watched for, and whether it keeps the loop alive.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};

use crate::callback::{Callback, Site};
use crate::handles::{HandleId, Kind};
use crate::slab::Key;
use crate::{Context, Interest, LoopHandle, Readiness, SourceError};

/// What the loop knows of a source.
pub(crate) trait Source {
    /// The descriptor is ready. The source reads and calls its callbacks.
    fn on_ready(self: Rc<Self>, context: &mut Context, readiness: Readiness);

    /// The loop has forgotten the source. It drops its callbacks: nobody will call them any more.
    fn on_loop_gone(&self);
}

/// How a source takes part in the loop's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Life {
    /// Somebody waits for what comes in. It keeps the loop alive unless it was unreferenced.
    pub(super) is_active: bool,
    /// A write or a connect is under way. It keeps the loop alive in any case.
    pub(super) is_busy: bool,
    /// It goes on without a handle.
    pub(super) is_kept: bool,
}

/// The loop's side of a source.
pub(crate) struct Registration {
    source: Weak<dyn Source>,
    kept: Option<Rc<dyn Source>>,
    life: Life,
}

impl Registration {
    pub(crate) fn source(&self) -> Option<Rc<dyn Source>> {
        self.source.upgrade()
    }

    pub(crate) fn keeps_alive(&self, referenced: bool) -> bool {
        self.life.is_busy || (referenced && self.life.is_active)
    }

    /// What is returned may be the last of the source, so it is dropped by who holds no borrow.
    fn live(&mut self, life: Life) -> Option<Rc<dyn Source>> {
        self.life = life;
        let kept = if life.is_kept { self.source.upgrade() } else { None };
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

/// The source's side.
pub(super) struct Place {
    event_loop: LoopHandle,
    site: Site,
    key: Key,
    interest: Cell<Interest>,
    life: Cell<Life>,
    next_ticket: Cell<u64>,
}

impl Place {
    pub(super) fn new(event_loop: &LoopHandle, site: Site, source: Weak<dyn Source>) -> Place {
        let registration = Registration { source, kept: None, life: Life::default() };
        let id = event_loop.shared.handles.borrow_mut().insert(Kind::Source(registration), site);
        Place {
            event_loop: event_loop.clone(),
            site,
            key: id.0,
            interest: Cell::new(Interest::NONE),
            life: Cell::new(Life::default()),
            next_ticket: Cell::new(0),
        }
    }

    pub(super) fn event_loop(&self) -> &LoopHandle {
        &self.event_loop
    }

    /// Where the source was made.
    pub(super) fn site(&self) -> Site {
        self.site
    }

    pub(super) fn interest(&self) -> Interest {
        self.interest.get()
    }

    /// Lets the descriptor be watched for `interest` and for nothing else.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>, interest: Interest) -> Result<(), SourceError> {
        let current = self.interest.get();
        if current == interest {
            return Ok(());
        }
        let shared = &self.event_loop.shared;
        if shared.handles.borrow().get(self.key).is_none() {
            return Err(SourceError::Closed);
        }
        shared.poller.change(descriptor, self.key.to_bits(), current, interest)?;
        self.interest.set(interest);
        Ok(())
    }

    pub(super) fn live(&self, life: Life) {
        if self.life.replace(life) == life {
            return;
        }
        let changed =
            self.event_loop.shared.handles.borrow_mut().change(self.key, |handle| match &mut handle.kind {
                Kind::Source(registration) => registration.live(life),
                _ => None,
            });
        drop(changed);
    }

    /// Leaves the loop. Nothing happens if the loop has forgotten the source before.
    pub(super) fn leave(&self, descriptor: Option<BorrowedFd<'_>>) {
        if let Some(descriptor) = descriptor
            && !self.interest.replace(Interest::NONE).is_none()
        {
            self.event_loop.shared.poller.remove(descriptor);
        }
        let forgotten = self.event_loop.shared.handles.borrow_mut().forget(self.key);
        drop(forgotten);
    }

    pub(super) fn ref_(&self) {
        self.event_loop.ref_(HandleId(self.key));
    }

    pub(super) fn unref(&self) {
        self.event_loop.unref(HandleId(self.key));
    }

    pub(super) fn run_in_closing(&self, site: Site, callback: impl FnOnce(&mut Context) + 'static) {
        self.event_loop.shared.closing.push(Callback::new(site, callback));
    }

    /// A number for a future that waits, different from all others of this source.
    pub(super) fn next_ticket(&self) -> u64 {
        self.next_ticket.replace(self.next_ticket.get() + 1)
    }
}
