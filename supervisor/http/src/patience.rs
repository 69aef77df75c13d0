//! How long a connection may take, with one timer for all of its limits.
//!
//! ```text
//!   a new connection ---------------------------.
//!                                               v
//!   Idle ----- the first byte of a head -----> Head ----- the head is complete -----> requests are under way
//!    ^  within IDLE_TIME                        |  within HEAD_TIME                     |-- a body that is waited for:
//!    |                                          '--> 408                                |   BODY_TIME for each BODY_QUOTA,
//!    |                                                                                  |   and BODY_IN_ALL with its length
//!    '--------------------------- the last answer is written ---------------------------|-- an answer that is not taken:
//!                                                                                       |   READ_TIME for each READ_QUOTA
//!                                                                                       '-- more is sent ahead than there is
//!                                                                                           room for: AHEAD_TIME
//! ```
//!
//! What counts is the time in which the client kept us waiting, not the time in which we kept the client waiting, and not a time in
//! which this process did not run: the clock stands still then. A limit that has passed is looked at again after the loop has read
//! what came meanwhile; and the connections of which thousands are late at once are ended a few in each millisecond, because the
//! others should not wait for that.

mod documents;
mod ending;
mod given_up;
mod keeper;
mod marks;
mod pace;

use crate::frames::{Passed, Rest};
use crate::limits::{
    AHEAD_TIME, BODY_IN_ALL, BODY_RATE, BODY_TIME, GUESSES_MAX, HEAD_TIME, IDLE_TIME, LINGER_TIME,
    READ_QUOTA, READ_TIME,
};
use crate::quiet::Quiet;
pub(crate) use documents::Document;
pub(crate) use given_up::GivenUp;
pub(crate) use keeper::Timekeeper;
pub(crate) use marks::{BodyPace, Delayed, Left, RequestMark, Unread};
use offload_event_loop::TimerId;
use offload_supervisor::pauses::Running;
use offload_supervisor::service::InFlight;
use pace::{Pace, Paces};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Instant;

/// The limit that a client has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    Head,
    Idle,
    Body,
    /// The answer to one of its requests was not read.
    Answer,
    /// Nothing that is written was read.
    Reader,
    /// The next requests did not find room in time.
    Ahead,
    /// It has shown too many wrong tokens: no limit of time, but of patience all the same.
    Guesses,
    /// The connection was to end, and the client did not close it.
    Linger,
}

impl Late {
    /// For the log and for the client.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Late::Head => "the head of the request did not come in time",
            Late::Idle => "no request came in time",
            Late::Body => "the body of the request did not come in time",
            Late::Answer | Late::Reader => "the answer was not read in time",
            Late::Ahead => "too many requests were sent ahead",
            Late::Guesses => "too many wrong tokens were shown",
            Late::Linger => "the connection was not closed in time",
        }
    }
}

type OnLate = Box<dyn Fn(Late)>;

/// What is known of one connection. See the module's documentation.
pub(crate) struct Patience {
    pub(crate) keeper: Rc<Timekeeper>,
    _running: Running,
    timer: Cell<Option<(TimerId, Instant)>>,
    on_late: RefCell<Option<OnLate>>,
    /// This limit had passed when it was last looked at, and when that was.
    warned: Cell<Option<(Late, Instant)>>,
    idle_since: Cell<Instant>,
    head_since: Cell<Option<Instant>>,
    linger_since: Cell<Option<Instant>>,
    /// It is to end with its last request.
    is_ending: Cell<bool>,
    /// Since when it is to end and nothing holds it: no request is under way, and no answer is unwritten.
    free_to_end_since: Cell<Option<Instant>>,
    /// Pieces of answers that HTTP/2 has taken and not written.
    unwritten: Cell<usize>,
    /// Since when there has been no room for requests that are sent ahead of an answer.
    ahead_since: Cell<Option<Instant>>,
    requests: Cell<usize>,
    /// Its number, once it is among the others, and whether it has asked for something that not everybody is answered.
    connection: Cell<u64>,
    is_known: Cell<bool>,
    /// Wrong tokens, and how many of the requests are kept waiting for that.
    guesses: Cell<u32>,
    delayed: Cell<usize>,
    /// The bodies that were waited for.
    bodies: Paces,
    answer: Cell<Pace>,
    /// Bodies of answers of which there is more than was asked for: over HTTP/2 a client can keep them without the socket being
    /// full.
    unread: Paces,
    /// Bytes of the supervisor's own documents, and who waits until some of them were read.
    documents: Cell<usize>,
    waits_for_documents: RefCell<Vec<Waker>>,
    /// Over HTTP/1: nobody wants the rest of the body of the request under way.
    is_body_left: Cell<bool>,
    /// The end of an answer may still be with hyper.
    is_unwritten: Cell<bool>,
    /// Woken when a request ends, and when its answer is written.
    waits_for_end: RefCell<Option<Waker>>,
    is_at_its_end: Cell<bool>,
    /// What wakes the task of the connection, over HTTP/1.
    pub(crate) quiet: Quiet,
}

