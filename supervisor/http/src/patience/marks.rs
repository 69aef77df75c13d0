//! What is under way on a connection, each until it is dropped.

use super::{GivenUp, Pace, Patience};
use crate::limits::{BODY_QUOTA, READ_QUOTA};
use offload_supervisor::service::{InFlight, Pass};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Context;
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

/// See [`Patience::body`].
pub(crate) struct BodyPace {
    pub(super) patience: Rc<Patience>,
    pub(super) number: u64,
    pub(super) given_up: Rc<GivenUp>,
}

impl BodyPace {
    /// Somebody waits for more of it, and is woken when it is late.
    pub(crate) fn wait(&self, context: &Context<'_>) {
        self.change(Pace::wait);
        self.given_up.wait(context);
    }

    /// Whether it did not come in time: whoever waits for it has to give it up.
    pub(crate) fn is_late(&self) -> bool {
        self.given_up.is_it()
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
pub(crate) struct RequestMark {
    patience: Rc<Patience>,
    left: Cell<Left>,
    /// While its answer is waited for.
    in_flight: RefCell<Option<InFlight>>,
    pass: Pass,
}

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
    pub(super) fn new(patience: Rc<Patience>, in_flight: InFlight) -> RequestMark {
        let pass = in_flight.pass();
        RequestMark { patience, left: Cell::default(), in_flight: RefCell::new(Some(in_flight)), pass }
    }

    pub(crate) fn patience(&self) -> &Rc<Patience> {
        &self.patience
    }

    /// So much of the body of the request is left, and nobody wants it.
    pub(crate) fn leave(&self, left: Left) {
        self.left.set(left);
        self.patience.is_body_left.set(left != Left::Nothing);
    }

    pub(crate) fn left(&self) -> Left {
        self.left.get()
    }

    /// For its jobs.
    pub(crate) fn pass(&self) -> Pass {
        self.pass
    }

    /// What comes now may have no end, so a drain does not wait for it. It has some time behind the jobs.
    pub(crate) fn is_answered_by_a_stream(&self) {
        let done = self.in_flight.take();
        drop(done);
    }
}

impl Drop for RequestMark {
    fn drop(&mut self) {
        self.patience.request_ends();
    }
}
