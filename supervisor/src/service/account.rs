//! The memory that this process holds for one client: what it has sent of a request body, and what waits to be written to
//! it. The supervisor limits the sum over all clients, and the share of each; this is how a front tells it.
//!
//! ```text
//!   a body is announced ---> has_room(length)? -- no --> wait (Service::when_room), or refuse (Session::refuse_input)
//!                                  | yes
//!                                  v
//!   bytes come ------------> set_arriving(so many by now) ---> complete: Session::submit, set_arriving(0)
//!   answers are queued ----> set_outgoing(so many by now) ---> written: set_outgoing(0)
//!   dropped ---------------> everything is released
//! ```

use crate::front::Peer;
use crate::hub::HubRef;
use crate::job::account_name;
use offload_core::ledger::Holding;
use offload_protocol::nouns::{ErrorDetail, OutcomeCode};
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// See the module's documentation. A front says how much it holds *now*; what has changed is worked out here, and what is
/// held at the end is released when this is dropped, so no release can be forgotten.
pub struct Account {
    hub: HubRef,
    /// Known once the client has said its name.
    name: OnceCell<Arc<str>>,
    arriving: Cell<u64>,
    outgoing: Cell<u64>,
}

impl Account {
    pub(super) fn new(hub: HubRef) -> Account {
        Account { hub, name: OnceCell::new(), arriving: Cell::new(0), outgoing: Cell::new(0) }
    }

    /// The client's name is known; only the first one counts.
    pub(super) fn open(&self, client: &str, peer: Peer) {
        self.name.get_or_init(|| account_name(client, Some(peer)).into());
    }

    /// The name that is charged: the client's own, or its process. Empty before [`Session::introduce`](super::Session::introduce).
    pub fn name(&self) -> &str {
        self.name.get().map_or("", |name| name)
    }

    /// Whether a body of so many bytes, or so many more bytes of one, may be read now.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.hub.borrow().has_room(self.name(), bytes)
    }

    /// The error that tells the client why there is no room for a body of so many bytes. There may be room by now; then it
    /// says that there was none in time.
    pub(super) fn why_no_room(&self, bytes: u64) -> ErrorDetail {
        let why = self.hub.borrow().room_for(self.name(), bytes).err();
        why.unwrap_or_else(|| ErrorDetail {
            retry_after_ms: Some(100),
            ..ErrorDetail::new(
                OutcomeCode::Overloaded,
                format!("there was no room in time for {bytes} bytes of input; try again in about 100 ms"),
            )
        })
    }

    /// So many bytes of request bodies are in memory now. Before the client is introduced nothing is counted: a front reads
    /// no more than a greeting until then.
    pub fn set_arriving(&self, bytes: u64) {
        self.set(&self.arriving, Holding::Arriving, bytes);
    }

    /// So many bytes wait to be written to the client now. As [`Account::set_arriving`].
    pub fn set_outgoing(&self, bytes: u64) {
        self.set(&self.outgoing, Holding::Outgoing, bytes);
    }

    /// Bytes of a request body that are in memory, as they were last told.
    pub fn arriving(&self) -> u64 {
        self.arriving.get()
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
    /// The hub owns no session and no account, so it is not in the middle of anything here.
    fn drop(&mut self) {
        self.set_arriving(0);
        self.set_outgoing(0);
    }
}