impl Patience {
    /// A connection that was just accepted.
    pub(crate) fn new(keeper: &Rc<Timekeeper>) -> Rc<Patience> {
        let running = keeper.clock.hold();
        let now = keeper.clock.now();
        Rc::new(Patience {
            keeper: Rc::clone(keeper),
            _running: running,
            timer: Cell::new(None),
            on_late: RefCell::new(None),
            warned: Cell::new(None),
            idle_since: Cell::new(now),
            head_since: Cell::new(Some(now)),
            linger_since: Cell::new(None),
            is_ending: Cell::new(false),
            free_to_end_since: Cell::new(None),
            unwritten: Cell::new(0),
            ahead_since: Cell::new(None),
            requests: Cell::new(0),
            connection: Cell::new(0),
            is_known: Cell::new(false),
            guesses: Cell::new(0),
            delayed: Cell::new(0),
            bodies: Paces::default(),
            answer: Cell::default(),
            unread: Paces::default(),
            documents: Cell::new(0),
            waits_for_documents: RefCell::default(),
            is_body_left: Cell::new(false),
            is_unwritten: Cell::new(false),
            waits_for_end: RefCell::default(),
            is_at_its_end: Cell::new(false),
            quiet: Quiet::default(),
        })
    }

    /// Calls `on_late` when a limit has passed, as often as that happens.
    pub(crate) fn watch(self: &Rc<Patience>, on_late: impl Fn(Late) + 'static) {
        self.on_late.replace(Some(Box::new(on_late)));
        self.look_again_at(self.now() + HEAD_TIME);
    }

    fn now(&self) -> Instant {
        self.keeper.clock.now()
    }

    /// The first byte of a head has come, if that is not known yet.
    pub(crate) fn head_begins(self: &Rc<Patience>) {
        if self.head_since.get().is_some() {
            return;
        }
        let now = self.now();
        self.head_since.set(Some(now));
        if self.timer.get().is_none_or(|(_, at)| at > now + HEAD_TIME) {
            self.look_again_at(now + HEAD_TIME);
        }
    }

    /// The head is complete.
    pub(crate) fn head_is_there(&self) {
        self.head_since.set(None);
        self.idle_since.set(self.now());
    }

    /// Over HTTP/2: what is unfinished has its time from when it began.
    pub(crate) fn frames_came(self: &Rc<Patience>, passed: Passed) {
        if passed.has_ended {
            self.idle_since.set(self.now());
        }
        if passed.rest != Rest::SameAsBefore {
            self.head_since.set(None);
        }
        if passed.rest != Rest::Nothing {
            self.head_begins();
        }
    }

    /// A request is under way until the mark is dropped.
    pub(crate) fn request_begins(self: &Rc<Patience>, in_flight: InFlight) -> RequestMark {
        self.requests.set(self.requests.get() + 1);
        self.is_body_left.set(false);
        RequestMark::new(Rc::clone(self), in_flight)
    }

    /// There is no room for more requests until the one under way is answered.
    pub(crate) fn much_is_ahead(&self) {
        self.ahead_since.set(self.ahead_since.get().or(Some(self.now())));
    }

    /// A wrong token was shown. True if it was the last one: the connection is about to end.
    pub(crate) fn guess_was_wrong(&self) -> bool {
        self.guesses.set(self.guesses.get() + 1);
        let is_last = self.guesses.get() == GUESSES_MAX;
        if is_last && let Some(on_late) = &*self.on_late.borrow() {
            on_late(Late::Guesses);
        }
        is_last
    }

    /// Whether the last of these was shown.
    pub(crate) fn is_barred(&self) -> bool {
        self.guesses.get() >= GUESSES_MAX
    }

    /// A request is kept waiting on purpose until this is dropped.
    pub(crate) fn delay(self: &Rc<Patience>) -> Delayed {
        self.delayed.set(self.delayed.get() + 1);
        Delayed(Rc::clone(self))
    }

