//! What is under way on a connection, each until it is dropped.

use super::{Pace, Patience};
use crate::limits::{BODY_QUOTA, READ_QUOTA};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// See [`Patience::has_unread`].
pub(crate) struct Unread {
    pub(super) patience: Rc<Patience>,
    pub(super) number: u64,
}

impl Unread {
    /// The client has made room for so much. Who reads many answers at once has to take as much of all of them as of one alone.
    pub(crate) fn was_read(&self, bytes: usize) {
        let now = self.patience.now();
        self.patience.unread.change(self.number, |pace, count| {
            pace.count(bytes, now, READ_QUOTA / count.max(1) as u64);
            pace.wait(now);
        });
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.patience.unread.remove(self.number);
    }
}

/// See [`Patience::document`].
pub(crate) struct Document {
    pub(super) patience: Rc<Patience>,
    pub(super) bytes: usize,
}

impl Drop for Document {
    fn drop(&mut self) {
        self.patience.documents.set(self.patience.documents.get() - self.bytes);
        self.patience.wake_for_documents();
    }
}

/// See [`Patience::body`].
pub(crate) struct BodyPace {
    pub(super) patience: Rc<Patience>,
    pub(super) number: u64,
}

impl BodyPace {
    /// Somebody waits for more of it.
    pub(crate) fn wait(&self) {
        self.change(Pace::wait);
    }

    /// So much of it came, and nobody waits for now.
    pub(crate) fn came(&self, bytes: usize) {
        self.change(|pace, now| pace.count(bytes, now, BODY_QUOTA));
    }

    fn change(&self, update: impl FnOnce(&mut Pace, Instant)) {
        let now = self.patience.now();
        self.patience.bodies.change(self.number, |pace, _| update(pace, now));
    }
}

impl Drop for BodyPace {
    fn drop(&mut self) {
        self.patience.bodies.remove(self.number);
    }
}

/// See [`Patience::delay`].
pub(crate) struct Delayed(pub(super) Rc<Patience>);

impl Drop for Delayed {
    fn drop(&mut self) {
        self.0.delayed.set(self.0.delayed.get() - 1);
    }
}

/// A request that is under way.
pub(crate) struct RequestMark(pub(super) Rc<Patience>, pub(super) Cell<Left>);

/// How much of the body of a request nobody wants any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing, or it is not known yet.
    #[default]
    Nothing,
    /// So little that hyper may have it already: then the connection goes on.
    Little,
    /// More than that, so hyper ends the connection behind the answer.
    Much,
}

impl RequestMark {
    pub(crate) fn patience(&self) -> &Rc<Patience> {
        &self.0
    }

    pub(crate) fn leave(&self, left: Left) {
        self.1.set(left);
    }

    pub(crate) fn left(&self) -> Left {
        self.1.get()
    }
}

impl Drop for RequestMark {
    fn drop(&mut self) {
        self.0.request_ends();
    }
}
