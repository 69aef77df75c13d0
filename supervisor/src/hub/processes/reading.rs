//! Reading messages from workers, and which of them wait for their turn.

use super::{LivingProcess, ReadResult, Reading, WorkerProcesses};
use crate::limits::LAST_TURNS;
use crate::workers::{Allowance, LinkError, Received};
use bytes::Bytes;
use offload_core::event::Event;
use offload_core::ids::WorkerId;
use offload_event_loop::LoopHandle;
use offload_protocol::messages::FromWorker;
use std::time::Instant;

impl WorkerProcesses {
    /// Reads once.
    pub(crate) fn receive(
        &mut self,
        worker: WorkerId,
        handle: &LoopHandle,
        allowance: &mut Allowance,
        hear: &mut dyn FnMut(FromWorker<'_>, Bytes),
    ) -> ReadResult {
        let is_read = |living: &&mut LivingProcess| living.reading != Reading::Over;
        let Some(living) = self.living.get_mut(&worker).filter(is_read) else {
            return ReadResult::Nothing;
        };
        let before = living.process.unsent();
        let last = match living.process.receive(allowance, hear) {
            Ok(Received::Messages) => {
                living.progress_at = Instant::now();
                if living.process.unsent() != before {
                    self.mark(worker);
                }
                return ReadResult::Messages;
            }
            Ok(Received::Enough | Received::WouldBlock) => return ReadResult::Nothing,
            Ok(Received::Closed) => Event::Closed { worker },
            Err(LinkError::Foreign(greeting)) => Event::Unfit { worker, message: greeting.foreign_worker() },
            Err(error) => Event::Garbled { worker, message: error.to_string() },
        };
        living.reading = Reading::Over;
        // Taking a descriptor out of the epoll set cannot fail.
        let _ = living.watchers.link.look_for(handle, false, false);
        ReadResult::Last(last)
    }

    /// Stops reading from this worker until [`WorkerProcesses::read_again`]. Returns whether it was read until now; None if it does
    /// not exist.
    pub(crate) fn leave_unread(&mut self, worker: WorkerId) -> Option<bool> {
        let living = self.living.get_mut(&worker)?;
        let was_read = living.reading == Reading::Reads;
        if was_read {
            living.reading = Reading::Waits;
        }
        self.mark(worker);
        Some(was_read)
    }

    /// Reads from this worker again. Returns false if it does not exist.
    pub(crate) fn read_again(&mut self, worker: WorkerId) -> bool {
        let Some(living) = self.living.get_mut(&worker) else { return false };
        if living.reading == Reading::Waits {
            living.reading = Reading::Reads;
        }
        living.progress_at = Instant::now();
        if living.process.has_rest() {
            self.wait_for_turn(worker);
        }
        self.mark(worker);
        true
    }

    /// Whether the last messages of a worker that has ended may be read in one turn more.
    pub(crate) fn may_read_on(&mut self, worker: WorkerId) -> bool {
        let Some(living) = self.living.get_mut(&worker) else { return false };
        living.last_turns += 1;
        living.last_turns < LAST_TURNS
    }

    /// Whether messages of this worker that have been read are left, or an output of it that is being copied.
    pub(crate) fn has_rest(&self, worker: WorkerId) -> bool {
        self.living.get(&worker).is_some_and(|living| living.process.has_rest())
    }

    /// How many bytes are still to be copied of the output of this worker that is being copied.
    pub(crate) fn uncopied(&self, worker: WorkerId) -> usize {
        self.living.get(&worker).map_or(0, |living| living.process.uncopied())
    }

    /// Whether messages of this worker are read as they arrive.
    pub(crate) fn reads(&self, worker: WorkerId) -> bool {
        self.living.get(&worker).is_some_and(|living| living.reading == Reading::Reads)
    }
}

/// Turns.
impl WorkerProcesses {
    /// Whether nobody may be read from before those that wait.
    pub(crate) fn must_wait(&self) -> bool {
        !self.waiting.is_empty() || self.allowance.is_used_up()
    }

    /// Puts the worker behind those that wait, unless it is one of them.
    pub(crate) fn wait_for_turn(&mut self, worker: WorkerId) {
        let Some(living) = self.living.get_mut(&worker) else { return };
        if !std::mem::replace(&mut living.is_waiting, true) {
            self.waiting.push_back(worker);
        }
    }

    /// Whose turn it is. None if nobody waits, or nothing more may be taken in this turn of the event loop.
    pub(crate) fn next_waiting(&mut self) -> Option<WorkerId> {
        if self.allowance.is_used_up() {
            return None;
        }
        let worker = self.waiting.pop_front()?;
        self.living.entry(worker).and_modify(|living| living.is_waiting = false);
        Some(worker)
    }

    /// A new turn of the event loop.
    pub(crate) fn begin_turn(&mut self) {
        self.allowance = Allowance::of_a_turn();
    }
}
