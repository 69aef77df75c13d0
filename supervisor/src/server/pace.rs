//! Whether a client keeps up: how fast it takes what is written to it, and how fast what it announced comes in.
//!
//! Any progress is not enough, or a byte now and then would hold megabytes for ever. A client is looked at once a
//! second, and what is counted is looks and not time, so one is never to blame for a while in which this process itself
//! did not run.
//!
//! ```text
//!   outputs wait for it, over CONNECTION_BACKLOG_MAX ---- too few were taken in the last STALL_TIMEOUT -> cut off
//!   a payload comes in ---- not complete after BODY_TIME and its length / BODY_RATE_MIN ----------------> cut off
//!   a payload waits for room, or in the middle for more of it ---- in vain for ROOM_PATIENCE -----------> refused
//!   cut off: the rest of the message under way and a Goodbye are written ---- not taken in STALL_TIMEOUT -> dropped
//! ```

use crate::front::Connection;
use crate::limits::{
    BODY_RATE_MIN, BODY_TIME, CONNECTION_BACKLOG_MAX, OUTPUT_TAKEN_MIN, ROOM_PATIENCE, STALL_TIMEOUT,
};
use std::collections::VecDeque;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes that the client took in each of the last seconds in which much was held for it, and since the last look.
    took: VecDeque<usize>,
    taken: usize,
    /// Looks in which the message or payload that is on its way in was read, and in which it waited for room.
    reading: u64,
    waiting: u64,
    /// Looks since it was cut off.
    parting: Option<u64>,
}

/// What has to be done about a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    KeepsUp,
    /// It is told why, and parted from.
    CutOff(String),
    /// The payload that waits for room is refused.
    OutOfPatience,
    /// It does not even take the Goodbye.
    Gone,
}

impl Pace {
    /// Whether it is for this to say that it takes too little: because that is much, or because it was cut off.
    pub(super) fn is_watched(&self, connection: &Connection) -> bool {
        connection.held() > CONNECTION_BACKLOG_MAX || self.parting.is_some()
    }

    /// Whether it has to be looked at.
    pub(super) fn is_due(&self, connection: &Connection) -> bool {
        self.is_watched(connection) || connection.is_mid_frame()
    }

    /// Bytes were written to it.
    pub(super) fn took(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Something that was on its way in is here.
    pub(super) fn delivered(&mut self) {
        (self.reading, self.waiting) = (0, 0);
    }

    /// Whether what waits for room may wait on.
    pub(super) fn may_wait(&self) -> bool {
        self.waiting < ROOM_PATIENCE.as_secs()
    }

    /// It is being parted from.
    pub(super) fn cut_off(&mut self) {
        self.parting = Some(0);
    }

    /// One look, a second after the last one.
    pub(super) fn look(&mut self, connection: &Connection, waits: bool) -> Verdict {
        if let Some(looks) = &mut self.parting {
            *looks += 1;
            return if *looks > STALL_TIMEOUT.as_secs() { Verdict::Gone } else { Verdict::KeepsUp };
        }
        let slow = self.look_at_outputs(connection.held());
        match slow.or_else(|| self.look_at_input(connection, waits)) {
            Some(why) => Verdict::CutOff(why),
            None if waits && !self.may_wait() => Verdict::OutOfPatience,
            None => Verdict::KeepsUp,
        }
    }

    fn look_at_outputs(&mut self, held: usize) -> Option<String> {
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

    fn look_at_input(&mut self, connection: &Connection, waits: bool) -> Option<String> {
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

    /// The second in which somebody who takes so many bytes a second is found to be too slow, within a minute.
    fn slow_after(taken_a_second: usize, held: usize) -> Option<u64> {
        let mut pace = Pace::default();
        (1..=60).find(|_| {
            pace.took(taken_a_second);
            pace.look_at_outputs(held).is_some()
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
        let mut pace = Pace::default();
        pace.took(HELD);
        let slow = (1..=60).find(|_| pace.look_at_outputs(HELD).is_some());
        assert_eq!(slow, Some(11));
    }
}
