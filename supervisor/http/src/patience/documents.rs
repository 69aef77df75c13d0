//! The supervisor's own documents that the client of a connection has not read yet. They are charged to nobody, so their connection counts
//! them.

use super::Patience;
use crate::limits::{DOCUMENTS_MAX, STREAMS_MAX};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// See [`Patience::document`].
pub(crate) struct Document {
    patience: Rc<Patience>,
    bytes: usize,
}

impl Drop for Document {
    fn drop(&mut self) {
        self.patience.documents.set(self.patience.documents.get() - self.bytes);
        self.patience.wake_for_documents();
    }
}

impl Patience {
    /// A document of so many bytes, until this is dropped.
    pub(crate) fn document(self: &Rc<Patience>, bytes: usize) -> Document {
        self.documents.set(self.documents.get().saturating_add(bytes));
        Document { patience: Rc::clone(self), bytes }
    }

    /// Whether another document may be written.
    pub(crate) fn has_room_for_documents(&self) -> bool {
        self.documents.get() <= DOCUMENTS_MAX
    }

    /// The same; if not, the task is woken when there may be.
    pub(crate) fn poll_room_for_documents(&self, context: &Context<'_>) -> Poll<()> {
        if self.has_room_for_documents() {
            return Poll::Ready(());
        }
        // Some may be of requests that were taken back: now and then those that are left say so again.
        if self.waits_for_documents.borrow().len() >= 2 * STREAMS_MAX as usize {
            self.wake_for_documents();
        }
        let mut waiting = self.waits_for_documents.borrow_mut();
        if !waiting.iter().any(|other| other.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn wake_for_documents(&self) {
        let waiting = self.waits_for_documents.take();
        waiting.into_iter().for_each(Waker::wake);
    }
}
