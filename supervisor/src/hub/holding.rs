//! Reports to the ledger in the core how much memory this process holds for each client.
//!
//! An output is charged to its client from the moment when its worker has sent it. The charge ends when the last
//! receiver drops its [`OutputCharge`]. A receiver that writes the output to a socket first charges the bytes to its
//! own account, with [`Hub::hold`].

use super::{Hub, Then};
use offload_core::event::Event;
use offload_core::ids::{JobId, WorkerId};
use offload_core::ledger::Holding;
use offload_event_loop::LoopHandle;
use offload_protocol::nouns::ErrorDetail;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The charge for an output on its way to its receivers. When it is dropped, and all that share it are, the charge ends.
#[derive(Debug)]
pub(crate) enum OutputCharge {
    /// The output is charged to nobody.
    None,
    /// Nearly all outputs have one receiver.
    Of(ChargedBytes),
    Shared(Rc<ChargedBytes>),
}

impl OutputCharge {
    /// For an output that is charged to nobody.
    pub(crate) fn none() -> OutputCharge {
        OutputCharge::None
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, OutputCharge::None)
    }

    /// So many bytes more are charged, of an output that has one receiver.
    pub(super) fn grow(&mut self, more: u64) {
        if let OutputCharge::Of(charged) = self {
            charged.bytes += more;
        }
    }

    /// The same charge for another receiver: it ends when both are dropped.
    pub(crate) fn share(&mut self) -> OutputCharge {
        let shared = match std::mem::replace(self, OutputCharge::None) {
            OutputCharge::None => return OutputCharge::None,
            OutputCharge::Of(bytes) => Rc::new(bytes),
            OutputCharge::Shared(bytes) => bytes,
        };
        *self = OutputCharge::Shared(Rc::clone(&shared));
        OutputCharge::Shared(shared)
    }
}

/// What is charged, and to whom.
#[derive(Debug)]
pub(crate) struct ChargedBytes {
    client: Arc<str>,
    bytes: u64,
    ended_charges: EndedCharges,
}

impl Drop for ChargedBytes {
    /// The hub may be busy when this runs, so it only notes the bytes. The hub releases them later in this turn.
    fn drop(&mut self) {
        self.ended_charges.add(&self.client, self.bytes);
    }
}

/// Bytes that are to be released, for each client. Whoever drops a charge may do so at any time, also when nothing else happens
/// that the hub hears of, so the first one asks the hub to come.
#[derive(Clone)]
pub(super) struct EndedCharges(Rc<Ended>);

struct Ended {
    sums: RefCell<Sums>,
    /// Has the hub release them at the end of this turn.
    ask: Box<dyn Fn()>,
}

#[derive(Debug, Default)]
struct Sums {
    /// The one to which something was added last. Most often the next output is of the same client.
    last: Option<(Arc<str>, u64)>,
    others: BTreeMap<Arc<str>, u64>,
}

impl Sums {
    fn add(&mut self, client: &Arc<str>, bytes: u64) {
        match &mut self.last {
            Some((last, sum)) if Arc::ptr_eq(last, client) => *sum += bytes,
            _ => {
                self.put_away();
                self.last = Some((client.clone(), bytes));
            }
        }
    }

    fn put_away(&mut self) {
        if let Some((client, sum)) = self.last.take() {
            *self.others.entry(client).or_default() += sum;
        }
    }
}

impl fmt::Debug for EndedCharges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("EndedCharges").field(&self.0.sums).finish()
    }
}

impl EndedCharges {
    pub(super) fn new(ask: impl Fn() + 'static) -> EndedCharges {
        EndedCharges(Rc::new(Ended { sums: RefCell::default(), ask: Box::new(ask) }))
    }

    pub(super) fn is_empty(&self) -> bool {
        let sums = self.0.sums.borrow();
        sums.last.is_none() && sums.others.is_empty()
    }

    fn add(&self, client: &Arc<str>, bytes: u64) {
        let is_first = self.is_empty();
        self.0.sums.borrow_mut().add(client, bytes);
        if is_first {
            (self.0.ask)();
        }
    }

    pub(super) fn charge(&self, client: &Arc<str>, bytes: u64) -> OutputCharge {
        if bytes == 0 {
            return OutputCharge::None;
        }
        OutputCharge::Of(ChargedBytes { client: client.clone(), bytes, ended_charges: self.clone() })
    }

    pub(super) fn take(&self) -> BTreeMap<Arc<str>, u64> {
        let mut sums = self.0.sums.borrow_mut();
        sums.put_away();
        std::mem::take(&mut sums.others)
    }
}

/// The kept outputs that are on their way to clients, and some that were.
#[derive(Debug, Default)]
pub(super) struct ReadOutputs {
    of_jobs: BTreeMap<JobId, Weak<ChargedBytes>>,
    /// How many of them were read when this was last tidied.
    read: usize,
}

impl ReadOutputs {
    fn of(&self, job: JobId) -> Option<Rc<ChargedBytes>> {
        self.of_jobs.get(&job)?.upgrade()
    }

