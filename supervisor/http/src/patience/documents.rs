//! The supervisor's own documents that the client of a connection has not read yet. They are charged to nobody, so their connection counts
//! them.
//!
//! ```text
//!   Room ---- more than DOCUMENTS_MAX bytes are unread ----> Full: whoever wants to write another one waits
//!     ^                                                        |
//!     '------------------ enough was read ---------------------'
//! ```

use super::Patience;
use crate::limits::{DOCUMENTS_MAX, STREAMS_MAX};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Documents {
    bytes: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

impl Documents {
    fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    fn remove(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() - bytes);
        self.wake_all();
    }

    fn have_room(&self) -> bool {
        self.bytes.get() <= DOCUMENTS_MAX
    }

    fn wait(&self, context: &Context<'_>) {
        // Some may be of requests that were taken back: now and then those that are left say so again.
        if self.waiting.borrow().len() >= 2 * STREAMS_MAX as usize {
            self.wake_all();
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|other| other.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
    }

    fn wake_all(&self) {
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Patience {
    /// A document of so many bytes, until this is dropped.
    pub(crate) fn document(self: &Rc<Patience>, bytes: usize) -> Document {
        self.documents.add(bytes);
        Document { patience: Rc::clone(self), bytes }
    }

    /// Whether another document may be written.
    pub(crate) fn has_room_for_documents(&self) -> bool {
        self.documents.have_room()
    }

    /// The same; if not, the task is woken when there may be.
    pub(crate) fn poll_room_for_documents(&self, context: &Context<'_>) -> Poll<()> {
        if self.documents.have_room() {
            return Poll::Ready(());
        }
        self.documents.wait(context);
        Poll::Pending
    }
}

/// See [`Patience::document`].
pub(crate) struct Document {
    patience: Rc<Patience>,
    bytes: usize,
}

impl Drop for Document {
    fn drop(&mut self) {
        self.patience.documents.remove(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }

    #[test]
    fn documents_wait_until_those_before_them_were_read_and_requests_that_are_gone_leave_little() {
        let documents = Documents::default();
        documents.add(DOCUMENTS_MAX + 1);
        for _ in 0..1000 {
            let waker = Waker::from(Arc::new(Woken::default()));
            documents.wait(&Context::from_waker(&waker));
            assert!(documents.waiting.borrow().len() <= 2 * STREAMS_MAX as usize);
        }
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        documents.wait(&Context::from_waker(&waker));
        assert!(!woken.0.load(Relaxed) && !documents.have_room());
        documents.remove(DOCUMENTS_MAX + 1);
        assert!(woken.0.load(Relaxed) && documents.have_room());
    }
}
