//! Workers that stop in the middle of a message, or take nothing of what is written to them. Looked for now and then;
//! what has a time limit of its own in the core (starting, running, ending) is not looked at here. Looks are counted and
//! not time, so a process that did not run for a while, and saw no progress in it, blames nobody for that.
//!
//! ```text
//!   anything happens ---> a look 250 ms later ---> all workers idle, nothing owed ---> no more looks
//!                                ^      |
//!                                '------'  as long as a worker has something to do
//! ```
//!
//! So a supervisor with nothing to do is not woken; where memory has a limit, idle workers are measured seldom.

use super::Hub;
use super::crew::Member;
use crate::limits::WORKER_STALL_TIMEOUT;
use offload_core::event::Event;
use offload_core::ids::WorkerId;
use offload_core::slots::SlotState;
use offload_event_loop::TimerId;
use std::time::{Duration, Instant};

/// So many workers are measured at each look: it takes some ten microseconds each.
const MEASURED_AT_A_TIME: usize = 32;

/// How often they are looked for while there is something to do.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// So many looks in a row that find a worker silent are too many.
const STALL_LOOKS: u32 = (WORKER_STALL_TIMEOUT.as_millis() / LOOK_EVERY.as_millis()) as u32;

/// How often idle workers are measured whose memory has a limit.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(4);

/// When workers are looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextLook {
    /// When something has happened.
    Never,
    /// Within [`LOOK_EVERY`].
    Soon,
    /// Within [`IDLE_LOOK_EVERY`], unless something happens before.
    Late(TimerId),
}

impl Hub {
    /// Something happened: there will be a look, if none is due already.
    pub(super) fn watch_for_stalls(&mut self) {
        match self.next_look {
            NextLook::Soon => return,
            NextLook::Late(timer) => drop(self.handle.clear(timer)),
            NextLook::Never => {}
        }
        self.looked_at = Instant::now();
        self.next_look = NextLook::Soon;
        self.look_in(LOOK_EVERY);
    }

    fn look_in(&self, time: Duration) -> TimerId {
        let me = self.me.clone();
        let timer = self.handle.set_timeout(time, move |_| Hub::with(&me, Hub::look));
        self.handle.unref(timer);
        timer
    }

    fn look(&mut self) {
        // What the core is told in here must not bring about another look, or there would be no end to it.
        self.next_look = NextLook::Soon;
        self.look_for_stalls();
        self.look_at_memory();
        self.log.catch_up();
        self.next_look = if self.is_anything_under_way() {
            self.look_in(LOOK_EVERY);
            NextLook::Soon
        } else if self.core.config().max_rss.is_some() {
            NextLook::Late(self.look_in(IDLE_LOOK_EVERY))
        } else {
            NextLook::Never
        };
    }

    fn is_anything_under_way(&self) -> bool {
        let is_at_rest = |state: &SlotState| matches!(state, SlotState::Idle { .. } | SlotState::Vacant);
        let is_measuring = self.last_measured.is_some();
        is_measuring
            || self.log.owes()
            || self.core.slots().iter().any(|slot| !is_at_rest(&slot.state))
            || self.crew.iter().any(|(worker, member)| self.owes_bytes(worker, member))
    }

    fn look_for_stalls(&mut self) {
        let last_look = std::mem::replace(&mut self.looked_at, Instant::now());
        let silent: Vec<WorkerId> = self
            .crew
            .iter()
            .filter(|(worker, member)| member.progress_at <= last_look && self.owes_bytes(*worker, member))
            .map(|(worker, _)| worker)
            .collect();
        self.crew.count_looks(&silent);
        for worker in silent {
            if !self.is_stalled(worker) {
                continue;
            }
            let seconds = WORKER_STALL_TIMEOUT.as_secs();
            let message = format!("it stopped in the middle of a message for {seconds} s");
            // What it says from now on would be part of that message.
            self.tell(Event::Garbled { worker, message });
        }
    }

    /// Whether it was silent at all looks of [`WORKER_STALL_TIMEOUT`], and what it sent before this one is read.
    fn is_stalled(&mut self, worker: WorkerId) -> bool {
        let is_due =
            |hub: &mut Hub| hub.crew.get_mut(worker).is_some_and(|member| member.silent_looks >= STALL_LOOKS);
        if !is_due(self) {
            return false;
        }
        self.read_what_is_there(worker);
        self.crew.get_mut(worker).is_some_and(|member| member.progress_at < self.looked_at)
    }

    /// Measures some of the workers, each in turn.
    fn look_at_memory(&mut self) {
        let after = self.last_measured;
        let all = || self.crew.iter().map(|(worker, _)| worker);
        let some: Vec<WorkerId> =
            all().filter(|worker| Some(*worker) > after).take(MEASURED_AT_A_TIME).collect();
        self.last_measured = some.last().copied().filter(|_| some.len() == MEASURED_AT_A_TIME);
        for worker in some {
            if let Some(resident_bytes) = self.crew.resident_bytes(worker) {
                self.tell(Event::Measured { worker, resident_bytes });
            }
        }
    }

    /// A worker that runs a job need not read the next one.
    fn owes_bytes(&self, worker: WorkerId, member: &Member) -> bool {
        let load = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load());
        let runs = load.is_some_and(|load| load.running.is_some());
        let owes_more = member.process.is_mid_frame() && !member.is_unread;
        owes_more || (member.process.unsent() > 0 && !runs)
    }
}
