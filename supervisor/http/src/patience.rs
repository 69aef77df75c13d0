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
//!
//! Each rule is a type with a file of its own. It knows when its limit passes, and neither the clock nor the other rules:
//!
//! | rule | what happens beyond it |
//! |---|---|
//! | `head.rs` | 408; over HTTP/2 the connection ends |
//! | `idle.rs` | the connection ends |
//! | `bodies.rs` | the body ends alone |
//! | `reader.rs` | the connection is cut |
//! | `unread.rs` | over HTTP/2 the answer ends alone; otherwise the connection is cut |
//! | `ahead.rs` | what the client sends is thrown away, and the connection ends with the answer under way |
//! | `ending.rs` | the connection ends; one that lingers is cut |
//! | `identity.rs` | after too many wrong tokens the connection ends |
//! | `documents.rs` | no more documents are written |
//!
//! `requests.rs` has what is under way, `look.rs` the timer, `keeper.rs` what all connections share, `pace.rs` how bytes are weighed
//! against time, and `given_up.rs` how a body or an answer ends alone.

mod ahead;
mod bodies;
mod documents;
mod ending;
mod given_up;
mod head;
mod identity;
mod idle;
mod keeper;
mod look;
mod pace;
mod reader;
mod requests;
mod unread;

use crate::frames::Passed;
use crate::quiet::Quiet;
use ahead::Ahead;
use bodies::Bodies;
pub(crate) use bodies::BodyPace;
pub(crate) use documents::Document;
use documents::Documents;
use ending::Ending;
pub(crate) use given_up::GivenUp;
use head::Head;
use identity::Identity;
use idle::Idle;
pub(crate) use keeper::Timekeeper;
use look::Look;
use offload_supervisor::pauses::Running;
use reader::Reader;
use requests::Requests;
pub(crate) use requests::{GoesOn, Left, RequestMark};
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;
pub(crate) use unread::Unread;
use unread::UnreadAnswers;

/// Why a connection has to do something. A body or an answer that ends alone is not told: whoever waits for it is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The head of a request did not come.
    Head,
    /// No request came.
    Idle,
    /// An answer was not read that cannot end alone.
    Reader,
    /// The next requests did not find room in time.
    Ahead,
    /// It has shown too many wrong tokens: no limit of time, but of patience all the same.
    Guesses,
    /// The connection was to end, and the client did not close it.
    Linger,
}

/// The rules that have a limit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Head,
    Idle,
    Bodies,
    Reader,
    UnreadAnswers,
    Ahead,
    Linger,
}

/// What is known of one connection. See the module's documentation.
pub(crate) struct Patience {
    pub(crate) keeper: Rc<Timekeeper>,
    _running: Running,
    look: Look,
    head: Head,
    idle: Idle,
    bodies: Bodies,
    reader: Reader,
    unread: UnreadAnswers,
    ahead: Ahead,
    ending: Ending,
    requests: Requests,
    identity: Identity,
    documents: Documents,
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
            look: Look::default(),
            head: Head::of_new_connection(now),
            idle: Idle::since_now(now),
            bodies: Bodies::default(),
            reader: Reader::default(),
            unread: UnreadAnswers::default(),
            ahead: Ahead::default(),
            ending: Ending::default(),
            requests: Requests::default(),
            identity: Identity::default(),
            documents: Documents::default(),
            quiet: Quiet::default(),
        })
    }

    fn now(&self) -> Instant {
        self.keeper.clock.now()
    }

    /// Others have their turn before this task goes on.
    pub(crate) fn wake_in_another_turn(&self, task: &Waker) {
        let task = task.clone();
        self.keeper.handle.set_immediate(move |_| task.wake());
    }
}

/// What happens on the connection.
impl Patience {
    /// The first byte of a head has come, if that is not known yet.
    pub(crate) fn head_begins(self: &Rc<Patience>) {
        if self.head.begins(self.now()) {
            self.look_in_time_for_head();
        }
    }

    /// The head is complete.
    pub(crate) fn head_is_there(&self) {
        self.head.ends();
        self.idle.begins_again(self.now());
    }

    /// Over HTTP/2: what is unfinished has its time from when it began.
    pub(crate) fn frames_came(self: &Rc<Patience>, passed: Passed) {
        let now = self.now();
        if passed.has_ended {
            self.idle.begins_again(now);
        }
        if self.head.frames_came(passed.rest, now) {
            self.look_in_time_for_head();
        }
    }

    fn look_in_time_for_head(self: &Rc<Patience>) {
        self.head.limit().into_iter().for_each(|at| self.look_by(at));
    }

    /// There is no room for more requests until the one under way is answered.
    pub(crate) fn much_is_ahead(&self) {
        self.ahead.begins(self.now());
    }

    /// There is room for what the client sends ahead.
    pub(crate) fn little_is_ahead(&self) {
        self.ahead.ends();
    }

    /// The client takes no more for now.
    pub(crate) fn answer_waits(&self) {
        self.reader.waits(self.now());
    }

    /// It took so much.
    pub(crate) fn answer_was_taken(&self, bytes: usize) {
        self.reader.took(bytes, self.now());
    }
}

/// What several rules say together.
impl Patience {
    /// Whether a part of a head has come, and the rest has not.
    pub(crate) fn awaits_rest_of_head(&self) -> bool {
        self.head.is_coming()
    }

    /// Whether no request is under way and none has begun to come.
    fn is_idle(&self) -> bool {
        !self.requests.are_under_way() && !self.head.is_coming() && !self.reader.is_awaited()
    }

    /// Since when it has waited for a request, or for the rest of its head; None while one is under way that is not kept waiting. While an
    /// answer is not taken, only a client that is known is at work: otherwise everybody could keep a connection by not reading.
    pub(crate) fn waits_for_a_request_since(&self) -> Option<Instant> {
        let is_at_work = self.requests.are_answered() || self.is_known() && self.reader.is_awaited();
        (!is_at_work).then(|| self.head.since().unwrap_or(self.idle.since()))
    }

    /// The limit that passes first, and when.
    fn first_limit(&self) -> Option<(Instant, Rule)> {
        if let Some(at) = self.ending.linger_limit() {
            return Some((at, Rule::Linger));
        }
        let idle = self.is_idle().then(|| self.ending.idle_limit().unwrap_or(self.idle.limit()));
        let limits = [
            (idle, Rule::Idle),
            (self.head.limit(), Rule::Head),
            (self.bodies.limit(), Rule::Bodies),
            (self.reader.limit(), Rule::Reader),
            (self.unread.limit(), Rule::UnreadAnswers),
            (self.ahead.limit(), Rule::Ahead),
        ];
        limits.into_iter().filter_map(|(at, rule)| Some((at?, rule))).min_by_key(|(at, _)| *at)
    }

    /// The limit of this rule has passed, and had at `since`. What can end alone is given up; otherwise returns what the connection is
    /// told. What ends only once is over, because it must not hide the limits behind it.
    fn limit_has_passed(&self, rule: Rule, since: Instant) -> Option<Late> {
        match rule {
            Rule::Head => {
                self.head.ends();
                Some(Late::Head)
            }
            Rule::Ahead => {
                self.ahead.ends();
                Some(Late::Ahead)
            }
            Rule::Bodies => {
                self.bodies.give_up(since);
                None
            }
            Rule::UnreadAnswers => self.unread.give_up(since).then_some(Late::Reader),
            Rule::Idle => Some(Late::Idle),
            Rule::Reader => Some(Late::Reader),
            Rule::Linger => Some(Late::Linger),
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        self.stop_looking();
    }
}

#[cfg(test)]
mod tests;
