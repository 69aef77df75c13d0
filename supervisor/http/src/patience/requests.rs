//! The requests that are under way on a connection, and what becomes of the answer to the last one.
//!
//! ```text
//!   none ---> under way ------------------------> ended: its answer may be unwritten ----> written, so there is none
//!                |    ^                                      |
//!                v    |                                      '---- nothing more is written: it never will be
//!             kept waiting on purpose, after a wrong token
//! ```

use super::Patience;
use offload_event_loop::JoinHandle;
use offload_supervisor::service::{InFlight, Pass};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Instant;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Requests {
    under_way: Cell<usize>,
    /// So many of them are kept waiting.
    delayed: Cell<usize>,
    /// The number of the last one.
    last: Cell<u64>,
    /// Over HTTP/1: nobody wants the rest of the body of the last one, and it has not come to its end.
    is_body_left: Cell<bool>,
    /// Over HTTP/1: reads that rest.
    reading: RefCell<Option<JoinHandle<()>>>,
    /// Since when the answer to the last one is written.
    written_at: Cell<Option<Instant>>,
    /// The end of an answer may still be with hyper.
    is_unwritten: Cell<bool>,
    /// Nothing more is written.
    is_at_its_end: Cell<bool>,
    /// Woken when a request ends, and when its answer is written.
    waits_for_end: RefCell<Option<Waker>>,
}

impl Requests {
    fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
        self.last.set(self.last.get() + 1);
        self.is_body_left.set(false);
        self.written_at.set(None);
    }

    fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.is_unwritten.set(true);
    }

    pub(super) fn are_under_way(&self) -> bool {
        self.under_way.get() > 0
    }

    /// Whether there is one that is not kept waiting.
    pub(super) fn are_answered(&self) -> bool {
        self.under_way.get() > self.delayed.get()
    }

    /// All of what there was to write is written. Whether that may be news.
    fn are_written(&self, now: Instant) -> bool {
        let is_news = self.is_unwritten.replace(false);
        if is_news {
            self.written_at.set(Some(now));
        }
        is_news
    }

    /// Since when nothing is done but reading what nobody wants.
    pub(super) fn only_reads_rest_since(&self) -> Option<Instant> {
        self.written_at.get().filter(|_| self.is_body_left.get())
    }

    /// Gives up what is left of the body of the last one.
    pub(super) fn read_no_rest(&self) {
        let reading = self.reading.take();
        reading.into_iter().for_each(|reading| reading.cancel());
    }

    fn wait_for_end(&self, context: &Context<'_>) {
        drop(self.waits_for_end.replace(Some(context.waker().clone())));
    }

    fn wake_at_end(&self) {
        self.waits_for_end.take().into_iter().for_each(Waker::wake);
    }
}

impl Patience {
    /// A request is under way until the mark is dropped.
    pub(crate) fn request_begins(self: &Rc<Patience>, in_flight: InFlight) -> RequestMark {
        self.requests.begin();
        // While nothing was under way, the timer looked for nothing but the idle connection.
        self.look_by(self.now() + self.longest_rest());
        let pass = in_flight.pass();
        let (patience, in_flight) = (Rc::clone(self), RefCell::new(Some(in_flight)));
        RequestMark { patience, left: Cell::default(), goes_on: RefCell::default(), in_flight, pass }
    }

    fn request_ends(&self) {
        self.requests.end();
        self.ahead.ends();
        self.idle.begins_again(self.now());
        self.note_freedom();
        self.requests.wake_at_end();
    }

    /// Whether a request is under way.
    pub(crate) fn is_answering(&self) -> bool {
        self.requests.are_under_way()
    }

    /// The same; if one is, the task is woken when it ends.
    pub(crate) fn has_request(&self, context: &Context<'_>) -> bool {
        let has_request = self.is_answering();
        if has_request {
            self.requests.wait_for_end(context);
        }
        has_request
    }

    /// Whether one is, or its answer has not been written as far as the client takes it. If so, the task is woken when that changes.
    pub(crate) fn owes_answer(&self, context: &Context<'_>) -> bool {
        let owes_answer = self.is_answering() || self.is_unwritten();
        if owes_answer {
            self.requests.wait_for_end(context);
        }
        owes_answer
    }

