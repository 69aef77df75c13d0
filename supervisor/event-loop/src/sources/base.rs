//! What all sources share: their entry in the loop's table of handles, what their descriptor is watched for, and whether
//! they keep the loop alive.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};

use super::{SourceError, TURNS_PER_EVENT};
use crate::callback::{Callback, Site};
use crate::handles::{HandleId, Kind};
use crate::slab::Key;
use crate::{AliveKind, Context, Interest, LoopHandle, Readiness};

/// What the loop knows of a source.
pub(crate) trait Source {
    /// The descriptor is ready. The source reads and calls its callbacks.
    fn on_ready(self: Rc<Self>, context: &mut Context, readiness: Readiness);

    /// The loop has forgotten the source. It drops its callbacks: they will never be called.
    fn on_loop_gone(&self);
}

/// Whether a source keeps the loop alive, and the loop keeps the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Liveness {
    /// Somebody waits for what comes in. It keeps the loop alive unless it was unreferenced.
    pub(super) is_active: bool,
    /// A write or a connect is under way. It keeps the loop alive in any case.
    pub(super) is_busy: bool,
    /// It goes on without a handle.
    pub(super) is_kept: bool,
}

/// The loop's side of a source.
pub(crate) struct Registration {
    pub(crate) kind: AliveKind,
    source: Weak<dyn Source>,
    kept: Option<Rc<dyn Source>>,
    life: Liveness,
}

impl Registration {
    pub(crate) fn source(&self) -> Option<Rc<dyn Source>> {
        self.source.upgrade()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.life.is_busy || self.life.is_active
    }

    pub(crate) fn keeps_alive(&self, referenced: bool) -> bool {
        self.life.is_busy || (referenced && self.life.is_active)
    }

    /// What is returned may be the last reference to the source, so no borrow may be held when it is dropped.
    fn set_life(&mut self, life: Liveness) -> Option<Rc<dyn Source>> {
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
pub(super) struct SourceBase {
    event_loop: LoopHandle,
    site: Site,
    key: Key,
    interest: Cell<Interest>,
    life: Cell<Liveness>,
    next_ticket: Cell<u64>,
    /// How often futures took something in, or wrote, since the last event.
    turns: Cell<u32>,
}

impl SourceBase {
    pub(super) fn new<S: Source + 'static>(
        event_loop: &LoopHandle,
        site: Site,
        kind: AliveKind,
        source: &Weak<S>,
    ) -> SourceBase {
        let source: Weak<S> = source.clone();
        let registration = Registration { kind, source, kept: None, life: Liveness::default() };
        let id = event_loop.shared.handles.borrow_mut().insert(Kind::Source(registration), site);
        SourceBase {
            event_loop: event_loop.clone(),
            site,
            key: id.0,
            interest: Cell::new(Interest::NONE),
            life: Cell::new(Liveness::default()),
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

    /// Reading, if the descriptor is watched for that now.
    pub(super) fn reading_interest(&self) -> Interest {
        let current = self.interest.get();
        if current | Interest::READ == current { Interest::READ } else { Interest::NONE }
    }

    /// An event has come, so futures have all their turns again.
    pub(super) fn begin_event(&self) {
        self.turns.set(0);
    }

    /// Futures that never have to wait would keep the loop from its other sources. After some turns they wait for an event
    /// as if they had to.
    pub(super) fn has_turns(&self) -> bool {
        self.turns.replace(self.turns.get().saturating_add(1)) < TURNS_PER_EVENT
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

    pub(super) fn set_life(&self, life: Liveness) {
        if self.life.replace(life) == life {
            return;
        }
        let changed =
            self.event_loop.shared.handles.borrow_mut().change(self.key, |handle| match &mut handle.kind {
                Kind::Source(registration) => registration.set_life(life),
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

    pub(super) fn is_referenced(&self) -> bool {
        self.event_loop.is_referenced(HandleId(self.key))
    }

    pub(super) fn is_active(&self) -> bool {
        self.event_loop.is_active(HandleId(self.key))
    }

    pub(super) fn run_in_closing(&self, site: Site, callback: impl FnOnce(&mut Context) + 'static) {
        self.event_loop.shared.closing.push(Callback::new(site, callback));
    }

    /// A number for a future that waits, different from all others of this source.
    pub(super) fn next_ticket(&self) -> u64 {
        self.next_ticket.replace(self.next_ticket.get() + 1)
    }
}

/// The methods of every source about keeping the loop alive.
macro_rules! impl_references {
    ($source:ident) => {
        impl $source {
            /// Lets the loop end although somebody waits for what comes in here. What is under way, such as a write or a
            /// connect, still keeps it alive.
            pub fn unref(&self) {
                self.inner.base.unref();
            }

            #[doc = concat!("Undoes [`", stringify!($source), "::unref`].")]
            pub fn ref_(&self) {
                self.inner.base.ref_();
            }

            /// Whether it keeps the loop alive while it is active. False after `unref`, and once it is closed.
            pub fn is_referenced(&self) -> bool {
                self.inner.base.is_referenced()
            }

            /// Whether somebody waits for it, or something is under way. False once it is closed.
            pub fn is_active(&self) -> bool {
                self.inner.base.is_active()
            }
        }
    };
}

pub(super) use impl_references;
