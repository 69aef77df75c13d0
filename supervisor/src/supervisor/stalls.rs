//! Workers that stop in the middle of a message, or take nothing of what is written to them. Looked for now and then;
//! what has a time limit of its own in the core (starting, running, ending) is not looked at here. Looks are counted and
//! not time, so a process that did not run for a while, and saw no progress in it, blames nobody for that.

use super::Hub;
use super::crew::Member;
use crate::core::event::Event;
use crate::core::ids::WorkerId;
use crate::limits::WORKER_STALL_TIMEOUT;
use std::time::{Duration, Instant};

/// So many workers are measured at each look: it takes some ten microseconds each.
const MEASURED_AT_A_TIME: usize = 32;

/// How often they are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// So many looks in a row that find a worker silent are too many.
const STALL_LOOKS: u32 = (WORKER_STALL_TIMEOUT.as_millis() / LOOK_EVERY.as_millis()) as u32;

impl Hub {
    pub(super) fn watch_for_stalls(&mut self) {
        let me = self.me.clone();
        let handle = self.handle.clone();
        let timer = self.handle.set_timeout(LOOK_EVERY, move |_| {
            Hub::with(&me, |hub| {
                hub.look_for_stalls();
                hub.look_at_memory();
                hub.watch_for_stalls();
            });
        });
        handle.unref(timer);
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
            self.tell(Event::Violation { worker, message });
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
        member.process.is_mid_frame() || (member.process.unsent() > 0 && !runs)
    }
}
