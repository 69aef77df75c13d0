//! What this process holds in memory for clients, as the core's ledger has to know it.
//!
//! An output is on its client's account from the moment when its worker has sent it. It is released when nobody has to
//! be told of it any more ([`Undelivered`]); a listener that writes it to a socket says before that, with
//! [`Hub::hold`], that it holds the bytes from now on.

use super::{Hub, Then};
use crate::core::event::Event;
use crate::core::ids::WorkerId;
use crate::core::ledger::Holding;
use offload_protocol::nouns::ErrorDetail;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// An output on its way to those who wait for it. When the last clone is dropped, it is released.
#[derive(Clone)]
pub(crate) struct Undelivered(
    #[expect(dead_code, reason = "it is there to be dropped")] Option<Rc<OnItsWay>>,
);

impl Undelivered {
    /// Of what is on nobody's account.
    pub(crate) fn nothing() -> Undelivered {
        Undelivered(None)
    }
}

struct OnItsWay {
    client: Arc<str>,
    bytes: u64,
    delivered: Delivered,
}

impl Drop for OnItsWay {
    /// The hub may be in the middle of something: it looks at these later.
    fn drop(&mut self) {
        *self.delivered.0.borrow_mut().entry(self.client.clone()).or_default() += self.bytes;
    }
}

/// Bytes that are to be released, by client.
#[derive(Clone, Default)]
pub(super) struct Delivered(Rc<RefCell<BTreeMap<Arc<str>, u64>>>);

impl Delivered {
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

impl Hub {
    /// Bytes are held for a client from now on.
    pub(crate) fn hold(&mut self, client: &Arc<str>, what: Holding, bytes: u64) {
        if bytes > 0 {
            self.tell(Event::Held { client: client.clone(), what, bytes });
        }
    }

    /// Bytes that were held for a client are let go.
    pub(crate) fn release(&mut self, client: &Arc<str>, what: Holding, bytes: u64) {
        if bytes > 0 {
            self.tell(Event::Released { client: client.clone(), what, bytes });
        }
    }

    /// Whether an input of so many bytes may come in for this client.
    pub(crate) fn has_room(&self, client: &str, bytes: u64) -> bool {
        self.core.takes_in(client, bytes)
    }

    /// The same.
    ///
    /// # Errors
    /// Why not, and when it is worth asking again.
    pub(crate) fn room_for(&self, client: &str, bytes: u64) -> Result<(), ErrorDetail> {
        self.core.room_for(client, bytes)
    }

    /// Whether so much is held that there is room for nothing.
    pub(crate) fn is_full(&self) -> bool {
        self.core.ledger().all().in_memory() >= self.core.config().max_bytes
    }

    /// How many bytes are free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.core.config().max_bytes.saturating_sub(self.core.ledger().all().total())
    }

    /// Calls `then` once, when bytes have been released.
    pub(crate) fn when_room(&mut self, then: Then) {
        self.on_room.push(then);
    }

    /// Leaves what a worker says in its socket, if it has more than one job and too much is held that nobody reads: jobs
    /// are given to a worker together only where the outputs of the task and of the client were small, but the next one
    /// need not be. So one large output a worker is the most that comes on top of the limit. It is read when there is room,
    /// which there will be, since who does not read is disconnected; or when a time limit is about to be applied.
    pub(super) fn leave_unread(&mut self, worker: WorkerId) -> bool {
        let load = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load());
        let has_more = load.is_some_and(|load| !load.waiting.is_empty());
        if !has_more || !self.core.ledger().is_over(self.core.config().max_bytes) {
            return false;
        }
        let Some(member) = self.crew.get_mut(worker) else { return false };
        member.is_unread = true;
        self.crew.mark(worker);
        let me = self.me.clone();
        self.when_room(Box::new(move |_| Hub::with(&me, |hub| hub.read_again(worker))));
        true
    }

    fn read_again(&mut self, worker: WorkerId) {
        let Some(member) = self.crew.get_mut(worker) else { return };
        member.is_unread = false;
        member.progress_at = Instant::now();
        self.crew.mark(worker);
        self.at_the_end_of_the_turn();
    }

    pub(super) fn undelivered(&self, client: &Arc<str>, bytes: u64) -> Undelivered {
        let on_its_way =
            || Rc::new(OnItsWay { client: client.clone(), bytes, delivered: self.delivered.clone() });
        Undelivered((bytes > 0).then(on_its_way))
    }

    pub(super) fn release_delivered(&mut self) {
        let delivered = std::mem::take(&mut *self.delivered.0.borrow_mut());
        for (client, bytes) in delivered {
            let event = Event::Released { client, what: Holding::Outgoing, bytes };
            self.inbox.push_back(event.into());
        }
    }
}
