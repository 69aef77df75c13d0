//! Time limits for silent clients.
//!
//! ```text
//!   it reads or sends much too slowly                          see `pace.rs`
//!   it has not said hello                                      GREETING_TIMEOUT from the start
//!   it is in the middle of a message                           STALL_TIMEOUT without progress
//!   it does not take what is ready for it                      the same; what it takes is in `intake.rs`
//!   it asks for nothing and waits for nothing                  IDLE_TIMEOUT (control clients: CONTROL_IDLE_TIMEOUT)
//!   it has closed its sending side, nothing is outstanding     none: it is dropped at once
//!   it waits for jobs                                          no limit: jobs have their own. If it has closed its
//!                                                              sending side, its presence is checked every second
//! ```
//!
//! One timer serves all clients. It is set to the earliest limit; a client that has made progress by then is checked
//! again later. Before a client is disconnected, what it sent is read, and each limit is checked twice, the second time
//! after [`LAST_CHANCE`].
//!
//! If a check is late, the supervisor did not run for a while (`pauses.rs`), and every client gets another last chance. If
//! the check after that is late as well, only a long gap gives one more, and at most [`EXCUSES_MAX`] in a row do. So no
//! client is disconnected because of a pause of the supervisor, and the limits still apply on a machine that is always
//! late.
//!
//! Input and output have a clock each: a client that does not read its answers is not excused by sending more requests.

use super::Front;
use super::accept::ClientRole;
use super::client::ConnectedClient;
use crate::end_of_turn::Writable;
use crate::limits::{CONTROL_IDLE_TIMEOUT, EXCUSES_MAX, GREETING_TIMEOUT, IDLE_TIMEOUT, LAST_CHANCE};
use crate::pauses::Pause;
use offload_core::limits::STALL_TIMEOUT;
use offload_event_loop::TimerId;
use offload_protocol::nouns::OutcomeCode;
use std::time::{Duration, Instant};

/// How often a client that only waits for answers is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// When the next check is due, and until when no client is disconnected.
#[derive(Default)]
pub(super) struct Patience {
    next_check: Option<(Instant, TimerId)>,
    excuse: Excuse,
}

/// Until when no client is disconnected because this process did not run.
#[derive(Debug, Default)]
struct Excuse {
    until: Option<Instant>,
    /// Number of gaps in a row.
    gaps: u32,
}

impl Excuse {
    /// A check that was due at `due` takes place now.
    fn on_check(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_duration_since(due);
        let is_excuse = match Pause::behind(late) {
            Pause::None => false,
            // Right after another gap, a short one is no excuse.
            Pause::Short => self.gaps == 0,
            Pause::Long => self.gaps < EXCUSES_MAX,
        };
        if is_excuse {
            (self.until, self.gaps) = (Some(now + LAST_CHANCE), self.gaps + 1);
        } else if self.until.is_some_and(|until| until <= now) {
            *self = Excuse::default();
        }
    }
}

/// What a client is given time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// To say hello.
    Greeting,
    /// To send the rest of a message.
    Message,
    /// To take what is ready for it, as the reader of a stream.
    Output,
    /// To ask for something.
    Idle,
    /// No time limit: only checks whether the client is still there.
    Presence,
}

impl Limit {
    /// Why a client is disconnected that had so many bytes to take.
    fn why(self, unsent: usize) -> String {
        let seconds = STALL_TIMEOUT.as_secs();
        match self {
            Limit::Greeting => "it did not introduce itself".to_owned(),
            Limit::Message => format!("it stopped in the middle of a message for {seconds} s"),
            Limit::Output => {
                format!("it did not read for {seconds} s, and {unsent} bytes were ready for it")
            }
            Limit::Idle => "it asked for nothing for a while".to_owned(),
            Limit::Presence => "it is gone".to_owned(),
        }
    }
}

impl ConnectedClient {
    /// The limit that applies to the client, and when it is reached.
    pub(super) fn limit(&self, now: Instant) -> Option<(Limit, Instant)> {
        if !self.connection.is_greeted() {
            return Some((Limit::Greeting, self.since + GREETING_TIMEOUT));
        }
        // How fast a client takes much output is checked in `pace.rs`.
        let takes = self.connection.unsent() > 0 && !self.pace.judges_outputs(&self.connection);
        let owes_bytes = self.is_mid_request() && self.wants_to_be_read();
        let output = takes.then_some((Limit::Output, self.intake.at() + STALL_TIMEOUT));
        let input = owes_bytes.then_some((Limit::Message, self.input_at + STALL_TIMEOUT));
        let stalled = [output, input].into_iter().flatten().min_by_key(|(_, end)| *end);
        if stalled.is_some() {
            return stalled;
        }
        if self.is_idle() {
            let longest = match self.role {
                ClientRole::Ordinary => IDLE_TIMEOUT,
                ClientRole::Control => CONTROL_IDLE_TIMEOUT,
            };
            return Some((Limit::Idle, self.progress_at() + longest));
        }
        self.has_ended().then(|| (Limit::Presence, now + CHECK_INTERVAL))
    }
}

