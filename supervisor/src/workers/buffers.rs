//! Memory for outputs that are copied out of segments. Fresh memory costs more than the copy itself (1.4 us for each page
//! here, against 0.15), so what the readers of one output have dropped is used for the next one.
//!
//! ```text
//!   take ---> filled by a copy ---> lend: Bytes, which anybody may hold and on any thread
//!     ^                               |
//!     '---- free, at most so many <---' the last one has dropped it
//!            '--- half of them each time that none was used for a while ---> leaving ---> returned to the system in pieces
//! ```
//!
//! Outputs that are too short for a segment have memory that is allocated faster than it is found here.

use bytes::Bytes;
use offload_protocol::limits::SEGMENT_PAYLOAD_MIN;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's documentation. Clones share the same memory.
#[derive(Clone, Debug)]
pub struct Buffers(Arc<Mutex<Free>>);

#[derive(Debug)]
struct Free {
    buffers: Vec<Vec<u8>>,
    /// The bytes of these, and what buffers in use have beyond what is used of them.
    bytes: usize,
    bytes_max: usize,
    /// What is being returned to the system.
    leaving: Vec<Vec<u8>>,
    /// How many buffers are in use.
    in_use: usize,
    /// Whether one was taken or returned since the last call of [`Buffers::trim`].
    is_used: bool,
}

impl Free {
    /// The free buffers from this index on leave.
    fn leave_from(&mut self, index: usize) {
        let leaving = self.buffers.split_off(index);
        self.bytes -= leaving.iter().map(Vec::capacity).sum::<usize>();
        self.leaving.extend(leaving);
    }
}

impl Buffers {
    /// Keeps at most `bytes_max` bytes that nobody uses.
    pub fn new(bytes_max: usize) -> Buffers {
        Buffers(Arc::new(Mutex::new(Free {
            buffers: Vec::new(),
            bytes: 0,
            bytes_max,
            leaving: Vec::new(),
            in_use: 0,
            is_used: false,
        })))
    }

    /// From now on, keeps at most `bytes_max` bytes that nobody uses. What is beyond that leaves.
    pub fn limit(&self, bytes_max: usize) {
        let mut free = self.free();
        free.bytes_max = bytes_max;
        while free.bytes > bytes_max && !free.buffers.is_empty() {
            let last = free.buffers.len() - 1;
            free.leave_from(last);
        }
    }

    /// A buffer for `length` bytes.
    pub(crate) fn take(&self, length: usize) -> Buffer {
        let mut free = self.free();
        free.is_used = true;
        free.in_use += 1;
        let fits = |buffer: &Vec<u8>| buffer.capacity() >= length && buffer.capacity() / 2 <= length;
        let found = free.buffers.iter().position(fits).map(|index| free.buffers.swap_remove(index));
        // Of a buffer in use, only what is beyond the output counts as kept.
        free.bytes -= if found.is_some() { length } else { 0 };
        drop(free);
        let beyond = found.as_ref().map_or(0, |buffer| buffer.capacity() - length);
        Buffer { bytes: found.unwrap_or_default(), length, beyond, home: self.clone() }
    }

    /// If none was used since the last call, half of those that nobody uses leave. True if there are any others, or some are
    /// in use.
    pub fn trim(&self) -> bool {
        let mut free = self.free();
        if !std::mem::take(&mut free.is_used) {
            let half = free.buffers.len() / 2;
            free.leave_from(half);
        }
        !free.buffers.is_empty() || free.in_use > 0
    }

    /// Returns at most `most` bytes of those that leave to the system. True if there are more.
    pub fn return_some(&self, most: usize) -> bool {
        let Some(mut buffer) = self.free().leaving.pop() else { return false };
        // What takes time is done while nobody has to wait for the lock.
        let rest = buffer.capacity().saturating_sub(most);
        buffer.truncate(rest);
        buffer.shrink_to(rest);
        let mut free = self.free();
        if rest > 0 {
            free.leaving.push(buffer);
        }
        !free.leaving.is_empty()
    }

    fn give_back(&self, buffer: Vec<u8>, beyond: usize) {
        let mut free = self.free();
        free.is_used = true;
        free.in_use -= 1;
        free.bytes -= beyond;
        if buffer.capacity() >= SEGMENT_PAYLOAD_MIN && free.bytes + buffer.capacity() <= free.bytes_max {
            free.bytes += buffer.capacity();
            free.buffers.push(buffer);
            return;
        }
        // What takes time is done while nobody has to wait for the lock.
        drop(free);
        drop(buffer);
    }