    /// From now on nothing more is written.
    pub(crate) fn connection_ends(&self) {
        self.is_at_its_end.set(true);
    }

    /// Whether what was not written never will be.
    pub(crate) fn is_at_its_end(&self) -> bool {
        self.is_at_its_end.get()
    }

    /// Whether a request is under way.
    pub(crate) fn is_answering(&self) -> bool {
        self.requests.get() > 0
    }

    /// The same; if one is, the task is woken when it ends.
    pub(crate) fn has_request(&self, context: &Context<'_>) -> bool {
        let has_request = self.is_answering();
        if has_request {
            self.wait_for_end(context);
        }
        has_request
    }

    /// Whether one is, or its answer has not been written as far as the client takes it. If so, the task is woken when that changes.
    pub(crate) fn owes_answer(&self, context: &Context<'_>) -> bool {
        let owes_answer = self.is_answering() || self.is_unwritten.get();
        if owes_answer {
            self.wait_for_end(context);
        }
        owes_answer
    }

    /// Whether the end of an answer may still be with hyper.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.is_unwritten.get()
    }

    fn wait_for_end(&self, context: &Context<'_>) {
        drop(self.waits_for_end.replace(Some(context.waker().clone())));
    }

    /// Others have their turn before this task goes on.
    pub(crate) fn wake_in_another_turn(&self, task: &Waker) {
        let task = task.clone();
        self.keeper.handle.set_immediate(move |_| task.wake());
    }

    fn wake_at_end(&self) {
        self.waits_for_end.take().into_iter().for_each(Waker::wake);
    }

    /// A body that somebody will wait for.
    pub(crate) fn body(self: &Rc<Patience>) -> BodyPace {
        let given_up = Rc::<GivenUp>::default();
        let number = self.bodies.add(Pace::default(), Some(Rc::clone(&given_up)));
        BodyPace { patience: Rc::clone(self), number, given_up }
    }

    /// Whether nobody reads the rest of the body of the request under way.
    pub(crate) fn is_body_left(&self) -> bool {
        self.is_body_left.get()
    }

    /// The client takes no more for now.
    pub(crate) fn answer_waits(&self) {
        self.change_answer(|answer, now| answer.wait(now));
    }

    /// It took so much.
    pub(crate) fn answer_was_taken(&self, bytes: usize) {
        self.change_answer(|answer, now| answer.count(bytes, now, READ_QUOTA));
    }

    /// There is more of an answer than the client has room for, until this is dropped. If it takes too long, the answer is given up, or the
    /// connection if that cannot be.
    pub(crate) fn has_unread(self: &Rc<Patience>, given_up: Option<Rc<GivenUp>>) -> Unread {
        let mut pace = Pace::default();
        pace.wait(self.now());
        Unread { patience: Rc::clone(self), number: self.unread.add(pace, given_up) }
    }

    /// It took everything that there was.
    pub(crate) fn nothing_is_left(&self) {
        self.answer.set(Pace::default());
        self.idle_since.set(self.now());
        if self.is_unwritten.replace(false) {
            self.wake_at_end();
        }
    }

    /// Everything is written, and the connection is to end.
    pub(crate) fn lingers(self: &Rc<Patience>) {
        let now = self.now();
        self.linger_since.set(Some(now));
        self.look_again_at(now + LINGER_TIME);
    }

    /// Whether a part of a head has come, and the rest has not.
    pub(crate) fn awaits_rest_of_head(&self) -> bool {
        self.head_since.get().is_some()
    }

    /// Whether no request is under way and none has begun to come.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.get() == 0 && self.head_since.get().is_none() && !self.answer.get().is_waiting()
    }

    /// From now on its connection has this number.
    pub(crate) fn set_connection(&self, number: u64) {
        self.connection.set(number);
    }

    /// Whether its client has asked for something that not everybody is answered.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.get()
    }

    /// It has. Returns the number of the connection.
    pub(crate) fn recognize(&self) -> u64 {
        self.is_known.set(true);
        self.connection.get()
    }

    /// Since when it has waited for a request, or for the rest of its head; None while one is under way that is not kept waiting. While an
    /// answer is not taken, only a client that is known is at work: otherwise everybody could keep a connection by not reading.
    pub(crate) fn waits_for_a_request_since(&self) -> Option<Instant> {
        let is_at_work = self.is_known.get() && self.answer.get().is_waiting();
        match (self.requests.get() - self.delayed.get(), is_at_work) {
            (0, false) => Some(self.head_since.get().unwrap_or(self.idle_since.get())),
            _ => None,
        }
    }

    fn change_answer(&self, update: impl FnOnce(&mut Pace, Instant)) {
        let mut changed = self.answer.get();
        update(&mut changed, self.now());
        self.answer.set(changed);
    }

    /// The limit that passes first, and when.
    fn first_limit(&self) -> Option<(Instant, Late)> {
        if let Some(since) = self.linger_since.get() {
            return Some((since + LINGER_TIME, Late::Linger));
        }
        let idle_until = match self.free_to_end_since.get() {
            Some(since) => since + LINGER_TIME,
            None => self.idle_since.get() + IDLE_TIME,
        };
        let idle = self.is_idle().then_some((idle_until, Late::Idle));
        let head = self.head_since.get().map(|since| (since + HEAD_TIME, Late::Head));
        let body = self.bodies.first(body_limit).map(|at| (at, Late::Body));
        let reader = read_limit(&self.answer.get()).map(|at| (at, Late::Reader));
        let reading = self.unread.first(read_limit).map(|at| (at, Late::Answer));
        let ahead = self.ahead_since.get().map(|since| (since + AHEAD_TIME, Late::Ahead));
        [idle, head, body, reader, reading, ahead].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Gives up what can end alone. Whether the connection is told of it.
    fn give_up(&self, late: Late, now: Instant) -> bool {
        match late {
            Late::Body => {
                self.bodies.give_up(now, body_limit);
                true
            }
            Late::Answer => self.unread.give_up(now, read_limit),
            _ => true,
        }
    }

    fn look_again_at(self: &Rc<Patience>, at: Instant) {
        self.stop();
        let (me, delay) = (Rc::downgrade(self), at.saturating_duration_since(self.now()));
        let timer = self.keeper.handle.set_timeout(delay, move |_| Patience::look(&me));
        self.keeper.handle.unref(timer);
        self.timer.set(Some((timer, at)));
    }

    /// While a request is under way the timer looks at least as often as the shortest limit is long, so none passes unseen.
    fn look(me: &Weak<Patience>) {
        let Some(patience) = me.upgrade() else { return };
        patience.timer.set(None);
        let now = patience.now();
        let shortest = HEAD_TIME.min(BODY_TIME).min(READ_TIME).min(AHEAD_TIME);
        let next_look = now + if patience.is_ending.get() { LINGER_TIME.min(shortest) } else { shortest };
        match patience.first_limit() {
            Some((at, late)) if at <= now => {
                // What was late at the first look and still is now: what came meanwhile was read.
                let warned = patience.warned.take().filter(|(its, since)| *its == late && at <= *since);
                let Some((_, since)) = warned else {
                    patience.warned.set(Some((late, now)));
                    return patience.look_again_at(patience.keeper.turn());
                };
                patience.forget(late);
                patience.look_again_at(next_look);
                let on_late = patience.on_late.borrow();
                if patience.give_up(late, since)
                    && let Some(on_late) = &*on_late
                {
                    on_late(late);
                }
            }
            Some((at, Late::Idle)) if !patience.is_ending.get() => patience.put_off(at),
            Some((at, _)) => patience.put_off(at.min(next_look)),
            None => patience.put_off(next_look),
        }
    }

    /// What ends only once must not hide the limits behind it.
    fn forget(&self, late: Late) {
        match late {
            Late::Head => self.head_since.set(None),
            Late::Ahead => self.ahead_since.set(None),
            Late::Idle | Late::Body | Late::Answer | Late::Reader | Late::Guesses | Late::Linger => {}
        }
    }

    fn put_off(self: &Rc<Patience>, at: Instant) {
        self.warned.set(None);
        self.look_again_at(at);
    }

    fn stop(&self) {
        if let Some((timer, _)) = self.timer.take() {
            self.keeper.handle.clear(timer);
        }
    }

    fn request_ends(&self) {
        self.requests.set(self.requests.get() - 1);
        self.ahead_since.set(None);
        self.idle_since.set(self.now());
        self.is_unwritten.set(true);
        self.note_freedom();
        self.wake_at_end();
    }
}

fn body_limit(pace: &Pace) -> Option<Instant> {
    pace.limit(BODY_TIME).min(pace.limit_in_all(BODY_IN_ALL, BODY_RATE))
}

fn read_limit(pace: &Pace) -> Option<Instant> {
    pace.limit(READ_TIME)
}

impl Drop for Patience {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
