//! What a program says on standard error: all of it goes to the log of this worker, and its last lines are kept for the message
//! of a failure.
//!
//! The log is a pipe that the supervisor reads at a bounded speed. While it is full, bytes wait here, and once they are many no
//! more are taken from the program, which waits then. So writing to the log never holds up this process.

use crate::limits::{EXEC_LINES_KEPT, EXEC_LINES_KEPT_BYTES, EXEC_LOG_PIECE, EXEC_LOG_WAITING_MAX};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The last bytes, at most [`EXEC_LINES_KEPT_BYTES`].
    last: VecDeque<u8>,
    /// What is to be written to the log.
    waiting: VecDeque<u8>,
    is_log_gone: bool,
}

impl Said {
    /// Takes what the program said next.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(EXEC_LINES_KEPT_BYTES)..];
        self.last.extend(kept);
        let excess = self.last.len().saturating_sub(EXEC_LINES_KEPT_BYTES);
        self.last.drain(..excess);
        if !self.is_log_gone {
            self.waiting.extend(bytes);
        }
    }

    /// Whether more may be taken from the program.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < EXEC_LOG_WAITING_MAX
    }

    /// Whether something is to be written to the log.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes to the log as much as it takes now.
    pub(super) fn write(&mut self) {
        while self.is_waiting() && self.is_log_ready(Duration::ZERO) {
            self.write_piece();
        }
    }

    /// The program has ended: its last line is ended, and what waits is written, for at most this long.
    pub(super) fn finish(&mut self, longest: Duration) {
        if self.last.back().is_some_and(|byte| *byte != b'\n') && !self.is_log_gone {
            self.waiting.push_back(b'\n');
        }
        let end = Instant::now() + longest;
        while self.is_waiting() && self.is_log_ready(end.saturating_duration_since(Instant::now())) {
            self.write_piece();
        }
        self.waiting.clear();
    }

    /// A pipe that is ready takes this much without waiting: a page is free, and no other process writes to it but programs that
    /// have this one as their standard error, of which there are none.
    fn write_piece(&mut self) {
        let (front, _) = self.waiting.as_slices();
        let piece = &front[..front.len().min(EXEC_LOG_PIECE)];
        match rustix::io::write(rustix::stdio::stderr(), piece) {
            Ok(count) => drop(self.waiting.drain(..count)),
            Err(Errno::INTR) => {}
            Err(_) => {
                self.is_log_gone = true;
                self.waiting.clear();
            }
        }
    }

    fn is_log_ready(&self, longest: Duration) -> bool {
        let log = rustix::stdio::stderr();
        let mut polled = [PollFd::new(&log, PollFlags::OUT)];
        let longest = longest.try_into().ok();
        matches!(poll(&mut polled, longest.as_ref()), Ok(1))
    }

    /// The last lines, in one; empty if it said nothing.
    pub(super) fn last_lines(&self) -> String {
        let bytes: Vec<u8> = self.last.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(EXEC_LINES_KEPT)..].join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Said {
        let mut said = Said { is_log_gone: true, ..Said::default() };
        text.as_bytes().chunks(7).for_each(|piece| said.add(piece));
        said
    }

    #[test]
    fn the_last_lines_are_kept_and_no_more() {
        assert_eq!(said("").last_lines(), "");
        assert_eq!(said("one\n\n  two \nthree").last_lines(), "one; two; three");
        let many: String = (0..1000).map(|number| format!("line {number}\n")).collect();
        let kept = said(&many).last_lines();
        assert!(
            kept.ends_with("line 998; line 999") && kept.split("; ").count() == EXEC_LINES_KEPT,
            "{kept}"
        );
        let endless = said(&"x".repeat(100_000)).last_lines();
        assert_eq!(endless.len(), EXEC_LINES_KEPT_BYTES);
    }

    #[test]
    fn nothing_waits_for_a_log_that_is_gone() {
        let mut said = said("text");
        assert!(!said.is_waiting() && said.has_room());
        said.finish(Duration::ZERO);
        assert!(!said.is_waiting());
    }
}
