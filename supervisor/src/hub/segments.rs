//! Makes the segments that workers need for large payloads, and returns their memory. What is in them is up to the link of
//! each worker (`workers/segments.rs`).
//!
//! ```text
//!   a large payload went behind its header, ---> making: some of its memory a turn ---> offered to its worker
//!   for the second time                                                                   |
//!                                                                                         | not used for SEGMENT_IDLE, or
//!      returning: some of its memory a turn <---------------------------------------------' its worker has ended
//! ```
//!
//! Fresh memory costs the kernel more than the copies that it is for, so both are done in small pieces, and nobody waits for
//! them. While there are segments, or buffers for outputs, one timer looks for those that are not used. When there are none,
//! there is no timer.

use super::Hub;
use crate::limits::{BUFFERS_SHARE, SEGMENT_IDLE, SEGMENT_PIECE, SEGMENTS_MADE_AT_ONCE, SEGMENTS_SHARE};
use crate::workers::{Buffers, Segment, SegmentBytes, SegmentNews};
use offload_core::ids::WorkerId;
use offload_protocol::messages::{SEGMENTS, SegmentUse};
use std::collections::VecDeque;

/// See the module's documentation.
pub(super) struct Segments {
    last_id: u32,
    bytes: SegmentBytes,
    buffers: Buffers,
    making: VecDeque<(WorkerId, SegmentUse, Segment)>,
    returning: VecDeque<Segment>,
    has_timer: bool,
}

impl Segments {
    /// `max_bytes` is what the hub may hold for clients.
    pub(super) fn new(max_bytes: u64) -> Segments {
        Segments {
            last_id: 0,
            bytes: SegmentBytes::default(),
            buffers: Buffers::new(kept_bytes(max_bytes)),
            making: VecDeque::new(),
            returning: VecDeque::new(),
            has_timer: false,
        }
    }

    /// The bytes that all segments take now.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.taken()
    }

    /// Begins to make a segment. False if there is no room for it.
    fn make(&mut self, worker: WorkerId, (holds, payload): (SegmentUse, usize), max_bytes: u64) -> bool {
        if self.making.len() >= SEGMENTS_MADE_AT_ONCE || is_memory_promised() {
            return false;
        }
        self.last_id = self.last_id.wrapping_add(1);
        // Without it, payloads go behind their headers.
        let made = Segment::new(self.last_id, payload, &self.bytes, max_bytes / SEGMENTS_SHARE);
        let Ok(Some(segment)) = made else { return false };
        self.making.push_back((worker, holds, segment));
        true
    }

    /// Gives the next bytes of the first segment their memory. If that is complete, or has failed, returns for whom it was,
    /// and the segment.
    fn make_some(&mut self) -> Option<(WorkerId, SegmentUse, Result<Segment, Segment>)> {
        let (_, _, segment) = self.making.front_mut()?;
        let prepared = segment.prepare(SEGMENT_PIECE);
        if matches!(prepared, Ok(false)) {
            return None;
        }
        let (worker, holds, segment) = self.making.pop_front()?;
        Some((worker, holds, if prepared.is_ok() { Ok(segment) } else { Err(segment) }))
    }

    /// Returns the next bytes. True if there are more.
    fn return_some(&mut self) -> bool {
        if self.returning.front_mut().is_some_and(|segment| segment.dismantle(SEGMENT_PIECE)) {
            self.returning.pop_front();
        }
        let has_more_buffers = self.buffers.return_some(SEGMENT_PIECE);
        has_more_buffers || !self.returning.is_empty()
    }
}

/// How much memory is kept for outputs. `max_bytes` is what the hub may hold for clients.
fn kept_bytes(max_bytes: u64) -> usize {
    usize::try_from(max_bytes / BUFFERS_SHARE).unwrap_or(usize::MAX)
}

/// Whether the kernel hands out no more memory than it has, which somebody may change at any time. Then a hole that a worker
/// has punched into a segment could be one that cannot be filled, and access to it would end this process.
fn is_memory_promised() -> bool {
    promises_memory(std::fs::read_to_string("/proc/sys/vm/overcommit_memory").ok().as_deref())
}

/// What is not known for certain may be a promise.
fn promises_memory(policy: Option<&str>) -> bool {
    !matches!(policy.map(str::trim), Some("0" | "1"))
}

impl Hub {
    /// What this worker and the hub have in common, given the capabilities that both know.
    pub(super) fn agree_on_segments(&mut self, worker: WorkerId, shared: u64) -> u64 {
        if shared & SEGMENTS == 0 || is_memory_promised() {
            return shared & !SEGMENTS;
        }
        self.processes.allow_segments(worker, self.segments.buffers.clone());
        shared
    }

