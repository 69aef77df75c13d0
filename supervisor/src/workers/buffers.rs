//! Memory for outputs that are copied out of segments. Fresh memory costs more than the copy itself (1.4 us for each page
//! here, against 0.15), so what the readers of one output have dropped is used for the next one.
//!
//! ```text
//!   take ---> filled by a copy ---> lend: Bytes, which anybody may hold and on any thread
//!     ^                               |
//!     '---- free, at most so many <---' the last one has dropped it
//!                    '--- not used for a while ---> returned to the system
//! ```

use bytes::Bytes;
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
    /// Whether one was taken or returned since the last call of [`Buffers::trim`].
    is_used: bool,
}

impl Buffers {
    /// Keeps at most `bytes_max` bytes that nobody uses.
    pub fn new(bytes_max: usize) -> Buffers {
        Buffers(Arc::new(Mutex::new(Free { buffers: Vec::new(), bytes: 0, bytes_max, is_used: false })))
    }

    /// A buffer of `length` bytes, of any content.
    pub(super) fn take(&self, length: usize) -> Buffer {
        let mut free = self.free();
        free.is_used = true;
        let fits = |buffer: &Vec<u8>| buffer.len() >= length && buffer.len() / 2 <= length;
        let bytes = match free.buffers.iter().position(fits) {
            Some(index) => {
                free.bytes -= length;
                free.buffers.swap_remove(index)
            }
            // Not even zeros are written: the system gives large zeroed memory as it is accessed.
            None => vec![0; length],
        };
        drop(free);
        Buffer { bytes, length, home: self.clone() }
    }

    /// Returns one buffer to the system if none was used since the last call. True if there are others.
    pub fn trim(&self) -> bool {
        let mut free = self.free();
        if !std::mem::take(&mut free.is_used)
            && let Some(buffer) = free.buffers.pop()
        {
            free.bytes -= buffer.len();
        }
        !free.buffers.is_empty()
    }

    fn give_back(&self, buffer: Vec<u8>, used: usize) {
        let mut free = self.free();
        free.is_used = true;
        if free.bytes + used <= free.bytes_max {
            free.bytes += used;
            free.buffers.push(buffer);
        } else {
            free.bytes -= buffer.len() - used;
        }
    }

    /// The lock is never held while anything can fail.
    fn free(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer in use.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
    home: Buffers,
}

impl Buffer {
    /// Its bytes, to be written.
    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
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
        self.home.give_back(std::mem::take(&mut self.bytes), self.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(buffers: &Buffers, length: usize) -> (Bytes, *const u8) {
        let bytes = buffers.take(length).lend();
        let place = bytes.as_ptr();
        (bytes, place)
    }

    #[test]
    fn a_buffer_is_used_again_when_nobody_holds_it_any_more_and_not_for_much_shorter_outputs() {
        let buffers = Buffers::new(10_000);
        let (first, place) = lent(&buffers, 1000);
        let part = first.slice(10..20);
        drop(first);
        let (_other, other_place) = lent(&buffers, 1000);
        assert_ne!(other_place, place, "somebody holds a part of it");
        std::thread::spawn(move || drop(part)).join().unwrap();
        let (_short, short_place) = lent(&buffers, 400);
        let (_long, long_place) = lent(&buffers, 1001);
        assert!(short_place != place && long_place != place);
        let (again, again_place) = lent(&buffers, 900);
        assert_eq!((again.len(), again_place), (900, place));
    }

    #[test]
    fn no_more_is_kept_than_is_allowed_and_nothing_when_it_is_not_used() {
        let buffers = Buffers::new(2500);
        let all: Vec<_> = (0..4).map(|_| lent(&buffers, 1000)).collect();
        drop(all);
        assert_eq!(buffers.free().bytes, 2000);
        assert!(buffers.trim(), "they have just been used");
        assert!(buffers.trim() && !buffers.trim());
        assert_eq!(buffers.free().bytes, 0);
    }

    #[test]
    fn what_a_long_buffer_has_beyond_a_short_output_counts_as_kept() {
        let buffers = Buffers::new(1000);
        drop(lent(&buffers, 1000));
        let (short, _) = lent(&buffers, 600);
        assert_eq!(buffers.free().bytes, 400);
        drop(lent(&buffers, 700));
        assert_eq!(buffers.free().buffers.len(), 0, "there is no room for it");
        drop(short);
        assert_eq!(buffers.free().bytes, 1000);
    }
}
