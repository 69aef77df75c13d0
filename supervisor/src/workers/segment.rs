//! A segment: shared memory for the large payloads of one worker. It is made by this process, and dies with its worker.
//!
//! ```text
//!   memfd, of its final size, sealed: nobody can shrink it, grow it or change that
//!     '---> mapped here ---> prepared: all of its memory is reserved, piece by piece ---> its descriptor goes to the worker
//!                                                                  |---> its memory is returned, piece by piece
//!                                                                  '---> the worker keeps it: unmapped here, piece by piece
//! ```
//!
//! A worker may write into it whenever it likes, also after it has said otherwise. So nothing is ever decided by what is in
//! it: payloads are copied in or out once, and only the copy is looked at. Because of the seals no access can fail. A worker
//! can punch holes into it, which are filled again when they are accessed; only where the kernel promises all memory that it
//! hands out (`vm.overcommit_memory` = 2) could that fail, and there no segments are made.

use crate::sys::SharedMapping;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that all segments take, in bytes. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct SegmentBytes(Arc<AtomicU64>);

impl SegmentBytes {
    /// Bytes that are taken now.
    pub fn taken(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes bytes until the returned value is dropped. `None` if more than `most` would be taken.
    fn take(&self, bytes: u64, most: u64) -> Option<CountedBytes> {
        let add = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= most);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(CountedBytes { bytes, of: self.clone() })
    }
}

/// Bytes of one segment, counted in [`SegmentBytes`] for as long as this value lives.
#[derive(Debug)]
pub(super) struct CountedBytes {
    bytes: u64,
    of: SegmentBytes,
}

impl CountedBytes {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Segment {
    id: u32,
    mapping: Arc<SharedMapping>,
    /// Until the worker has it.
    file: Option<OwnedFd>,
    length: usize,
    /// While it is prepared: how much is reserved. Later: how much is left.
    reserved: usize,
    /// `None` once the worker keeps its memory.
    taken: Option<CountedBytes>,
}

/// The length of a segment for payloads of this many bytes: the next power of two, and a page because of
/// [`SEGMENT_START`](offload_protocol::limits::SEGMENT_START).
fn length_for(payload: usize, page: usize) -> Option<usize> {
    payload.checked_next_power_of_two()?.max(page).checked_add(page)
}

/// Whether this process may make a file of this length. The kernel answers a longer one with SIGXFSZ, which ends a program that does
/// not catch it.
fn may_be_made(length: u64) -> bool {
    getrlimit(Resource::Fsize).current.is_none_or(|limit| length <= limit)
}

impl Segment {
    /// Begins to make one for payloads of up to `payload` bytes. `None` if all segments would take more than `most` bytes then, or if
    /// this process may not make a file that is so long.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn new(id: u32, payload: usize, all: &SegmentBytes, most: u64) -> io::Result<Option<Segment>> {
        let page = rustix::param::page_size();
        let Some(length) = length_for(payload, page).filter(|length| may_be_made(*length as u64)) else {
            return Ok(None);
        };
        // The additional page does not count, so that payloads of a power of two fit into what is configured.
        let Some(taken) = all.take((length - page) as u64, most) else { return Ok(None) };
        let file = memfd_create("offload-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, length as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Arc::new(SharedMapping::new(file.as_fd(), length)?);
        Ok(Some(Segment { id, mapping, file: Some(file), length, reserved: 0, taken: Some(taken) }))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    pub(super) fn mapping(&self) -> Arc<SharedMapping> {
        Arc::clone(&self.mapping)
    }

    /// The descriptor for the worker, once.
    pub(super) fn take_file(&mut self) -> Option<OwnedFd> {
        self.file.take()
    }

    /// The worker keeps its memory. Returns what it has taken, once. What is left is to be [dismantled](Segment::dismantle).
    pub(super) fn give_away(&mut self) -> Option<CountedBytes> {
        self.taken.take()
    }

    /// Reserves at most `most` bytes more. True if all are reserved.
    ///
    /// # Errors
    /// There is no memory.
    pub fn prepare(&mut self, most: usize) -> io::Result<bool> {
        let piece = most.min(self.length - self.reserved);
        if self.mapping.populate(self.reserved, piece).is_err()
            && let Some(file) = &self.file
        {
            // An old kernel. Memory is reserved all the same, and is mapped when it is accessed.
            fallocate(file, FallocateFlags::empty(), self.reserved as u64, piece as u64)?;
        }
        self.reserved += piece;
        Ok(self.reserved == self.length)
    }

    /// Returns at most `most` bytes of its memory to the system, whoever else has mapped it. If the worker keeps the memory,
    /// unmaps so many bytes here. True if none is left. `most` is a multiple of the page size.
    pub fn dismantle(&mut self, most: usize) -> bool {
        if self.taken.is_none() {
            // If it is still used here, whoever uses it last unmaps it.
            return Arc::get_mut(&mut self.mapping).is_none_or(|mapping| mapping.unmap_some(most));
        }
        let piece = most.min(self.reserved);
        self.reserved -= piece;
        // Should the kernel refuse, the memory is returned when the last process unmaps it.
        let refused = piece > 0 && self.mapping.remove(self.reserved, piece).is_err();
        refused || self.reserved == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_protocol::limits::SEGMENT_START;
    use rustix::fs::{fcntl_get_seals, fstat};

    const MIB: usize = 1 << 20;

    /// In the environment of this program when it is started once more, with a limit: the signal would end all tests.
    const WITH_A_LIMIT: &str = "OFFLOAD_TEST_WITH_A_LIMIT";

    fn prepared(payload: usize, all: &SegmentBytes) -> Segment {
        let mut segment = Segment::new(1, payload, all, u64::MAX).unwrap().unwrap();
        while !segment.prepare(MIB / 2).unwrap() {}
        segment
    }

    #[test]
    fn nobody_can_change_the_size_of_a_segment_and_all_of_it_is_reserved() {
        let mut segment = prepared(MIB + 1, &SegmentBytes::default());
        assert_eq!(segment.length(), 2 * MIB + rustix::param::page_size());
        let file = segment.take_file().unwrap();
        assert!(ftruncate(&file, 1 << 16).is_err() && ftruncate(&file, 4 * MIB as u64).is_err());
        assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
        assert!(fcntl_get_seals(&file).unwrap().contains(SealFlags::SEAL));
        assert_eq!(fstat(&file).unwrap().st_blocks * 512, segment.length() as i64);
        assert!(segment.take_file().is_none());
    }

    #[test]
    fn memory_is_returned_although_the_worker_has_it_mapped() {
        let mut segment = prepared(MIB, &SegmentBytes::default());
        let file = segment.take_file().unwrap();
        let workers = SharedMapping::new(file.as_fd(), segment.length()).unwrap();
        workers.write(0, b"kept");
        while !segment.dismantle(MIB / 2) {}
        assert_eq!(fstat(&file).unwrap().st_blocks, 0);
        let mut bytes = [1; 4];
        workers.read(0, &mut bytes);
        assert_eq!(bytes, [0; 4]);
    }

    #[test]
    fn what_a_worker_keeps_is_unmapped_in_pieces_and_its_memory_stays() {
        let mut segment = prepared(MIB, &SegmentBytes::default());
        let file = segment.take_file().unwrap();
        let workers = SharedMapping::new(file.as_fd(), segment.length()).unwrap();
        workers.write(0, b"kept");
        let used_here = segment.mapping();
        let _kept = segment.give_away();
        assert!(segment.dismantle(MIB / 2), "who uses it here unmaps it");
        drop(used_here);
        let calls = (1..).find(|_| segment.dismantle(MIB / 2)).unwrap();
        assert_eq!(calls, 3);
        let mut bytes = [1; 4];
        workers.read(0, &mut bytes);
        assert_eq!(&bytes, b"kept");
    }

    #[test]
    fn the_length_of_a_segment_is_whole_pages_whatever_a_page_is() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for payload in [0, 1, page, page + 1, MIB] {
                let length = length_for(payload, page).unwrap();
                assert!(length.is_multiple_of(page) && length >= payload + SEGMENT_START, "{payload} {page}");
            }
        }
    }

