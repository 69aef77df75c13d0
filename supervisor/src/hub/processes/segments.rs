//! The segments of the living processes.

use super::WorkerProcesses;
use crate::workers::{Buffers, Segment, SegmentNews};
use offload_core::ids::WorkerId;
use offload_protocol::messages::SegmentUse;

impl WorkerProcesses {
    /// This worker can use segments.
    pub(crate) fn allow_segments(&mut self, worker: WorkerId, buffers: Buffers) {
        if let Some(living) = self.living.get_mut(&worker) {
            living.process.allow_segments(buffers);
        }
    }

    /// What is to be done for the segments of this worker, if anything is.
    pub(crate) fn take_segment_news(&mut self, worker: WorkerId) -> Option<SegmentNews> {
        self.living.get_mut(&worker)?.process.take_segment_news()
    }

    /// Sends a worker a segment that was wanted.
    ///
    /// # Errors
    /// The worker has ended, or does not want it any more.
    pub(crate) fn offer_segment(
        &mut self,
        worker: WorkerId,
        holds: SegmentUse,
        segment: Segment,
    ) -> Result<(), Segment> {
        let is_heard = |living: &&mut super::LivingProcess| !living.is_terminated;
        let Some(living) = self.living.get_mut(&worker).filter(is_heard) else { return Err(segment) };
        living.process.offer_segment(holds, segment)?;
        self.mark(worker);
        Ok(())
    }

    /// A segment that was wanted is not made now.
    pub(crate) fn segment_not_made(&mut self, worker: WorkerId, holds: SegmentUse) {
        if let Some(living) = self.living.get_mut(&worker) {
            living.process.segment_not_made(holds);
        }
    }

    /// Gives up the segments that were not used since the last call. True if there are others.
    pub(crate) fn rest_segments(&mut self) -> bool {
        let mut has_others = false;
        let mut told = Vec::new();
        for (worker, living) in &mut self.living {
            if living.is_terminated {
                continue;
            }
            let before = living.process.unsent();
            has_others |= living.process.rest_segments();
            if living.process.unsent() != before {
                told.push(*worker);
            }
        }
        told.into_iter().for_each(|worker| self.mark(worker));
        has_others
    }

    /// Takes all segments of a process that has ended.
    pub(crate) fn take_segments(&mut self, worker: WorkerId) -> Vec<Segment> {
        self.living.get_mut(&worker).map_or_else(Vec::new, |living| living.process.take_segments())
    }

    /// Whether an output of this worker is being copied.
    pub(crate) fn is_copying(&self, worker: WorkerId) -> bool {
        self.living.get(&worker).is_some_and(|living| living.process.is_copying())
    }

    /// Tells a worker that its last output in a segment was read, if it was not told yet.
    pub(crate) fn say_read(&mut self, worker: WorkerId) {
        let is_heard = |living: &&mut super::LivingProcess| !living.is_terminated;
        let Some(living) = self.living.get_mut(&worker).filter(is_heard) else { return };
        let before = living.process.unsent();
        living.process.say_read();
        if living.process.unsent() != before {
            self.mark(worker);
        }
    }

    /// Whether the worker has to say that it has mapped a segment, or left one.
    pub(crate) fn owes_segment_answer(&self, worker: WorkerId) -> bool {
        self.living.get(&worker).is_some_and(|living| !living.is_terminated && living.process.owes_answer())
    }
}
