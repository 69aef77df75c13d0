//! The segments of a worker process, for the owner of all segments.

use super::Process;
use crate::workers::{Buffers, Segment, SegmentNews};
use offload_protocol::messages::SegmentUse;

impl Process {
    /// The worker can use segments. Outputs are copied out of them into memory from `buffers`.
    pub fn allow_segments(&mut self, buffers: Buffers) {
        self.link.allow_segments(buffers);
    }

    /// What is to be done for the segments of this worker, if anything is.
    pub fn take_segment_news(&mut self) -> Option<SegmentNews> {
        self.link.take_segment_news()
    }

    /// Sends the worker a segment that was wanted, with the next messages.
    ///
    /// # Errors
    /// The segment is not wanted any more.
    pub fn offer_segment(&mut self, holds: SegmentUse, segment: Segment) -> Result<(), Segment> {
        self.link.offer_segment(holds, segment)
    }

    /// A segment that was wanted is not made now.
    pub fn segment_not_made(&mut self, holds: SegmentUse) {
        if let Some(segments) = self.link.segments() {
            segments.not_made(holds);
        }
    }

    /// Gives up the segments that were not used since the last call. True if the worker has others.
    pub fn rest_segments(&mut self) -> bool {
        self.link.rest_segments()
    }

    /// Takes all segments, because the process has ended.
    pub fn take_segments(&mut self) -> Vec<Segment> {
        self.link.segments().map_or_else(Vec::new, |segments| segments.take_all())
    }

    /// Whether the worker has to say that it has mapped a segment, or left one. One that runs no job does so at once.
    pub fn owes_answer(&self) -> bool {
        self.link.owes_answer()
    }
}