    #[test]
    fn where_no_file_may_be_so_long_none_is_made_and_nobody_is_killed() {
        if std::env::var_os(WITH_A_LIMIT).is_some() {
            let all = SegmentBytes::default();
            assert!(Segment::new(1, MIB, &all, u64::MAX).unwrap().is_none());
            assert_eq!(all.taken(), 0);
            assert!(Segment::new(2, 1 << 15, &all, u64::MAX).unwrap().is_some());
            return;
        }
        let name = "workers::segment::tests::where_no_file_may_be_so_long_none_is_made_and_nobody_is_killed";
        let mut limited = std::process::Command::new("sh");
        limited.args(["-c", "ulimit -f 128; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
        let ended = limited.args(["--exact", name]).env(WITH_A_LIMIT, "1").output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"), "{ended:?}");
    }

    #[test]
    fn segments_count_together_until_they_are_dropped() {
        let all = SegmentBytes::default();
        let most = 3 * MIB as u64;
        let mut first = Segment::new(1, 2 * MIB, &all, most).unwrap().unwrap();
        assert!(Segment::new(2, 2 * MIB, &all, most).unwrap().is_none());
        let second = Segment::new(3, MIB, &all, most).unwrap().unwrap();
        assert_eq!(all.taken(), most);
        let kept = first.give_away().unwrap();
        assert!(first.give_away().is_none());
        drop((first, second));
        assert_eq!(all.taken(), 2 * MIB as u64);
        drop(kept);
        assert_eq!(all.taken(), 0);
        assert!(Segment::new(4, usize::MAX, &all, u64::MAX).unwrap().is_none());
    }
}
