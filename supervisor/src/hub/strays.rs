//! Stopped workers and stray processes. At every SIGCHLD the hub checks which workers were stopped or continued, and
//! has stray processes killed that ended workers have left behind.

use super::Hub;
use crate::workers::StopState;
use crate::workers::sweep::{SWEEP_PAUSE, SweepResult};
use offload_core::event::Event;
use rustix::process::Signal;

impl Hub {
    /// Watches SIGCHLD. One signal may stand for several children.
    pub(super) fn watch_for_stops(&mut self) {
        let me = self.me.clone();
        let signal = Signal::CHILD.as_raw();
        let watched = self.handle.on_signal(&[signal], move |_, _| Hub::with(&me, Hub::on_child_signal));
        match watched {
            Ok(watcher) => {
                self.handle.unref(watcher);
                self.checks.set_child_signals(watcher);
            }
            Err(error) => self.log.warn(format_args!("stopped workers are not noticed: {error}")),
        }
    }

    fn on_child_signal(&mut self) {
        self.report_stops();
        self.sweep();
    }

    pub(super) fn report_stops(&mut self) {
        for (worker, state) in self.processes.stop_states() {
            self.handle_event(match state {
                StopState::Stopped(_) => Event::Stopped { worker },
                StopState::Continued => Event::Continued { worker },
            });
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