impl Front {
    /// Sets the timer so that the client is checked when its limit is near.
    pub(super) fn watch_patience(&mut self, id: u64) {
        let now = Instant::now();
        let limit = self.clients.get(&id).and_then(|client| client.limit(now));
        if let Some((_, end)) = limit {
            self.schedule_check(next_check_at(now, end));
        }
    }

    fn schedule_check(&mut self, when: Instant) {
        let when = self.patience.excuse.until.map_or(when, |until| until.max(when));
        if let Some((due, timer)) = self.patience.next_check {
            if due <= when {
                return;
            }
            self.handle.clear(timer);
        }
        let me = self.me.clone();
        let delay = when.saturating_duration_since(Instant::now());
        let timer = self.handle.set_timeout(delay, move |_| Front::with(&me, Front::check_clients));
        self.handle.unref(timer);
        self.patience.next_check = Some((when, timer));
    }

    fn check_clients(&mut self) {
        let Some((due, _)) = self.patience.next_check.take() else { return };
        let now = Instant::now();
        self.patience.excuse.on_check(due, now);
        let all: Vec<u64> = self.clients.keys().copied().collect();
        for id in all {
            self.check_client(id, now);
        }
    }

    fn check_client(&mut self, id: u64, now: Instant) {
        let is_over = |client: &ConnectedClient| client.limit(now).is_some_and(|(_, end)| end <= now);
        if let Some(client) = self.clients.get_mut(&id).filter(|client| is_over(client)) {
            // What was taken is looked at once a second, and now.
            client.look_at_intake();
        }
        if self.clients.get(&id).is_some_and(is_over) && self.patience.excuse.until.is_none() {
            // What the client sent in time counts, even if it has not been read yet.
            self.receive(id);
        }
        let Some(client) = self.clients.get(&id) else { return };
        if client.is_gone() {
            return self.drop_client(id);
        }
        let Some((limit, end)) = client.limit(now) else { return };
        if end > now || self.patience.excuse.until.is_some() {
            return self.schedule_check(next_check_at(now, end));
        }
        let why = limit.why(client.connection.unsent());
        match limit {
            Limit::Idle => self.disconnect(id, &why),
            Limit::Greeting | Limit::Message | Limit::Output | Limit::Presence => {
                let name = client.session.account().name().escape_debug();
                self.service.log().warn(format_args!("client {id} ({name}) is disconnected: {why}"));
                self.drop_client(id);
            }
        }
    }

    /// Disconnects a client that loses nothing by it, and tells the client the reason.
    pub(super) fn disconnect(&mut self, id: u64, why: &str) {
        self.service.log().info(format_args!("client {id} is let go: {why}"));
        if let Some(client) = self.clients.get_mut(&id) {
            if client.connection.is_greeted() {
                client.connection.goodbye(OutcomeCode::Overloaded, why);
                // The Goodbye is written only as far as the socket takes it without waiting.
                let _ = client.write_once();
            }
            self.drop_client(id);
        }
    }
}

/// When to check a limit next. Each limit is checked twice: before its last part, and at its end.
fn next_check_at(now: Instant, end: Instant) -> Instant {
    match end.checked_sub(LAST_CHANCE) {
        Some(last_chance) if now < last_chance => last_chance,
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{GAP_MIN, LATE_MIN};

    /// Checks a client whose limit is over, on a machine where each check is late by the same time. Returns how long
    /// the client is excused.
    fn excused_for(late: Duration) -> Option<Duration> {
        let (mut excuse, began) = (Excuse::default(), Instant::now());
        let mut due = began;
        (0..100).find_map(|_| {
            let now = due + late;
            excuse.on_check(due, now);
            due = excuse.until.unwrap_or(now);
            excuse.until.is_none().then(|| now - began)
        })
    }

    #[test]
    fn nobody_is_excused_for_ever_however_late_this_process_always_is() {
        let ms = Duration::from_millis;
        assert_eq!(excused_for(ms(99)), Some(ms(99)));
        assert_eq!(excused_for(ms(100)), Some(LAST_CHANCE + ms(200)));
        assert_eq!(excused_for(ms(999)), Some(LAST_CHANCE + ms(1998)));
        assert_eq!(excused_for(ms(1000)), Some(EXCUSES_MAX * LAST_CHANCE + ms(6000)));
    }

    #[test]
    fn a_gap_in_the_middle_of_an_excuse_is_another_one() {
        let (mut excuse, began) = (Excuse::default(), Instant::now());
        excuse.on_check(began, began + LATE_MIN);
        let due = excuse.until.unwrap_or(began);
        excuse.on_check(due, due + 60 * GAP_MIN);
        assert_eq!(excuse.until, Some(due + 60 * GAP_MIN + LAST_CHANCE));
    }
}
