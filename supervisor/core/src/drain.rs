//! Graceful shutdown: a drain lets the accepted jobs finish, a stop cancels them. After that, all workers are
//! dismissed.
//!
//! A client whose request was accepted before the drain is to get its answer, and that may take a job, or two. So a drain also waits
//! for such requests, and lets their jobs in.

use super::action::{Action, Kill};
use super::event::JobRequest;
use super::ids::{JobId, Mono, SlotIndex};
use super::outcome;
use super::slots::{Cause, SlotState};
use super::turn::Turn;
use super::{Core, Ending};
use offload_protocol::nouns::OutcomeCode;
use std::time::Duration;

/// How far the supervisor is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Jobs are accepted.
    Running,
    /// The accepted jobs are finished; no others are accepted, except those of requests that are in flight.
    Draining {
        /// When the remaining jobs are cancelled, if ever.
        end_at: Option<Mono>,
    },
    /// All jobs have ended; the workers have to end.
    Stopping,
    /// Nothing is left.
    Over,
}

impl Core {
    /// Starts a drain. If it is requested several times, the earliest end counts.
    pub(super) fn on_drain(&mut self, now: Mono, limit: Option<Duration>) {
        let asked = limit.map(|limit| now + limit);
        let end_at = match self.phase {
            Phase::Running => asked,
            Phase::Draining { end_at } => end_at.into_iter().chain(asked).min(),
            Phase::Stopping | Phase::Over => return,
        };
        let was_running = self.phase == Phase::Running;
        self.phase = Phase::Draining { end_at };
        if was_running {
            self.look_for_room_again();
        }
    }

    /// When a drain ends, whatever is not done by then. None if there is none, or it has no limit.
    pub fn drain_ends_at(&self) -> Option<Mono> {
        match self.phase {
            Phase::Draining { end_at } => end_at,
            Phase::Running | Phase::Stopping | Phase::Over => None,
        }
    }

    /// Whether a job is not refused because of the end.
    pub(super) fn lets_in(&self, request: &JobRequest) -> bool {
        match self.phase {
            Phase::Running => true,
            Phase::Draining { .. } => request.of_request && self.has_requests,
            Phase::Stopping | Phase::Over => false,
        }
    }

    /// Whether nothing is left for which a drain waits.
    pub(super) fn is_drained(&self) -> bool {
        self.jobs.is_empty() && !self.has_requests
    }

    pub(super) fn on_stop(&mut self, turn: &mut Turn<'_>) {
        if !matches!(self.phase, Phase::Running | Phase::Draining { .. }) {
            return;
        }
        self.phase = Phase::Stopping;
        let jobs: Vec<JobId> = self.jobs.iter().map(|(id, _)| id).collect();
        for id in jobs {
            self.cut_short += 1;
            let error = outcome::for_anybody(OutcomeCode::Cancelled, "the supervisor was stopped");
            self.withdraw(turn, id, Ending::of(error));
        }
    }

    /// No job is left: the workers are dismissed. When the last one is gone, the supervisor has ended.
    pub(super) fn wind_up(&mut self, turn: &mut Turn<'_>) {
        self.phase = Phase::Stopping;
        for slot in 0..self.slots.len() {
            self.dismiss(turn, slot);
        }
        // A process that hangs in the kernel is not waited for.
        if self.places.is_empty() {
            self.phase = Phase::Over;
            self.forget_promises();
            self.forget_letters();
            turn.push(Action::Over);
        }
    }

    pub(super) fn dismiss(&mut self, turn: &mut Turn<'_>, slot: SlotIndex) {
        match &self.slots[slot].state {
            SlotState::Idle { worker } => {
                turn.push(Action::Dismiss { worker: worker.id });
                self.leave(turn, slot, Cause::Dismissed, None);
            }
            SlotState::Starting { .. } | SlotState::Busy { .. } => {
                self.leave(turn, slot, Cause::Dismissed, Some(Kill::Term));
            }
            SlotState::Vacant | SlotState::Leaving { .. } => {}
        }
    }
}

/// Read access for the shell.
impl Core {
    /// How many jobs were cancelled because the supervisor was told to end before they were done.
    pub fn cut_short(&self) -> u64 {
        self.cut_short
    }
}
