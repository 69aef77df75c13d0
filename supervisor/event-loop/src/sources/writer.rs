//! The writing side of a stream: a queue with a limit.
//!
//! ```text
//!   write() -> waiting --(all its bytes are with the kernel, or it failed)--> finished --> its callback runs
//!      |                                                                        ^
//!      +--(the kernel took everything at once)----------------------------------+
//! ```
//!
//! Answers are given in the order of the writes, whichever phase gives them.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::SourceError;
use super::answers::{Answers, Done};
use super::waiting::WaitingFutures;
use crate::callback::Site;
use crate::limits::{BYTES_PER_WRITE, SLICES_PER_CALL, WRITE_QUEUE_BYTES};

struct WaitingWrite {
    bytes: Vec<u8>,
    written: usize,
    site: Site,
    done: Done,
}

enum ShutdownState {
    Open,
    /// To be shut down as soon as the queue is empty.
    Wanted {
        site: Site,
        done: Done,
    },
    ShutDown,
}

pub(super) struct Writer {
    limit: usize,
    /// How many bytes wait.
    queued: usize,
    waiting: VecDeque<WaitingWrite>,
    pub(super) answers: Answers,
    shutdown: ShutdownState,
    /// Futures that wait for room in the queue.
    pub(super) waiting_for_room: WaitingFutures,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer {
            limit: WRITE_QUEUE_BYTES,
            queued: 0,
            waiting: VecDeque::new(),
            answers: Answers::default(),
            shutdown: ShutdownState::Open,
            waiting_for_room: WaitingFutures::default(),
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Something is under way for which the loop has to go on.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty() || matches!(self.shutdown, ShutdownState::Wanted { .. })
    }

    /// Whether anything may be written still.
    pub(super) fn admit(&self) -> Result<(), SourceError> {
        match self.shutdown {
            ShutdownState::Open => Ok(()),
            ShutdownState::Wanted { .. } | ShutdownState::ShutDown => Err(SourceError::AlreadyShutDown),
        }
    }

    /// Whether a write of this length may begin.
    pub(super) fn admit_length(&self, length: usize) -> Result<(), SourceError> {
        self.admit()?;
        let queued = self.queued + BYTES_PER_WRITE * (self.waiting.len() + self.answers.len());
        if queued.saturating_add(length) > self.limit {
            return Err(SourceError::QueueFull { queued, limit: self.limit });
        }
        Ok(())
    }

    pub(super) fn queue(&mut self, bytes: Vec<u8>, written: usize, site: Site, done: Done) {
        self.queued += bytes.len() - written;
        self.waiting.push_back(WaitingWrite { bytes, written, site, done });
    }

    /// The bytes that wait first.
    pub(super) fn slices<'a, 's>(
        &'a self,
        slices: &'s mut [IoSlice<'a>; SLICES_PER_CALL],
    ) -> &'s [IoSlice<'a>] {
        for (slice, write) in slices.iter_mut().zip(&self.waiting) {
            *slice = IoSlice::new(&write.bytes[write.written..]);
        }
        &slices[..self.waiting.len().min(SLICES_PER_CALL)]
    }

    /// The kernel took this many bytes. Writes without any bytes are done, too.
    pub(super) fn advance(&mut self, mut count: usize) {
        self.queued -= count;
        while let Some(first) = self.waiting.front_mut() {
            let missing = first.bytes.len() - first.written;
            if count < missing {
                first.written += count;
                return;
            }
            count -= missing;
            if let Some(WaitingWrite { site, done, .. }) = self.waiting.pop_front() {
                self.answers.add(site, done, Ok(()));
            }
        }
    }

    /// Everything that waits has failed, a shutdown included.
    pub(super) fn fail(&mut self, error: impl Fn() -> SourceError) {
        self.queued = 0;
        while let Some(WaitingWrite { site, done, .. }) = self.waiting.pop_front() {
            self.answers.add(site, done, Err(error()));
        }
        if matches!(self.shutdown, ShutdownState::Wanted { .. })
            && let Some((site, done)) = self.take_shutdown()
        {
            self.answers.add(site, done, Err(error()));
        }
    }

    /// Asks for a shutdown after the queue.
    pub(super) fn want_shutdown(&mut self, site: Site, done: Done) {
        self.shutdown = ShutdownState::Wanted { site, done };
    }

    /// The shutdown that is to be made now.
    pub(super) fn take_due_shutdown(&mut self) -> Option<(Site, Done)> {
        if self.waiting.is_empty() { self.take_shutdown() } else { None }
    }

    fn take_shutdown(&mut self) -> Option<(Site, Done)> {
        match std::mem::replace(&mut self.shutdown, ShutdownState::ShutDown) {
            ShutdownState::Wanted { site, done } => Some((site, done)),
            other => {
                self.shutdown = other;
                None
            }
        }
    }
}
