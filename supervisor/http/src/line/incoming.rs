//! What has come over a connection and was not handed on yet, with the guard that decides what may be.

use crate::frames::Frames;
use crate::guard::{Guard, Violation};
use crate::limits::{HEAD_FIRST, HEAD_MAX};
use hyper::rt::ReadBufCursor;

/// A memory that has grown beyond this is given back when it is empty.
const KEPT_MAX: usize = 4 << 10;

#[derive(Default)]
pub(super) struct Incoming {
    pub(super) guard: Guard,
    /// Over HTTP/2.
    pub(super) frames: Option<Frames>,
    pub(super) bytes: Vec<u8>,
    /// So many of them were handed on, and so many more may be.
    start: usize,
    pub(super) cleared: usize,
}

impl Incoming {
    pub(super) fn unseen(&self) -> &[u8] {
        &self.bytes[self.start + self.cleared..]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length() == 0
    }

    pub(super) fn length(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Over HTTP/1: whether the next head is awaited, and nothing before it is to be handed on.
    pub(super) fn is_between_requests(&self) -> bool {
        self.frames.is_none() && self.cleared == 0 && self.guard.awaits_head()
    }

    /// Hands on what may be.
    pub(super) fn hand_over(&mut self, cursor: &mut ReadBufCursor<'_>) {
        let count = self.cleared.min(cursor.remaining());
        cursor.put_slice(&self.bytes[self.start..self.start + count]);
        self.start += count;
        self.cleared -= count;
        if self.is_empty() {
            self.start = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Lets the guard look at what has come. True if something may be handed on.
    pub(super) fn clear(&mut self) -> Result<bool, Violation> {
        if self.frames.is_some() {
            self.cleared = self.bytes.len() - self.start;
        } else if self.cleared == 0 {
            self.cleared = self.guard.admit(&self.bytes[self.start..])?;
            self.clear_body();
        }
        Ok(self.cleared > 0)
    }

    /// What is there already of a body with a length goes on together with its head: hyper would read into new memory otherwise.
    fn clear_body(&mut self) {
        if let (1.., Some(left)) = (self.cleared, self.guard.body_left()) {
            let there = self.unseen().len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.guard.count(there);
            self.cleared += there;
        }
    }

    /// Room for the next read: what was handed on makes way first.
    pub(super) fn make_room(&mut self) -> usize {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        let length = self.bytes.len();
        if length == self.bytes.capacity() {
            self.bytes.reserve_exact(length.clamp(HEAD_FIRST, HEAD_MAX));
        }
        self.bytes.capacity() - length
    }
}

impl Incoming {
    /// How many bytes may be read without being looked at, if any.
    pub(super) fn most_to_read_directly(&self, room: usize) -> Option<usize> {
        if self.frames.is_some() {
            return Some(room);
        }
        self.guard.body_left().map(|left| room.min(usize::try_from(left).unwrap_or(usize::MAX)))
    }

    pub(super) fn came_directly(&mut self, count: usize) {
        if self.frames.is_none() && count > 0 {
            self.guard.count(count);
        }
    }
}