    fn add(&mut self, job: JobId, charged: &Rc<ChargedBytes>) {
        if self.of_jobs.len() > 2 * self.read + 64 {
            self.of_jobs.retain(|_, charged| charged.strong_count() > 0);
            self.read = self.of_jobs.len();
        }
        self.of_jobs.insert(job, Rc::downgrade(charged));
    }
}

impl Hub {
    /// Charges bytes to a client from now on.
    pub(crate) fn hold(&mut self, client: &Arc<str>, what: Holding, bytes: u64) {
        if bytes > 0 {
            self.handle_event(Event::Held { client: client.clone(), what, bytes });
        }
    }

    /// Releases bytes that were charged to a client.
    pub(crate) fn release(&mut self, client: &Arc<str>, what: Holding, bytes: u64) {
        if bytes > 0 {
            self.handle_event(Event::Released { client: client.clone(), what, bytes });
        }
    }

    /// Whether an input of this many bytes is accepted from this client, or so many more of one of which `came` bytes are held.
    pub(crate) fn has_room(&self, client: &str, bytes: u64, came: u64) -> bool {
        self.core.takes_in(client, bytes, came)
    }

    /// Like [`Hub::has_room`], with the reason.
    ///
    /// # Errors
    /// Why there is no room, and when to ask again.
    pub(crate) fn room_for(&self, client: &str, bytes: u64, came: u64) -> Result<(), ErrorDetail> {
        self.core.room_for(self.now(), client, bytes, came)
    }

    /// Whether memory is full: there is room for nothing.
    pub(crate) fn is_full(&self) -> bool {
        self.core.ledger().all().in_memory() >= self.core.config().max_bytes
    }

    /// Number of free bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.core.config().max_bytes.saturating_sub(self.core.ledger().all().total())
    }

    /// Calls `then` once, when bytes have been released.
    pub(crate) fn when_room(&mut self, then: Then) {
        self.callbacks.on_room(then);
    }

    /// Leaves the messages of a worker in its socket if the worker has more than one job and memory is over its limit.
    /// Returns true if they are left unread.
    ///
    /// Several jobs are given to one worker only where the outputs of their task and of their client were small, but
    /// the next output may be large. So the limit is exceeded by at most one large output a worker. The messages are
    /// read when there is room, and there will be room, because a client that does not read its outputs is
    /// disconnected. They are also read when a time limit is about to be applied.
    pub(super) fn leave_unread(&mut self, worker: WorkerId) -> bool {
        let load = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load());
        // What lies in its tray, the worker does not have yet. What it has not begun may be all that it has.
        let has_more = load.is_some_and(|load| {
            let begun = usize::from(load.running.is_some()) + load.together.len();
            begun + load.waiting.len() > 1 + usize::from(load.tray.is_some())
        });
        if !has_more || !self.core.ledger().is_over(self.core.config().max_bytes) {
            return false;
        }
        let Some(was_read) = self.processes.leave_unread(worker) else { return false };
        // One that is unread already, and has been asked again because it prints, will be read again anyway.
        if was_read {
            let me = self.me.clone();
            self.when_room(Box::new(move |_| Hub::with(&me, |hub| hub.read_again(worker))));
        }
        true
    }

    fn read_again(&mut self, worker: WorkerId) {
        if self.processes.read_again(worker) {
            self.schedule_end_of_turn();
        }
    }

    /// For [`EndedCharges::new`]: the hub comes at the end of this turn, once however often it is asked.
    pub(super) fn asker(me: Weak<RefCell<Hub>>, handle: LoopHandle) -> impl Fn() + 'static {
        let is_asked = Rc::new(Cell::new(false));
        move || {
            if is_asked.replace(true) {
                return;
            }
            let (me, is_asked) = (me.clone(), Rc::clone(&is_asked));
            handle.set_immediate(move |_| {
                is_asked.set(false);
                Hub::with(&me, |hub| {
                    if hub.records.has_ended_charges() {
                        hub.drain_inbox();
                        hub.schedule_end_of_turn();
                    }
                });
            });
        }
    }

    /// Charges a kept output until what is returned is dropped, unless somebody is charged for it.
    pub(crate) fn hold_output(&mut self, job: JobId, client: &Arc<str>, bytes: u64) -> OutputCharge {
        if let Some(charged) = self.records.read_outputs.of(job) {
            return OutputCharge::Shared(charged);
        }
        self.hold(client, Holding::Outgoing, bytes);
        let mut charge = self.records.charge_output(client, bytes);
        let shared = charge.share();
        if let OutputCharge::Shared(charged) = &shared {
            self.records.read_outputs.add(job, charged);
        }
        shared
    }

    pub(super) fn release_ended_charges(&mut self) {
        for (client, bytes) in self.records.take_ended_charges() {
            let event = Event::Released { client, what: Holding::Outgoing, bytes };
            self.inbox.push_back(event.into());
        }
    }
}
