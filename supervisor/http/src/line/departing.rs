//! Small answers leave together, at the end of the turn of the event loop in which they were made: one send after the other, with
//! nothing else in between. So the code of a send is in the processor's cache for all of them but the first, and a client that
//! reads them all is woken once.
//!
//! ```text
//!   an answer of at most DEPARTING_MAX bytes ---> on the list ---- end of the turn: sent ----> gone
//!                                                                     '-- the socket is full: the rest waits for it
//!   anything else, after what waits: written at once
//! ```

use super::Line;
use crate::limits::DEPARTING_MAX;
use offload_event_loop::{HandleId, LoopHandle};
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

/// So many memories for answers are kept for the next ones.
const SPARE_MAX: usize = 64;

/// The connections of a server that have something to send at the end of this turn.
pub(crate) struct Departures {
    handle: LoopHandle,
    hook: HandleId,
    lists: Rc<Lists>,
}

#[derive(Default)]
struct Lists {
    lines: RefCell<Vec<Rc<Line>>>,
    spare: RefCell<Vec<Vec<u8>>>,
}

impl Departures {
    pub(crate) fn new(handle: &LoopHandle) -> Departures {
        let lists = Rc::<Lists>::default();
        let its = Rc::clone(&lists);
        let hook = handle.check(move |_| its.depart());
        handle.unref(hook);
        Departures { handle: handle.clone(), hook, lists }
    }
}

impl Drop for Departures {
    fn drop(&mut self) {
        // It is open, because nobody else closes it.
        let _ = self.handle.close(self.hook, |_| ());
    }
}

impl Lists {
    fn depart(&self) {
        let mut lines = self.lines.take();
        lines.drain(..).for_each(|line| line.depart());
        // The list keeps its memory. Nothing was added meanwhile, because whom this wakes runs later.
        let added = self.lines.replace(lines);
        self.lines.borrow_mut().extend(added);
    }
}

/// What a connection has taken over from hyper and not sent yet.
#[derive(Default)]
pub(super) struct Departing {
    bytes: RefCell<Vec<u8>>,
    sent: Cell<usize>,
    is_on_list: Cell<bool>,
    error: Cell<Option<io::ErrorKind>>,
    /// Of the connection's task.
    task: RefCell<Option<Waker>>,
    /// Everything is written at once from now on.
    is_off: Cell<bool>,
}

impl Departing {
    fn is_empty(&self) -> bool {
        self.bytes.borrow().is_empty()
    }

    fn append(&self, pieces: &[IoSlice<'_>], memory: impl FnOnce() -> Vec<u8>) {
        let mut bytes = self.bytes.borrow_mut();
        if bytes.capacity() == 0 {
            *bytes = memory();
        }
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    }

    fn remember(&self, task: &Waker) {
        let mut known = self.task.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(task)) {
            *known = Some(task.clone());
        }
    }
}

impl Line {
    /// From now on an answer is only taken over as far as the system takes it.
    pub(super) fn write_at_once(&self) {
        self.departing.is_off.set(true);
    }

    /// Takes over as many of the bytes as there is room for, and says how many.
    pub(super) fn poll_write(
        self: &Rc<Line>,
        context: &Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let departing = &self.departing;
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let may_depart = departing.is_empty() || departing.is_on_list.get();
        let fits = departing.bytes.borrow().len() + length <= DEPARTING_MAX;
        if fits && may_depart && self.transport.is_plain() && !departing.is_off.get() {
            let lists = &self.departures.lists;
            departing.append(pieces, || {
                lists.spare.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(DEPARTING_MAX))
            });
            if !departing.is_on_list.replace(true) {
                departing.remember(context.waker());
                lists.lines.borrow_mut().push(Rc::clone(self));
                // Were this turn's list sent already, the loop could sleep before the end of the next turn: not with an immediate.
                self.handle.set_immediate(|_| ());
            }
            return Poll::Ready(Ok(length));
        }
        ready!(self.poll_depart(context))?;
        self.transport.poll_write(context, pieces)
    }

    /// Whether something leaves at the end of this turn.
    pub(crate) fn departs(&self) -> bool {
        self.departing.is_on_list.get()
    }

    /// Sends what was taken over.
    pub(super) fn poll_depart(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        let departing = &self.departing;
        if let Some(error) = departing.error.take() {
            return Poll::Ready(Err(error.into()));
        }
        if departing.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = departing.bytes.borrow_mut();
        while departing.sent.get() < bytes.len() {
            let rest = IoSlice::new(&bytes[departing.sent.get()..]);
            let sent = ready!(self.transport.poll_write(context, &[rest]));
            departing.sent.set(departing.sent.get() + sent?);
        }
        departing.sent.set(0);
        bytes.clear();
        let memory = std::mem::take(&mut *bytes);
        let mut spare = self.departures.lists.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(memory);
        }
        Poll::Ready(Ok(()))
    }

    /// The end of the turn in which something was taken over.
    fn depart(&self) {
        let departing = &self.departing;
        departing.is_on_list.set(false);
        if departing.is_empty() {
            return;
        }
        let Some(task) = departing.task.borrow().clone() else { return };
        let departed = self.poll_depart(&Context::from_waker(&task));
        self.heed_flush(&departed);
        if let Poll::Ready(Err(error)) = departed {
            // It is told when the task looks.
            departing.error.set(Some(error.kind()));
            task.wake();
        }
    }
}
