//! Whether a client reads and writes fast enough. A byte now and then is not enough: otherwise a client could hold
//! megabytes of memory forever. Each client is checked once a second. Checks are counted instead of time, so no client
//! is blamed for a pause in which the supervisor itself did not run.
//!
//! ```text
//!   outputs held for the client exceed CONNECTION_BACKLOG_MAX -- too few taken in the last STALL_TIMEOUT -> cut off
//!   a payload is coming in ---- not complete after BODY_TIME plus its length / BODY_RATE_MIN ------------> cut off
//!   a payload waits for room, at its start or in its middle ---- in vain for ROOM_PATIENCE --------------> refused
//!   cut off: the rest of the partly written message and a Goodbye are sent -- not taken in STALL_TIMEOUT -> dropped
//! ```

use crate::front::Connection;
use crate::limits::{BODY_RATE_MIN, BODY_TIME, CONNECTION_BACKLOG_MAX, OUTPUT_TAKEN_MIN, ROOM_PATIENCE};
use offload_core::limits::STALL_TIMEOUT;
use std::collections::VecDeque;

/// The pace of one client. See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct ClientPace {
    /// Bytes taken between checks, for the latest checks in a row that found much held for the client.
    took: VecDeque<usize>,
    taken: usize,
    /// Checks at which the message or payload that is coming in was being read, and checks at which it waited for
    /// room.
    reading: u64,
    waiting: u64,
    /// Checks since the client was cut off.
    checks_since_cut_off: Option<u64>,
}

/// What has to be done about a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PaceAction {
    /// Nothing.
    KeepsUp,
    /// Tell the client the reason, then disconnect it.
    CutOff(String),
    /// Refuse the payload that waits for room.
    RefusePayload,
    /// Drop the client: it does not even take the Goodbye.
    Gone,
}

impl ClientPace {
    /// Whether this module judges how much the client takes: because much is held for the client, or because it was
    /// cut off. Otherwise `patience.rs` does.
    pub(super) fn judges_outputs(&self, connection: &Connection) -> bool {
        connection.held() > CONNECTION_BACKLOG_MAX || self.checks_since_cut_off.is_some()
    }

    /// Whether the client has to be checked, or at least what it takes.
    pub(super) fn is_due(&self, connection: &Connection) -> bool {
        self.judges_outputs(connection) || connection.is_mid_frame() || connection.unsent() > 0
    }

    /// The client has taken bytes.
    pub(super) fn count_taken(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// The message or payload that was coming in is complete.
    pub(super) fn complete(&mut self) {
        (self.reading, self.waiting) = (0, 0);
    }

    /// Whether a payload that waits for room may wait longer.
    pub(super) fn may_wait(&self) -> bool {
        self.waiting < ROOM_PATIENCE.as_secs()
    }

    /// The client is cut off and gets a Goodbye.
    pub(super) fn cut_off(&mut self) {
        self.checks_since_cut_off = Some(0);
    }

    /// One check, a second after the previous one.
    pub(super) fn check(&mut self, connection: &Connection, waits: bool) -> PaceAction {
        if let Some(checks) = &mut self.checks_since_cut_off {
            *checks += 1;
            return if *checks > STALL_TIMEOUT.as_secs() { PaceAction::Gone } else { PaceAction::KeepsUp };
        }
        let slow = self.check_outputs(connection.held());
        match slow.or_else(|| self.check_input(connection, waits)) {
            Some(why) => PaceAction::CutOff(why),
            None if waits && !self.may_wait() => PaceAction::RefusePayload,
            None => PaceAction::KeepsUp,
        }
    }

    fn check_outputs(&mut self, held: usize) -> Option<String> {
        let seconds = STALL_TIMEOUT.as_secs();
        let taken = std::mem::take(&mut self.taken);
        if held <= CONNECTION_BACKLOG_MAX {
            self.took.clear();
            return None;
        }
        if self.took.len() as u64 >= seconds {
            self.took.pop_front();
        }
        self.took.push_back(taken);
        let taken: usize = self.took.iter().sum();
        let is_slow = self.took.len() as u64 >= seconds && taken < OUTPUT_TAKEN_MIN;
        is_slow.then(|| {
            format!(
                "it took {taken} bytes of its outputs in {seconds} s, and {held} bytes are held for it: it has to take \
                 {OUTPUT_TAKEN_MIN} bytes in that time"
            )
        })
    }

    fn check_input(&mut self, connection: &Connection, waits: bool) -> Option<String> {
        let is_coming = connection.coming().is_some() || connection.is_mid_frame();
        match (is_coming, waits) {
            (false, _) => (self.reading, self.waiting) = (0, 0),
            (true, true) => self.waiting += 1,
            (true, false) => {
                self.waiting = 0;
                self.reading += 1;
            }
        }
        let length = connection.coming().unwrap_or(0);
        let most = BODY_TIME.as_secs() + length as u64 / BODY_RATE_MIN;
        (self.reading > most).then(|| match length {
            0 => format!("a message was not complete after {most} s"),
            _ => format!("an input of {length} bytes was not complete after {most} s"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: usize = 60 << 20;

    /// The second, within a minute, in which a client that takes this many bytes per second is found to be too slow.
    fn slow_after(taken_a_second: usize, held: usize) -> Option<u64> {
        let mut pace = ClientPace::default();
        (1..=60).find(|_| {
            pace.count_taken(taken_a_second);
            pace.check_outputs(held).is_some()
        })
    }

    #[test]
    fn who_takes_a_little_of_much_is_too_slow() {
        assert_eq!(slow_after(0, HELD), Some(10));
        assert_eq!(slow_after(35_000, HELD), Some(10));
        assert_eq!(slow_after(OUTPUT_TAKEN_MIN / 10 + 1, HELD), None);
        assert_eq!(slow_after(0, CONNECTION_BACKLOG_MAX), None, "a little may wait as long as it likes");
    }

    #[test]
    fn what_was_taken_long_ago_does_not_count() {
        let mut pace = ClientPace::default();
        pace.count_taken(HELD);
        let slow = (1..=60).find(|_| pace.check_outputs(HELD).is_some());
        assert_eq!(slow, Some(11));
    }
}