    /// The lock is never held while anything can fail.
    fn free(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer in use.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Fresh memory is only reserved, and gets its pages as it is filled.
    bytes: Vec<u8>,
    length: usize,
    /// How many bytes it has beyond that.
    beyond: usize,
    home: Buffers,
}

impl Buffer {
    /// These of its bytes, of any content, to be written. All of them have to be before it is lent.
    ///
    /// # Panics
    /// If the range ends beyond the length that was asked for.
    pub(crate) fn space(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.end <= self.length, "{range:?} of {} bytes", self.length);
        if self.bytes.len() < range.end {
            self.bytes.reserve_exact(self.length - self.bytes.len());
            self.bytes.resize(range.end, 0);
        }
        &mut self.bytes[range]
    }

    /// Its bytes, for anybody. It is free when the last clone is dropped.
    pub(super) fn lend(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.bytes), self.beyond);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn lent(buffers: &Buffers, length: usize) -> (Bytes, *const u8) {
        let mut buffer = buffers.take(length);
        buffer.space(0..length).fill(1);
        let bytes = buffer.lend();
        let place = bytes.as_ptr();
        (bytes, place)
    }

    fn kept(buffers: &Buffers) -> usize {
        buffers.free().bytes
    }

    #[test]
    fn a_buffer_is_used_again_when_nobody_holds_it_any_more_and_not_for_much_shorter_outputs() {
        let buffers = Buffers::new(10_000 * KIB);
        let (first, place) = lent(&buffers, 1000 * KIB);
        let part = first.slice(10..20);
        drop(first);
        let (_other, other_place) = lent(&buffers, 1000 * KIB);
        assert_ne!(other_place, place, "somebody holds a part of it");
        std::thread::spawn(move || drop(part)).join().unwrap();
        let (_short, short_place) = lent(&buffers, 400 * KIB);
        let (_long, long_place) = lent(&buffers, 1001 * KIB);
        assert!(short_place != place && long_place != place);
        let (again, again_place) = lent(&buffers, 900 * KIB);
        assert_eq!((again.len(), again_place), (900 * KIB, place));
    }

    #[test]
    fn a_buffer_gets_its_memory_as_it_is_filled() {
        let buffers = Buffers::new(1000 * KIB);
        let mut buffer = buffers.take(200 * KIB);
        assert_eq!(buffer.bytes.capacity(), 0);
        buffer.space(0..100).fill(1);
        assert_eq!((buffer.bytes.len(), buffer.bytes.capacity()), (100, 200 * KIB));
        drop(buffer);
        let mut again = buffers.take(150 * KIB);
        again.space(0..150 * KIB).fill(2);
        assert_eq!(again.as_ref(), vec![2; 150 * KIB]);
    }

    #[test]
    fn no_more_is_kept_than_is_allowed_and_half_of_it_leaves_each_time_that_none_was_used() {
        let buffers = Buffers::new(650 * KIB);
        let all: Vec<_> = (0..8).map(|_| lent(&buffers, 100 * KIB)).collect();
        assert!(buffers.trim() && buffers.trim(), "somebody has them, and may return them when nobody looks");
        drop(all);
        assert_eq!(kept(&buffers), 600 * KIB);
        assert!(buffers.trim(), "they have just been used");
        let left: Vec<_> = (0..3).map(|_| (buffers.trim(), kept(&buffers) / KIB)).collect();
        assert_eq!(left, [(true, 300), (true, 100), (false, 0)]);
        let calls = (1..).find(|_| !buffers.return_some(64 * KIB)).unwrap();
        assert_eq!((calls, buffers.free().leaving.len()), (12, 0), "two pieces each");
    }

    #[test]
    fn what_is_beyond_a_lower_limit_leaves_at_once() {
        let buffers = Buffers::new(1000 * KIB);
        drop([lent(&buffers, 100 * KIB), lent(&buffers, 100 * KIB)]);
        buffers.limit(150 * KIB);
        assert_eq!((kept(&buffers), buffers.free().leaving.len()), (100 * KIB, 1));
    }

    #[test]
    fn short_buffers_are_not_kept() {
        let buffers = Buffers::new(1000 * KIB);
        drop([lent(&buffers, 0), lent(&buffers, 1), lent(&buffers, SEGMENT_PAYLOAD_MIN - 1)]);
        let free = buffers.free();
        assert_eq!((free.bytes, free.buffers.len(), free.in_use), (0, 0, 0));
    }

    #[test]
    fn what_a_long_buffer_has_beyond_a_short_output_counts_as_kept() {
        let buffers = Buffers::new(1000 * KIB);
        drop(lent(&buffers, 1000 * KIB));
        let (short, _) = lent(&buffers, 600 * KIB);
        assert_eq!(kept(&buffers), 400 * KIB);
        drop(lent(&buffers, 700 * KIB));
        assert_eq!(buffers.free().buffers.len(), 0, "there is no room for it");
        drop(short);
        assert_eq!(kept(&buffers), 1000 * KIB);
    }
}
