//! Workers that stop in the middle of a message, or take nothing of what is written to them. Looked for now and then;
//! what has a time limit of its own in the core (starting, running, ending) is not looked at here.

use super::Hub;
use crate::core::event::Event;
use crate::core::ids::WorkerId;
use crate::limits::STALL_TIMEOUT;
use std::time::{Duration, Instant};

/// How often they are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
        let is_stalled = |member: &super::crew::Member| {
            let is_due = member.process.unsent() > 0 || member.process.is_mid_frame();
            is_due && now.saturating_duration_since(member.progress_at) >= STALL_TIMEOUT
        };
        let stalled: Vec<WorkerId> =
            self.crew.iter().filter(|(_, member)| is_stalled(member)).map(|(worker, _)| worker).collect();
        for worker in stalled {
            let message = format!("it stopped in the middle of a message for {} s", STALL_TIMEOUT.as_secs());
            self.tell(Event::Violation { worker, message });
        }
    }
}
