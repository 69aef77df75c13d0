//! Workers that stop in the middle of a message, or take nothing of what is written to them. Looked for now and then;
//! what has a time limit of its own in the core (starting, running, ending) is not looked at here.

use super::Hub;
use super::crew::Member;
use crate::core::event::Event;
use crate::core::ids::WorkerId;
use crate::limits::WORKER_STALL_TIMEOUT;
use std::time::{Duration, Instant};

/// How often they are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Hub {
    pub(super) fn watch_for_stalls(&mut self) {
        let me = self.me.clone();
        let handle = self.handle.clone();
        let timer = self.handle.set_timeout(LOOK_EVERY, move |_| {
            Hub::with(&me, |hub| {
                hub.look_for_stalls();
                hub.watch_for_stalls();
            });
        });
        handle.unref(timer);
    }

    fn look_for_stalls(&mut self) {
        let now = Instant::now();
        let is_silent =
            |member: &Member| now.saturating_duration_since(member.progress_at) >= WORKER_STALL_TIMEOUT;
        let stalled: Vec<WorkerId> = self
            .crew
            .iter()
            .filter(|(worker, member)| is_silent(member) && self.owes_bytes(*worker, member))
            .map(|(worker, _)| worker)
            .collect();
        for worker in stalled {
            let seconds = WORKER_STALL_TIMEOUT.as_secs();
            let message = format!("it stopped in the middle of a message for {seconds} s");
            self.tell(Event::Violation { worker, message });
        }
    }

    /// A worker that runs a job need not read the next one.
    fn owes_bytes(&self, worker: WorkerId, member: &Member) -> bool {
        let load = self.core.slot_of(worker).and_then(|slot| self.core.slots()[slot].load());
        let runs = load.is_some_and(|load| load.running.is_some());
        member.process.is_mid_frame() || (member.process.unsent() > 0 && !runs)
    }
}
