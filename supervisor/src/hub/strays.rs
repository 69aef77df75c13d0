//! Stopped workers and stray processes. The kernel can tell of both by SIGCHLD, but that signal belongs to the program that embeds
//! the library: it may ignore it, block it, or have a handler of its own. So the hub looks.
//!
//! ```text
//!   a check (every 250 ms while something is under way) --.
//!   the first turn after the checks had rested -----------|---> stopped? goes on? ---> the core is told
//!   a time limit is due, somebody asks for the workers ---'
//!
//!   a worker was reaped, or a check finds a dead child -------> a sweep: what ended workers have left behind is killed
//! ```
//!
//! The first turn counts because a worker may have been stopped while nothing was under way: that must be known before jobs are
//! given out.

use super::Hub;
use crate::workers::sweep::{SWEEP_PAUSE, SweepResult, has_dead_child};
use offload_core::event::Event;

impl Hub {
    /// Tells the core which workers were stopped, and which go on. Workers that have not said hello, or have to end, have time limits
    /// for that.
    pub(crate) fn report_stops(&mut self) {
        let core = &self.core;
        let is_ready =
            |worker| core.slot_of(worker).is_some_and(|slot| core.slots()[slot].ready_worker().is_some());
        for (worker, is_stopped) in self.processes.stop_changes(is_ready) {
            self.handle_event(match is_stopped {
                true => Event::Stopped { worker },
                false => Event::Continued { worker },
            });
        }
    }

    /// A process that escaped from a worker may have ended, and may have left others to this process.
    pub(super) fn sweep_if_any_has_died(&mut self) {
        if self.checks.may_sweep() && has_dead_child() {
            self.sweep();
        }
    }

    /// Has the launcher kill what ended workers have left behind, unless a sweep is under way: then another one
    /// follows. If a sweep does not get everything, the next one follows after a pause.
    pub(super) fn sweep(&mut self) {
        if self.checks.begin_sweep(&self.handle) {
            self.launches.sweep();
        }
    }

    pub(super) fn swept(&mut self, swept: SweepResult) {
        if swept.killed > 0 {
            self.log.warn(format_args!("ended {}", left_behind(swept.killed)));
        }
        let is_wanted_again = self.checks.end_sweep();
        if is_wanted_again {
            self.sweep();
        } else if swept.more {
            let me = self.me.clone();
            let again = move |hub: &mut Hub| {
                hub.checks.end_pause();
                hub.sweep();
            };
            let timer = self.handle.set_timeout(SWEEP_PAUSE, move |_| Hub::with(&me, again));
            self.handle.unref(timer);
            self.checks.pause_sweeps(timer);
        }
    }
}

fn left_behind(processes: usize) -> String {
    match processes {
        1 => "1 process that a dead worker had left behind".to_owned(),
        more => format!("{more} processes that dead workers had left behind"),
    }
}
