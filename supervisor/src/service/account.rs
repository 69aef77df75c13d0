//! The memory that this process holds for one client: the received part of a request body, and the answers that wait
//! to be written. The supervisor limits the sum over all clients, and the share of each client. A front reports what
//! it holds here.
//!
//! ```text
//!   a body is announced ---> has_room(length)? -- no --> wait (Service::when_room), or refuse (refuse_input)
//!                                  | yes
//!                                  v
//!   bytes arrive ----------> set_arriving(total by now) ---> all are there: set_arriving(0), Session::submit
//!                                                              (in this order: the job's own input counts from then on)
//!   answers are queued ----> set_outgoing(total by now) ---> written: set_outgoing(0)
//!   dropped ---------------> everything is released
//! ```

use super::Asker;
use crate::hub::{HubRef, OutputCharge};
use offload_core::ids::JobId;
use offload_core::ledger::Holding;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// The memory held for one client. A front reports the current total; the difference is computed here. Dropping the
/// account releases what is still held, so no release can be forgotten.
#[must_use = "dropping it releases what is charged"]
pub struct Account {
    hub: HubRef,
    /// Set once the client has stated its name.
    name: OnceCell<Arc<str>>,
    arriving: Cell<u64>,
    outgoing: Cell<u64>,
}

impl Account {
    pub(super) fn new(hub: HubRef) -> Account {
        Account { hub, name: OnceCell::new(), arriving: Cell::new(0), outgoing: Cell::new(0) }
    }

    /// Sets who is charged. Only the first call counts.
    pub(super) fn open(&self, asker: &Asker) {
        self.name.get_or_init(|| Arc::clone(asker.account()));
    }

    /// The name that is charged: the client's own, or its process. Empty before
    /// [`Session::introduce`](super::Session::introduce).
    pub fn name(&self) -> &str {
        self.name.get().map_or("", |name| name)
    }

    /// The name that is charged, for somebody to keep.
    pub(super) fn shared_name(&self) -> Arc<str> {
        self.name.get().map_or_else(Arc::default, Arc::clone)
    }

    /// Whether a body of this many bytes, or this many more bytes of the body that is arriving, may be read now.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.hub.borrow().has_room(self.name(), bytes, self.arriving.get())
    }

    /// The error that tells the client why there is no room for a body of this many bytes. If there is room by now,
    /// the error says that there was none in time.
    pub(super) fn why_no_room(&self, bytes: u64) -> ErrorDetail {
        let why = self.hub.borrow().room_for(self.name(), bytes, self.arriving.get()).err();
        why.unwrap_or_else(|| ErrorDetail {
            retry_after_ms: Some(100),
            ..ErrorDetail::for_anybody(
                OutcomeCode::Overloaded,
                format!("there was no room in time for {bytes} bytes of input; try again in about 100 ms"),
            )
        })
    }

    /// Reports how many bytes of request bodies are in memory now. Before the client is introduced nothing is counted;
    /// until then a front reads no more than a greeting.
    pub fn set_arriving(&self, bytes: u64) {
        self.set(&self.arriving, Holding::Arriving, bytes);
    }

    /// Reports how many bytes wait to be written to the client now. Before the client is introduced nothing is
    /// counted.
    pub fn set_outgoing(&self, bytes: u64) {
        self.set(&self.outgoing, Holding::Outgoing, bytes);
    }

    /// The bytes of request bodies in memory, as last reported.
    pub fn arriving(&self) -> u64 {
        self.arriving.get()
    }

    /// Charges an output that is kept, and now is also on its way to the client, until what is returned is dropped. If it is on its way
    /// to another one, that is charged: it is in memory once.
    pub(super) fn hold_output(&self, job: JobId, bytes: usize) -> OutputCharge {
        match self.name.get() {
            Some(name) => self.hub.borrow_mut().hold_output(job, name, bytes as u64),
            None => OutputCharge::none(),
        }
    }

    fn set(&self, held: &Cell<u64>, what: Holding, now: u64) {
        let Some(name) = self.name.get() else { return };
        let before = held.replace(now);
        if now == before {
            return;
        }
        let mut hub = self.hub.borrow_mut();
        match now > before {
            true => hub.hold(name, what, now - before),
            false => hub.release(name, what, before - now),
        }
    }
}

impl Drop for Account {
    /// The hub owns no session and no account, so it is not borrowed while this runs.
    fn drop(&mut self) {
        self.set_arriving(0);
        self.set_outgoing(0);
    }
}