    /// Makes and returns segments as this worker needs them, if anything has changed.
    pub(super) fn heed_segments(&mut self, worker: WorkerId) {
        let Some(SegmentNews { wanted, left }) = self.processes.take_segment_news(worker) else { return };
        self.segments.returning.extend(left);
        for (holds, payload) in wanted {
            if !self.segments.make(worker, (holds, payload), self.core.config().max_bytes) {
                self.processes.segment_not_made(worker, holds);
            }
        }
        self.schedule_end_of_turn();
    }

    /// The end of a turn: one piece of what there is to do.
    pub(super) fn work_on_segments(&mut self) {
        if let Some((worker, holds, made)) = self.segments.make_some() {
            self.offer_segment(worker, holds, made);
        }
        if self.segments.return_some() || !self.segments.making.is_empty() {
            self.schedule_end_of_turn();
        }
    }

    /// The core may have other limits now. What is kept beyond them is returned from the end of this turn on.
    pub(super) fn configure_segments(&mut self) {
        self.segments.buffers.limit(kept_bytes(self.core.config().max_bytes));
    }

    fn offer_segment(&mut self, worker: WorkerId, holds: SegmentUse, made: Result<Segment, Segment>) {
        match made.and_then(|segment| self.processes.offer_segment(worker, holds, segment)) {
            Ok(()) => {
                self.schedule_end_of_turn();
                self.look_for_idle_segments();
            }
            Err(segment) => {
                self.processes.segment_not_made(worker, holds);
                self.segments.returning.push_back(segment);
            }
        }
    }

    fn look_for_idle_segments(&mut self) {
        if std::mem::replace(&mut self.segments.has_timer, true) {
            return;
        }
        let me = self.me.clone();
        let timer = self.handle.set_timeout(SEGMENT_IDLE, move |_| Hub::with(&me, Hub::rest_segments));
        self.handle.unref(timer);
    }

    fn rest_segments(&mut self) {
        self.segments.has_timer = false;
        let has_segments = self.processes.rest_segments();
        // Others may return them at a time when nothing else looks.
        let has_buffers = self.segments.buffers.trim();
        if has_segments || has_buffers {
            self.look_for_idle_segments();
        }
        self.schedule_end_of_turn();
    }

    /// The process of this worker has ended.
    pub(super) fn return_segments(&mut self, worker: WorkerId) {
        self.segments.returning.extend(self.processes.take_segments(worker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::tests::Scene;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_lower_limit_returns_the_memory_that_is_kept_for_outputs() {
        let scene = Scene::new();
        let mut hub = scene.hub.borrow_mut();
        let buffers = hub.segments.buffers.clone();
        let use_a_buffer = || {
            buffers.take(MIB).space(0..MIB);
        };
        use_a_buffer();
        assert!(buffers.trim(), "it is kept, as it was used just now");
        use_a_buffer();
        let mut config = hub.config().clone();
        config.max_bytes = MIB as u64;
        hub.configure(config);
        assert!(!buffers.trim(), "a quarter of the limit may be kept");
        assert!(buffers.return_some(1), "it is on its way to the system");
    }

    #[test]
    fn a_segment_is_made_and_returned_in_small_pieces() {
        let mut segments = Segments::new(1 << 30);
        assert!(segments.make(WorkerId(1), (SegmentUse::Inputs, 2 * MIB), 1 << 30));
        let mut turns = 1;
        let (worker, holds, made) = loop {
            match segments.make_some() {
                Some(made) => break made,
                None => turns += 1,
            }
        };
        assert_eq!((worker, holds), (WorkerId(1), SegmentUse::Inputs));
        assert_eq!(turns, 2 * MIB / SEGMENT_PIECE + 1);
        segments.returning.push_back(made.unwrap());
        let mut turns = 0;
        while !segments.returning.is_empty() {
            segments.return_some();
            turns += 1;
        }
        assert_eq!((turns, segments.bytes()), (2 * MIB / SEGMENT_PIECE + 1, 0));
    }

    #[test]
    fn nothing_is_made_where_memory_is_promised_or_nobody_knows() {
        let policies = [Some("0\n"), Some("1\n"), Some("2\n"), Some(""), None];
        assert_eq!(policies.map(promises_memory), [false, false, true, true, true]);
    }

    #[test]
    fn all_segments_together_take_a_share_of_what_may_be_held() {
        let mut segments = Segments::new(8 << 20);
        let wanted = (SegmentUse::Outputs, 2 * MIB);
        let made: Vec<bool> = (0..3).map(|worker| segments.make(WorkerId(worker), wanted, 8 << 20)).collect();
        assert_eq!(made, [true, true, false]);
        segments.making.pop_front();
        assert!(segments.make(WorkerId(3), wanted, 8 << 20));
        let small = (SegmentUse::Inputs, 1);
        let made = (0..20).filter(|worker| segments.make(WorkerId(*worker), small, 1 << 30)).count();
        assert_eq!(made, SEGMENTS_MADE_AT_ONCE - 2, "so many at a time");
    }
}