    /// Whether the end of an answer may still be with hyper.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.requests.is_unwritten.get()
    }

    /// The client took everything that there was.
    pub(crate) fn nothing_is_left(&self) {
        self.reader.took_all();
        self.idle.begins_again(self.now());
        if self.requests.are_written(self.now()) {
            self.requests.wake_at_end();
        }
    }

    /// From now on nothing more is written.
    pub(crate) fn connection_ends(&self) {
        self.requests.is_at_its_end.set(true);
    }

    /// Whether what was not written never will be.
    pub(crate) fn is_at_its_end(&self) -> bool {
        self.requests.is_at_its_end.get()
    }

    /// Whether nobody reads the rest of the body of the request under way.
    pub(crate) fn is_body_left(&self) -> bool {
        self.requests.is_body_left.get()
    }

    /// The number of the last request.
    pub(crate) fn last_request(&self) -> u64 {
        self.requests.last.get()
    }

    /// Over HTTP/1: while the rest of the body of the last request is left, this reads it.
    pub(crate) fn reads_rest(&self, reading: JoinHandle<()>) {
        drop(self.requests.reading.replace(Some(reading)));
    }

    /// The rest of the body of this request has come to its end.
    pub(crate) fn rest_was_read(&self, number: u64) {
        if number == self.last_request() {
            self.requests.is_body_left.set(false);
        }
    }

    /// A request is kept waiting on purpose until this is dropped.
    pub(crate) fn delay(self: &Rc<Patience>) -> Delayed {
        self.requests.delayed.set(self.requests.delayed.get() + 1);
        Delayed(Rc::clone(self))
    }
}

/// See [`Patience::delay`].
pub(crate) struct Delayed(Rc<Patience>);

impl Drop for Delayed {
    fn drop(&mut self) {
        self.0.requests.delayed.set(self.0.requests.delayed.get() - 1);
    }
}

/// A request that is under way.
pub(crate) struct RequestMark {
    patience: Rc<Patience>,
    left: Cell<Left>,
    goes_on: RefCell<Option<GoesOn>>,
    /// While its answer is waited for.
    in_flight: RefCell<Option<InFlight>>,
    pass: Pass,
}

/// A job that goes on without the client of its request.
#[derive(Debug)]
pub(crate) struct GoesOn {
    pub(crate) job: String,
    /// The path of its resource, if the answer would name it.
    pub(crate) place: Option<String>,
}

/// How much of the body of a request nobody wants any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing, or it is not known yet.
    #[default]
    Nothing,
    /// So little that it is read: if it comes, the connection goes on.
    Little,
    /// Nobody knows: its length is not stated. It is read like a little.
    Unstated,
    /// It is not read, so hyper ends the connection behind the answer.
    Much,
}

impl RequestMark {
    pub(crate) fn patience(&self) -> &Rc<Patience> {
        &self.patience
    }

    /// So much of the body of the request is left, and nobody wants it.
    pub(crate) fn leave(&self, left: Left) {
        self.left.set(left);
        self.patience.requests.is_body_left.set(left != Left::Nothing);
    }

    /// The connection is to end behind the answer, so nothing is read of the rest.
    pub(crate) fn reads_no_rest(&self) {
        self.patience.requests.read_no_rest();
    }

    pub(crate) fn left(&self) -> Left {
        self.left.get()
    }

    pub(crate) fn has_job_that_goes_on(&self, job: GoesOn) {
        self.goes_on.replace(Some(job));
    }

    /// It does not go on any more, though its request may.
    pub(crate) fn job_has_ended(&self, job: &str) {
        self.goes_on.borrow_mut().take_if(|it| it.job == job);
    }

    /// The last one, if there is one.
    pub(crate) fn job_that_goes_on(&self) -> Option<GoesOn> {
        self.goes_on.take()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::tests::seconds;

    #[test]
    fn a_request_is_answered_until_it_ends_unless_it_is_kept_waiting() {
        let requests = Requests::default();
        requests.begin();
        assert!(requests.are_under_way() && requests.are_answered());
        requests.delayed.set(1);
        assert!(requests.are_under_way() && !requests.are_answered());
        requests.begin();
        assert!(requests.are_answered(), "another one is");
        requests.delayed.set(0);
        requests.end();
        requests.end();
        assert!(!requests.are_under_way() && !requests.are_answered());
    }

    #[test]
    fn an_answer_is_written_once_and_the_rest_of_a_body_is_of_one_request() {
        let requests = Requests::default();
        requests.begin();
        let now = Instant::now();
        assert!(!requests.are_written(now), "its answer has not begun");
        requests.is_body_left.set(true);
        requests.end();
        assert!(requests.are_written(now) && !requests.are_written(now + seconds(1)));
        assert_eq!(requests.only_reads_rest_since(), Some(now));
        requests.begin();
        assert!(!requests.is_body_left.get() && requests.only_reads_rest_since().is_none());
    }
}
