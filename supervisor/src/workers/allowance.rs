//! How much may be taken from workers before everybody else has their turn. What is counted is work, not time: a worker that sends many
//! small messages costs as much as one that sends few large ones, and many such workers cost no more than one. Only of copies
//! out of segments the time is limited, too: a worker can take the memory out of its segment, and then each page costs the kernel
//! many times as much.
//!
//! ```text
//!   one turn of the loop: MESSAGES_PER_TURN, BYTES_PER_TURN
//!       |-- take_share ---> one worker: at most MESSAGES_AT_A_TIME, BYTES_AT_A_TIME ---> give_back: what it has not used
//!       |-- take_share ---> the next one ...
//!       '-- used up: the others wait for the next turn, in their order (`hub/reading.rs`)
//! ```

use crate::limits::{
    BYTES_AT_A_TIME, BYTES_PER_TURN, MESSAGES_AT_A_TIME, MESSAGES_PER_TURN, READ_BYTES_MIN, TIME_PER_TURN,
};
use std::time::Duration;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    messages: usize,
    bytes: usize,
    /// For copies.
    time: Duration,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance::of_a_turn()
    }
}

impl Allowance {
    /// What may be taken from all workers in one turn of the event loop.
    pub const fn of_a_turn() -> Allowance {
        Allowance { messages: MESSAGES_PER_TURN, bytes: BYTES_PER_TURN, time: TIME_PER_TURN }
    }

    /// So many bytes, however many messages they are and however long they take: for what has to be read now.
    pub const fn of_bytes(bytes: usize) -> Allowance {
        Allowance { messages: usize::MAX, bytes, time: Duration::MAX }
    }

    /// Takes out what one worker may use before the next one has its turn.
    pub fn take_share(&mut self) -> Allowance {
        let share = Allowance {
            messages: self.messages.min(MESSAGES_AT_A_TIME),
            bytes: self.bytes.min(BYTES_AT_A_TIME),
            time: self.time,
        };
        self.messages -= share.messages;
        self.bytes -= share.bytes;
        share
    }

    /// What is left of a share.
    pub fn give_back(&mut self, share: Allowance) {
        self.messages += share.messages;
        self.bytes += share.bytes;
        self.time = share.time;
    }

    /// Whether nothing more may be taken.
    pub fn is_used_up(self) -> bool {
        self.messages == 0 || self.bytes == 0 || self.time.is_zero()
    }

    pub(super) fn has_messages(self) -> bool {
        self.messages > 0
    }

    pub(super) fn spend_message(&mut self) {
        self.messages -= 1;
    }

    /// A read has brought so many bytes. A read costs something even if it brings next to nothing.
    pub(super) fn spend_read(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes.max(READ_BYTES_MIN));
    }

    /// A copy has taken so long.
    pub(super) fn spend_time(&mut self, time: Duration) {
        self.time = self.time.saturating_sub(time);
    }

    /// Uses up to `most` bytes up. Returns how many may be copied.
    pub(super) fn take_bytes(&mut self, most: usize) -> usize {
        let taken = if self.time.is_zero() { 0 } else { most.min(self.bytes) };
        self.bytes -= taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_are_no_more_than_the_turn() {
        let mut turn = Allowance::of_a_turn();
        let mut messages = 0;
        while !turn.is_used_up() {
            let mut share = turn.take_share();
            let mut of_one = 0;
            while share.has_messages() {
                share.spend_message();
                of_one += 1;
            }
            assert!(of_one <= MESSAGES_AT_A_TIME && share.is_used_up());
            turn.give_back(share);
            messages += of_one;
        }
        assert_eq!(messages, MESSAGES_PER_TURN);
    }

    #[test]
    fn a_copy_that_takes_long_is_the_last_one_of_its_turn() {
        let mut turn = Allowance::of_a_turn();
        let mut share = turn.take_share();
        assert_eq!(share.take_bytes(100), 100);
        share.spend_time(TIME_PER_TURN / 2);
        assert_eq!(share.take_bytes(100), 100);
        share.spend_time(TIME_PER_TURN);
        assert_eq!(share.take_bytes(100), 0);
        turn.give_back(share);
        assert!(turn.is_used_up() && turn.take_share().is_used_up(), "nor does another worker get any");
    }

    #[test]
    fn what_a_worker_has_not_used_is_there_for_the_others() {
        let mut turn = Allowance::of_a_turn();
        for _ in 0..10 * MESSAGES_PER_TURN / MESSAGES_AT_A_TIME {
            let share = turn.take_share();
            turn.give_back(share);
        }
        assert_eq!(turn, Allowance::of_a_turn());
    }

    #[test]
    fn reads_that_bring_one_byte_are_no_more_than_others_can_bear() {
        let mut turn = Allowance::of_a_turn();
        let mut reads = 0;
        while !turn.is_used_up() {
            turn.spend_read(1);
            reads += 1;
        }
        assert_eq!(reads, BYTES_PER_TURN / READ_BYTES_MIN);
    }
}
